"""Tests of corpus reading: each format, cutting in parts, and every error."""

import bz2
import gzip
import json
import lzma
import random
import subprocess
import sys
import tracemalloc

import pytest

from bert_tf.corpus import corpus, text_lines
from bert_tf.corpus.corpus import list_parts, read_documents
from tests.shared_data import golden_file

DOCUMENTS = [["One is here.", "Two is here."], ["Three."], ["Ünïcode 今日は", "b", "c"]]
LINES = "\n\n".join("\n".join(document) for document in DOCUMENTS) + "\n"


def read_all(input_file, *args, **kwargs):
    """Returns all documents of an input."""
    parts = list_parts(str(input_file), *args, **kwargs)
    return [document for part in parts for document in read_documents(part)]


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def random_lines(rng, sentence_count):
    """Returns text with blank lines of several kinds, CRLF and documents of all sizes."""
    pieces = []
    for number in range(sentence_count):
        pieces.append(rng.choice(["", " "]) + "é" * rng.randrange(5) + f"Sentence {number}.")
        pieces.append(
            rng.choice(["\n", "\n", "\r\n", "\n\n", "\r\n \t\r\n", "\n\n\n", "\n\u3000\n"])
        )
    return rng.choice(["", "\n", "\ufeff"]) + "".join(pieces)


def split_like_google(text):
    """Reads lines and documents as google-research/bert's create_training_instances does."""
    documents = [[]]
    for line in text.removeprefix("\ufeff").split("\n"):
        if not line.strip():
            documents.append([])
        else:
            documents[-1].append(line.strip())
    return [document for document in documents if document]


# Formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n", " \n\t\n"])
def test_lines(tmp_path, end):
    assert read_all(write(tmp_path / "a.txt", "\n\n" + LINES + end)) == DOCUMENTS


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_compressed_whatever_the_name(tmp_path, compress):
    path = write(tmp_path / "a.txt", compress(LINES.encode()))
    assert read_all(path) == DOCUMENTS
    assert len(list_parts(str(path), part_bytes=8)) == 1


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_jsonl(tmp_path, compress):
    records = [
        {"text": "One is here. Two is here."},
        {"text": " \n"},
        {"id": 1, "text": "A\nB\n\nC"},
    ]
    text = "\n\n".join(json.dumps(record) for record in records)
    path = write(tmp_path / "a", compress(text.encode()))
    assert read_all(path) == [["One is here.", "Two is here."], ["A", "B", "C"]]


@pytest.mark.parametrize(
    "text", [r"\ud83d\ude00 and \ud83d here.", r"\uD83D\uDE00 and \uD83D here."]
)
def test_jsonl_with_half_a_surrogate_pair(tmp_path, text):
    path = write(tmp_path / "a", f'{{"text": "{text}"}}')
    assert read_all(path) == [["\U0001f600 and \ufffd here."]]


def test_jsonl_with_hard_wrapped_text_and_another_field(tmp_path):
    body = (
        "The rain had only ceased with the gray streaks\n"
        "of morning, and the settlement awoke to a moral\n"
    ) * 3
    path = write(tmp_path / "a", json.dumps({"body": body + "awoke.\n\nIt was day."}))
    (document,) = read_all(path, text_field="body")
    assert len(document) == 2
    assert document[0].startswith("The rain had only ceased with the gray streaks of morning, and")


PROSE = """\
THE BOOK
by Nobody


CHAPTER I

A Title


It was a dark night, and the rain fell on
the roof. He woke
up.

"Who is it?" he asked.


Another scene begins
here.
\fA new page begins here.

CHAPTER II

The end.
"""


def test_prose_documents_end_at_gaps_form_feeds_and_headings(tmp_path):
    assert read_all(write(tmp_path / "a", PROSE), "prose") == [
        ["THE BOOK by Nobody"],
        [
            "CHAPTER I",
            "A Title",
            "It was a dark night, and the rain fell on the roof.",
            "He woke up.",
            '"Who is it?" he asked.',
        ],
        ["Another scene begins here."],
        ["A new page begins here."],
        ["CHAPTER II", "The end."],
    ]


