"""Files that are not UTF-8 text, given to every reader of texts: one line that names the kind."""

import gzip
import io
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

from bert_tf.corpus.corpus_format import open_decompressed
from bert_tf.system.file_kinds import HEAD_BYTES, check_text
from bert_tf.system.files import read_json_data, read_lines
from bert_tf.tasks.base.examples.tables import read_rows
from bert_tf.tasks.classification.examples import read_text_examples
from bert_tf.tasks.question_answering.questions import read_squad
from bert_tf.tasks.tagging.files import read_tagged

TEXT = "text,label\nÀ la mer,x\nc d,y\n"


def packed(kind: str) -> bytes:
    """Returns a file of a kind, as the standard library or NumPy writes it."""
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a.csv", TEXT)
    elif kind in ("tar", "tar.gz"):
        with tarfile.open(fileobj=file, mode="w:gz" if kind == "tar.gz" else "w") as archive:
            archive.addfile(tarfile.TarInfo("a.csv"), io.BytesIO())
    elif kind == "NumPy":
        np.save(file, np.zeros(3))
    else:
        file.write(pickle.dumps([TEXT]))
    return file.getvalue()


FILES = {
    "UTF-16 ": TEXT.encode("utf-16"),
    "UTF-16  ": b"\xfe\xff" + TEXT.encode("utf-16-be"),
    "UTF-16LE": TEXT.encode("utf-16-le"),
    "UTF-16BE": TEXT.encode("utf-16-be"),
    "UTF-32": TEXT.encode("utf-32"),
    "zip": packed("zip"),
    "tar": packed("tar"),
    "NumPy": packed("NumPy"),
    "pickle": packed("pickle"),
    "Parquet": b"PAR1\x15\x04\x15\x10PAR1",
    "SQLite": b"SQLite format 3\x00\x10\x00",
    "PDF": b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n",
    "LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n",
}


@pytest.mark.parametrize("kind", FILES)
def test_every_reader_names_the_kind(tmp_path, kind) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(FILES[kind])
    for read in (
        lambda: read_text_examples(str(path), "text", "", "label"),
        lambda: list(read_rows(str(path))),
        lambda: read_tagged(path),
        lambda: read_squad(path, True, False),
        lambda: read_json_data(path),
        lambda: read_lines(path),
    ):
        with pytest.raises(ValueError, match=kind.strip()) as error:
            read()
        assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_archives_in_compressed_files(tmp_path) -> None:
    (tmp_path / "a.gz").write_bytes(packed("tar.gz"))
    (tmp_path / "b.gz").write_bytes(gzip.compress(gzip.compress(TEXT.encode())))
    for name, kind in (("a.gz", "tar"), ("b.gz", "gzip")):
        with pytest.raises(ValueError, match=kind), open_decompressed(str(tmp_path / name)):
            pass
    with pytest.raises(ValueError, match="gzip"):
        read_lines(tmp_path / "b.gz")


def test_text_is_not_mistaken() -> None:
    for text in ("", "a", "PK", "%PDF", "A\x00", "\ufeffa", "Rar", "\x00", "é" * 200, TEXT):
        check_text(text.encode()[:HEAD_BYTES], "file")
