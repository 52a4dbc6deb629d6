"""From text to files with a manifest, and from the files to the batches of several hosts."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.corpus import manifests
from bert_tf.corpus.example_files import describe, manifest_path, run_report, write_examples
from bert_tf.corpus.mapping import InputShard
from bert_tf.corpus.pipeline import MaskedBatches
from bert_tf.corpus.preparation import prepare_pretraining_data
from bert_tf.corpus.tfrecords import RecordFiles
from bert_tf.text.vocab import Vocab
from tests.damaged import flip_a_bit

MASKS = MaskingConfig(masking="static", max_predictions_per_seq=4)
DIGITS = "0123456789"


@pytest.fixture
def data(tmp_path):
    """40 documents, each told by its words; the last eight are the first eight again."""
    texts = ["\n".join(f"w {d} x {s} ." for s in range(10)) for d in (*range(32), *range(8))]
    (tmp_path / "text.txt").write_text("\n\n".join(texts))
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    pieces = [*"wx.", *DIGITS, *(f"##{digit}" for digit in DIGITS)]
    Vocab((*special, *pieces)).write(tmp_path / "vocab.txt")
    return DataConfig(
        input_file=f"{tmp_path}/text.txt",
        vocab_file=f"{tmp_path}/vocab.txt",
        max_seq_length=32,
        num_workers=1,
        dupe_factor=3,
        eval_fraction=0.0,
    )


def write(data, folder="out", count=4):
    root = pathlib.Path(data.vocab_file).parent / folder
    paths = [root / f"x-{number}" for number in range(count)]
    return paths, write_examples(paths, data, MASKS, do_lower_case=True)


def use(data, pattern="out/x-?", **changes):
    """Prepares a training on the files."""
    options = {"vocab_size": 100, "do_lower_case": True, "cache_dir": "", "do_eval": False}
    root = pathlib.Path(data.vocab_file).parent
    data = dataclasses.replace(data, input_file=f"{root}/{pattern}")
    data = dataclasses.replace(data, vocab_file=changes.pop("vocab_file", data.vocab_file))
    return prepare_pretraining_data(data, MASKS, **{**options, **changes})


def test_hosts_share_an_epoch_without_overlap(data):
    paths, manifest = write(data)
    records, vocab = RecordFiles(use(data).train_files), Vocab.read(data.vocab_file)
    assert len(records) == manifest["examples"]
    hosts, size = 3, 6
    steps = len(records) // size
    seen = []
    for host in range(hosts):
        batches = MaskedBatches(records, vocab, MASKS, max_seq_length=32, seed=1).training(
            size, num_steps=steps, shard=InputShard(host, hosts)
        )
        names = ("input_word_ids", "masked_lm_positions", "masked_lm_ids")
        rows = []
        for batch in batches.as_numpy_iterator():
            columns = [map(bytes, batch[name]) for name in names]
            rows += map(b"".join, zip(*columns, strict=True))
        assert len(rows) == steps * size // hosts
        seen += rows
    # Every example is another one: only then does a repetition tell of an overlap.
    everything = records.read(np.arange(len(records)))
    assert len(set(everything)) > 0.95 * len(everything)
    assert len(seen) - len(set(seen)) <= len(everything) - len(set(everything))
    assert len(everything) - len(seen) < size


def test_duplicates_are_left_out_and_counted(data):
    _, whole = write(data, "whole")
    _, single = write(dataclasses.replace(data, deduplicate="exact"), "single")
    _, near = write(dataclasses.replace(data, deduplicate="near"), "near")
    assert (whole["duplicates"], single["duplicates"], near["duplicates"]) == (0, 8, 8)
    assert [sum(f["documents"] for f in m["files"]) for m in (whole, single)] == [40, 32]
    assert [m["corpus"]["documents"] for m in (whole, single)] == [40, 40]
    assert single["files"] == near["files"] != whole["files"]


def test_training_from_text_leaves_duplicates_out_before_it_holds_documents_out(data, tmp_path):
    data = dataclasses.replace(data, deduplicate="exact", eval_fraction=0.2)
    prepared = prepare_pretraining_data(
        data, MASKS, vocab_size=100, do_lower_case=True, cache_dir=f"{tmp_path}/cache"
    )
    documents = 0
    for files in (prepared.train_files, prepared.eval_files):
        manifest = json.loads((pathlib.Path(files[0]).parent / "manifest.json").read_text())
        documents += sum(file["documents"] for file in manifest["files"])
    assert documents == 32


def test_whole_files_are_used(data):
    paths, _ = write(data)
    assert use(data).train_files == [str(path) for path in paths]
    assert use(data, "out/x-[01]").train_files == [str(path) for path in paths[:2]]
    # A vocabulary with other line ends is the same one.
    text = pathlib.Path(data.vocab_file).read_text()
    other = pathlib.Path(data.vocab_file).with_name("windows.txt")
    other.write_text(text.replace("\n", "\r\n"))
    use(data, vocab_file=str(other))


def damage(paths, how):
    if how == "missing":
        paths[3].unlink()
    elif how == "truncated":
        paths[1].write_bytes(paths[1].read_bytes()[:-1])
    else:  # one flipped bit: sizes are as before
        flip_a_bit(paths[2])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", r"x-3 .*x-0\.manifest\.json"),
        ("truncated", r"x-1 .*\d+ .*\d+ .*x-0\.manifest\.json"),
        ("changed", r"x-2 .*SHA-256.*x-0\.manifest\.json"),
    ],
)
def test_a_file_that_is_not_as_made_is_named(data, how, message):
    paths, _ = write(data)
    damage(paths, how)
    with pytest.raises(ValueError, match=message):
        use(data, "out/x-[012]")
    manifest_path(paths).unlink()  # what the message offers
    use(data, "out/x-[012]")


def test_files_that_are_made_already_are_compared_with_the_manifest(data, caplog):
    paths, manifest = write(data)
    contents = [path.read_bytes() for path in paths]
    times = [path.stat().st_mtime_ns for path in paths]
    assert write(data)[1] == manifest
    assert [path.stat().st_mtime_ns for path in paths] == times
    damage(paths, "changed")
    assert write(data)[1]["files"] == manifest["files"]
    assert [path.read_bytes() for path in paths] == contents
    (line,) = [line for line in caplog.text.splitlines() if "x-2" in line]
    assert "x-1" not in line


def test_pieces_that_no_pair_can_hold_are_counted(data, tmp_path, caplog):
    """Two lines without an end of a sentence, of which a pair holds 29 pieces at most."""
    (tmp_path / "long.txt").write_text("w " * 1000 + "\n\n" + "x " * 500 + "\n")
    data = dataclasses.replace(
        data, input_file=f"{tmp_path}/long.txt", input_format="lines", short_seq_prob=0.0
    )
    write(data, count=1)
    assert "1,442 of 1,500" in caplog.text and "--input_format" in caplog.text
    caplog.clear()
    _, manifest = write(dataclasses.replace(data, use_next_sentence=False), "all", count=1)
    assert "--input_format" not in caplog.text and manifest["tokens"] > 1500


def test_swapped_pairs_are_other_examples(data):
    """They are made anew in the place of random pairs, and those of before keep their key."""
    paths, random = write(data, count=1)
    before = paths[0].read_bytes()
    _, swapped = write(dataclasses.replace(data, sentence_order=True), count=1)
    assert swapped["key"] != random["key"] and paths[0].read_bytes() != before
    assert "sentence_order" not in random["parameters"]
    assert write(data, count=1)[1]["key"] == random["key"] and paths[0].read_bytes() == before


def test_large_files_are_compared_by_size(data, monkeypatch):
    paths, manifest = write(data)
    damage(paths, "changed")
    monkeypatch.setattr(manifests, "HASHED_BYTES", manifest["bytes"] - 1)
    use(data)
    damage(paths, "truncated")
    with pytest.raises(ValueError, match=r"x-1 .*x-0\.manifest"):
        use(data)


def test_another_vocabulary_or_casing_is_named(data, tmp_path):
    write(data)
    tokens = list(Vocab.read(data.vocab_file).tokens)
    tokens[5], tokens[6] = tokens[6], tokens[5]
    Vocab(tuple(tokens)).write(tmp_path / "other.txt")
    with pytest.raises(ValueError, match=r"x-0\.manifest\.json.*other\.txt.*SHA-256.*--vocab_file"):
        use(data, vocab_file=f"{tmp_path}/other.txt")
    with pytest.raises(ValueError, match=r"x-0\.manifest\.json.*--do_lower_case=true"):
        use(data, do_lower_case=False)


@pytest.mark.parametrize(
    ("made", "wanted", "name"),
    [
        ({"use_next_sentence": False}, {}, "use_next_sentence=false"),
        ({}, {"sentence_order": True}, "sentence_order=false"),
        ({"sentence_order": True}, {}, "sentence_order=true"),
        ({"sentence_order": True}, {"use_next_sentence": False}, ""),
    ],
)
def test_records_whose_labels_mean_something_else_are_named(data, made, wanted, name):
    write(dataclasses.replace(data, **made))
    given = dataclasses.replace(data, **wanted)
    if not name:
        use(given)
        return
    with pytest.raises(ValueError, match=f"manifest.json .*--{name}, .*--{name}, "):
        use(given)


def test_records_for_evaluation_are_checked_too(data, tmp_path):
    paths, _ = write(data, "out")
    damage(paths, "truncated")
    text = dataclasses.replace(data, eval_file=f"{tmp_path}/out/x-?")
    with pytest.raises(ValueError, match=r"x-1 .*x-0\.manifest"):
        use(text, "text.txt", cache_dir=f"{tmp_path}/cache", do_eval=True)


def test_files_in_two_folders(data, tmp_path):
    """The manifest stands beside the first file and is compared with the files beside it."""
    paths = [tmp_path / "a" / "x", tmp_path / "b" / "x"]
    write_examples(paths, data, MASKS, do_lower_case=True)
    use(data, "?/x")
    paths[0].write_bytes(paths[0].read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"a/x .*\d+ .*a/x\.manifest\.json"):
        use(data, "?/x")


def test_the_report_of_a_run(data):
    report = write(data)[1]["run"]
    assert report["runner"] == "local" and not report["is_resumed"]
    assert report["documents/s"] > report["MB/s"] > 0 and report["examples/s"] > 0
    assert 20 < report["peak_memory_mb"] < 20_000
    counts = {"documents": 40, "input_mb": 5.0, "examples": 100}
    report = run_report(-1e9, counts, runner="beam", is_resumed=True)
    assert "examples/s" not in report
    assert "/s" not in describe(report)