def test_prose_paragraph_a_line_is_cut_at_each_multiple(tmp_path, monkeypatch):
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 1000)
    paragraph = "It was a dark and rainy night. " * 6  # 186 bytes, too long to be a wrapped line
    documents = read_all(write(tmp_path / "a", (paragraph.strip() + "\n") * 20), "prose")
    # Lines of 186 bytes; the first at or past 0, 1000, 2000, 3000 are lines 0, 6, 11, 17.
    assert [len(document) // 6 for document in documents] == [6, 5, 6, 3]


def test_sample_of_the_original():
    path = golden_file("google-bert-sample_text.txt")
    expected = split_like_google(path.read_text(encoding="utf8"))
    assert len(expected) == 3 and read_all(path) == expected
    assert read_all(path, part_bytes=100) == expected


# Parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_parts_of_lines_equal_the_whole(tmp_path, seed):
    rng = random.Random(seed)
    text = random_lines(rng, 30)
    path = write(tmp_path / "a", text)
    expected = split_like_google(text)
    for part_bytes in [*range(1, 60), 1 << 20]:
        assert read_all(path, "lines", part_bytes=part_bytes) == expected


def test_long_documents_end_at_multiples(tmp_path, monkeypatch):
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 80)
    # Ten bytes a line. The first document is cut at 80, 160 and 240. The second begins at 290, the
    # last blank line before 320 is at 280 >= 320 - 40: it is cut at 400 only.
    lines = [f"{number:08}." for number in range(28)] + [" " * 9]
    lines += [f"{number:08}." for number in range(29, 45)]
    path = write(tmp_path / "a", "\n".join(lines))
    documents = [[int(line[:-1]) for line in document] for document in read_all(path, "lines")]
    cuts = [(0, 8), (8, 16), (16, 24), (24, 28), (29, 40), (40, 45)]
    assert documents == [list(range(*cut)) for cut in cuts]


@pytest.mark.parametrize("form", [pytest.param("lines", marks=pytest.mark.slow), "prose"])
@pytest.mark.parametrize("seed", range(3))
def test_parts_of_long_documents_and_lines_equal_the_whole(tmp_path, monkeypatch, form, seed):
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 1 << 10)
    rng = random.Random(seed)
    pieces = []
    for _ in range(300):
        pieces.append(rng.choice(["é", "今日", "word ", "a"]) * rng.choice([1, 2, 5, 9, 20, 400]))
        pieces.append(rng.choice(["\n"] * 20 + ["\r\n", "", "", "\n \n", "\n\n" * 400]))
    path = write(tmp_path / "a", "".join(pieces))
    whole = read_all(path, form, part_bytes=1 << 30)
    assert max(len("".join(document).encode()) for document in whole) < 4 << 10
    joined = "".join(sentence for document in whole for sentence in document)
    assert "".join(joined.split()) == "".join("".join(pieces).split())
    for part_bytes in [50, 500, 1023, 1024, 1025, 5000]:
        assert read_all(path, form, part_bytes=part_bytes) == whole


@pytest.mark.parametrize("form", ["lines", pytest.param("prose", marks=pytest.mark.slow)])
@pytest.mark.parametrize("end", ["\n", " "])
def test_memory_does_not_grow_with_a_document_or_a_line(tmp_path, monkeypatch, form, end):
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 1 << 14)
    line = "It was a dark and rainy night in which nobody could sleep." + end
    path = write(tmp_path / "a", line * (1 << 15))  # 1.8 MiB
    tracemalloc.start()
    parts = list_parts(str(path), form, part_bytes=1 << 18)
    peaks = [tracemalloc.get_traced_memory()[1]]
    nights = 0
    for part in parts:
        for document in read_documents(part):
            nights += sum(sentence.count("night") for sentence in document)
            del document
    peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert nights == 1 << 15
    assert max(peaks) < 1 << 20, peaks


def test_parts_of_jsonl_equal_the_whole(tmp_path):
    rng = random.Random(1)
    texts = [f"Record {number}. " + "é" * rng.randrange(40) for number in range(20)]
    texts += ["Yes. " * 300, "No."]  # Longer than the parts.
    path = write(tmp_path / "a", "\n".join(json.dumps({"text": text}) for text in texts))
    whole = read_all(path, part_bytes=1 << 20)
    assert [len(document) for document in whole[20:]] == [300, 1] and len(whole) == 22
    for part_bytes in [*range(1, 200, 3), 300]:
        assert read_all(path, part_bytes=part_bytes) == whole


@pytest.mark.parametrize("seed", range(3))
def test_parts_of_prose_equal_the_whole(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 1 << 10)
    rng = random.Random(seed)
    pieces = []
    for number in range(400):
        line = "word " * rng.choice([1, 2, 5, 9, 14, 30, 60]) + f"{number}"
        pieces.append(rng.choice([line + ".", line, line, "CHAPTER IV", "é" * rng.randrange(1, 9)]))
        pieces.append(
            rng.choice(["\n"] * (1 if seed == 0 else 9) + ["\n\n", "\n\n\n", "\n\f\n", "\r\n"])
        )
    path = write(tmp_path / "a", "".join(pieces))
    whole = read_all(path, "prose", part_bytes=1 << 30)
    words = " ".join(sentence for document in whole for sentence in document).split()
    assert words == "".join(pieces).split()
    for part_bytes in [1, 2000, 5000, 10000]:
        parts = list_parts(str(path), "prose", part_bytes=part_bytes)
        assert len(parts) > 1
        assert [document for part in parts for document in read_documents(part)] == whole


