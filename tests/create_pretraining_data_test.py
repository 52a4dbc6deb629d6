"""The program itself: flags in, files out."""

import concurrent.futures
import json
import re

import numpy as np
import pytest

from bert_tf.corpus.record_form import describe_records
from bert_tf.corpus.tfrecords import RecordFiles
from bert_tf.create_pretraining_data import list_output_files
from bert_tf.text.vocab import Vocab
from tests.programs import run, start

WRITTEN = re.compile(r"\d+/\d+ files")  # of the progress of making examples


@pytest.fixture
def folder(tmp_path):
    sentences = ["the cat sat .", "a dog ran away .", "it was late ."]
    text = "\n\n".join("\n".join(sentences * 4) for _ in range(6))
    (tmp_path / "text.txt").write_text(text)
    words = sorted({word for sentence in sentences for word in sentence.split()})
    Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words)).write(tmp_path / "vocab.txt")
    return tmp_path


def make(folder, *arguments, output="out/x.tfrecord", how=run):
    """Runs the program; returns (exit status, what it printed)."""
    defaults = {
        "input_file": folder / "text.txt",
        "vocab_file": folder / "vocab.txt",
        "output_file": ",".join(str(folder / name) for name in output.split(",")),
        "max_seq_length": 16,
    }
    flags = [f"--{name}={value}" for name, value in defaults.items()]
    done = how("create_pretraining_data", *flags, *arguments)
    printed = done.printed if how is run else done.communicate(timeout=300)[0]
    return done.returncode, printed


def test_writes_unmasked_examples_and_says_so(folder):
    status, printed = make(folder, "--num_shards=2", "--num_workers=1")
    assert status == 0, printed
    paths = [folder / f"out/x.tfrecord-0000{i}-of-00002" for i in range(2)]
    manifest = json.loads((folder / "out/x.tfrecord-00000-of-00002.manifest.json").read_text())
    assert [file["file"] for file in manifest["files"]] == [path.name for path in paths]
    records = RecordFiles(paths)
    form = describe_records(records)
    assert (form.is_masked, form.max_seq_length) == (False, 16)
    assert manifest["examples"] == len(records)
    assert f" {len(records):,} examples" in printed
    assert str(folder / "out/x.tfrecord-00000-of-00002.manifest.json") in printed
    assert not list((folder / "out").glob(".*"))  # nothing is left behind

    status, printed = make(folder, "--num_shards=2", "--num_workers=1")
    assert status == 0 and not WRITTEN.search(printed)
    static = ("--masking=static", "--dupe_factor=2", "--max_predictions_per_seq=3")
    status, printed = make(folder, "--num_shards=2", *static)
    assert status == 0 and WRITTEN.search(printed)
    form = describe_records(RecordFiles(paths))
    assert (form.is_masked, form.max_predictions_per_seq) == (True, 3)


@pytest.mark.slow
def test_two_equal_commands_at_once(folder):
    text = (folder / "text.txt").read_text()
    (folder / "text.txt").write_text("\n\n".join([text] * 200))
    flags = ("--num_shards=20", "--num_workers=1")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda _: make(folder, *flags, how=start), range(3)))
    assert [status for status, _ in results] == [0, 0, 0], results
    assert sum(bool(WRITTEN.search(printed)) for _, printed in results) == 1
    assert not list((folder / "out").glob(".*"))


def test_google_identical_deals_examples_in_turn(folder):
    arguments = ("--google_identical", "--dupe_factor=3")
    assert make(folder, "--num_workers=1")[0] == 0
    assert list((folder / "out").glob("*manifest*"))  # which says what the next command replaces
    assert make(folder, *arguments, "--masking=static", "--input_format=lines")[0] == 0
    assert not list((folder / "out").glob("*manifest*"))
    status, printed = make(folder, *arguments, output="a,b")
    assert status == 0, printed
    together, *two = [RecordFiles([folder / name]) for name in ("out/x.tfrecord", "a", "b")]
    whole, (a, b) = (
        together.read(np.arange(len(together))),
        [files.read(np.arange(len(files))) for files in two],
    )
    assert whole[::2] == a and whole[1::2] == b
    assert f" {len(whole)} examples" in printed


def test_bad_flags(folder):
    cases = [
        (("--input_file=",), "--input_file "),
        (("--vocab_file=",), "--vocab_file .*bert_tf.build_vocab"),
        (("--input_file=/nowhere/*",), "input_file.*'/nowhere/\\*'"),
        (("--max_seq_length=4",), "max_seq_length"),
        (("--num_shards=9",), "6 documents .*9 files"),
        (("--google_identical", "--use_next_sentence=false"), "use_next_sentence=false .*google"),
        (("--google_identical", "--input_format=prose"), "--input_format=prose .*google"),
        (("--google_identical", "--masking=dynamic"), "--masking=dynamic .*google"),
        (("--google_identical", "--masking=tf_text"), "--masking=tf_text"),
        (("--google_identical", "--deduplicate=exact"), "--deduplicate=exact .*google"),
        (("--google_identical", "--runner=beam"), "--runner=beam .*google"),
        (("--google_identical", "--span_length=3"), "--span_length=3.0 .*google"),
        (("--google_identical", "--random_share=0"), "--random_share=0.0 .*google"),
        (("--max_predictions_per_seq=3",), "_per_seq=3 .*--masking=dynamic"),
        (("--dupe_factor=5",), "--dupe_factor=5 .*--masking=dynamic"),
        (("--sentence_order", "--nouse_next_sentence"), "sentence_order .*use_next_sentence"),
    ]
    for arguments, message in cases:
        status, printed = make(folder, *arguments, "--num_workers=1")
        assert status == 1 and re.search(message, printed), arguments
        assert "Traceback" not in printed, printed


def test_output_files():
    names = [path.name for path in list_output_files("d/x", 3)]
    assert names == [f"x-0000{i}-of-00003" for i in range(3)]
    assert list(map(str, list_output_files("a, b", 0))) == ["a", "b"]
    with pytest.raises(ValueError, match=r"--num_shards=2 .*--output_file.*'a', 'b'"):
        list_output_files("a,b", 2)
    with pytest.raises(ValueError, match=r"--output_file.*'a', 'a'"):
        list_output_files("a,a", 0)


def test_the_language_of_the_sentences(folder):
    record = json.dumps({"text": "The cat. 3. It was late. A dog ran."})
    (folder / "text.txt").write_text(f"{record}\n" * 6)
    status, printed = make(folder, "--sentence_language=xx", "--num_workers=1")
    assert status == 1
    assert printed.count("ERROR") == 1 and "--sentence_language=xx" in printed
    assert not (folder / "out").exists()
    status, printed = make(folder, "--sentence_language=de", "--num_workers=1")
    assert status == 0, printed
    # The same input in another language is made again.
    status, printed = make(folder, "--sentence_language=de", "--num_workers=1")
    assert status == 0 and not WRITTEN.search(printed)
    status, printed = make(folder, "--num_workers=1")
    assert status == 0 and WRITTEN.search(printed)