def test_files_come_in_order_and_once(tmp_path):
    for name in "bac":
        write(tmp_path / f"{name}.txt", f"{name} 1\n{name} 2\n")
    names = f"{tmp_path}/b.txt, {tmp_path}/*.txt,,{tmp_path}/a.txt"
    assert [document[0] for document in read_all(names)] == ["b 1", "a 1", "c 1"]


def test_empty_files_are_skipped(tmp_path):
    write(tmp_path / "a.txt", "")
    write(tmp_path / "b.txt", " \n\n")
    write(tmp_path / "c.txt", LINES)
    assert read_all(tmp_path / "*.txt") == DOCUMENTS


def test_no_tensorflow_is_imported():
    code = "import sys, bert_tf.corpus.corpus; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Errors ---------------------------------------------------------------------------------------


def check_error(path, *fragments, form="auto"):
    """Asserts that reading raises one ValueError that names the file and says `fragments`."""
    with pytest.raises(ValueError) as caught:
        read_all(path, form)
    for fragment in (str(path), *fragments):
        assert fragment in str(caught.value)


def test_no_file_matches(tmp_path):
    check_error(tmp_path / "none*.txt", "input_file")
    check_error(tmp_path, f"{tmp_path}/*")
    with pytest.raises(ValueError, match="input_file.* tfds:"):
        list_parts(" , ")


@pytest.mark.parametrize("text", ["", "\n \n\n", " " * (1 << 17), json.dumps({"text": " "})])
def test_no_document(tmp_path, text):
    check_error(write(tmp_path / "a.txt", text), "document")


@pytest.mark.parametrize("compress", [pytest.param(bytes, marks=pytest.mark.slow), lzma.compress])
def test_not_utf8(tmp_path, compress):
    data = b"one\ntwo\n\n" * 50_000 + b"caf\xe9\n" + b"three\n" * 10
    path = write(tmp_path / "a.txt", compress(data))
    check_error(path, "line 150001", " 450003 ", "iconv -f CP1252")


def test_not_utf8_in_a_later_part(tmp_path):
    path = write(tmp_path / "a.txt", b"one\ntwo\n\n" * 1000 + b"caf\xe9\n")
    last = list_parts(str(path), part_bytes=500)[-1]
    with pytest.raises(ValueError, match=r"a\.txt, line 3001.* 9003 "):
        list(read_documents(last))


def test_not_json(tmp_path):
    good = json.dumps({"text": "good", "id": 1}) + "\n"
    check_error(write(tmp_path / "a", good * 3 + '{"text": \n'), "line 4", "JSON")
    check_error(write(tmp_path / "b", good + '{"body": "", "id": 2}'), "line 2", "['body', 'id']")
    check_error(write(tmp_path / "c", good + "[1]\n"), "line 2", "'text'", "list")
    check_error(write(tmp_path / "d", good + '{"text": 7}\n'), "line 2", "int")
    check_error(write(tmp_path / "f", good + '{"text": ' * 100_000), "line 2", "JSON")
    check_error(write(tmp_path / "e", '[\n{"text": "a"}\n]'), "jq -c")


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_damaged_compressed_file(tmp_path, compress):
    rng = random.Random(0)
    data = compress("".join(f"{rng.random()}\n" for _ in range(20_000)).encode())
    check_error(write(tmp_path / "cut", data[: len(data) // 2]), "compressed")
    if compress is not bz2.compress:  # which reports damage as an OSError
        middle = len(data) // 2
        check_error(
            write(tmp_path / "bad", data[:middle] + bytes(99) + data[middle + 99 :]), "compressed"
        )
    whole = list(read_documents(list_parts(str(write(tmp_path / "one", data)))[0]))
    # A file may have several parts, as of `cat a.xz b.xz`.
    (part,) = list_parts(str(write(tmp_path / "two", data + data)))
    assert sum(map(len, read_documents(part))) == 2 * sum(map(len, whole))
    check_error(write(tmp_path / "second", data + b"?" + data[1:]), "compressed")


def test_unreadable(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt", LINES)
    (part,) = list_parts(str(path))
    path.unlink()
    with pytest.raises(ValueError, match=rf"^{path} .*\[Errno 2\]"):
        list(read_documents(part))


def test_records_are_not_text(tmp_path):
    part = corpus.CorpusPart("a.tfrecord", "tfrecord")
    with pytest.raises(ValueError, match=r"a\.tfrecord.*'tfrecord'.*'jsonl'"):
        list(read_documents(part))
