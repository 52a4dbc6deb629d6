"""Records against TensorFlow's own writer, reader and protobuf classes; damaged files."""

import gzip
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.corpus import tfrecords
from bert_tf.corpus.tfrecords import RecordFiles, encode_examples
from tests.damaged import flip_a_bit


def parse(record: bytes) -> dict[str, list]:
    """Parses with protobuf's class."""
    example = tf.train.Example.FromString(record)
    return {
        name: list(value.float_list.value or value.int64_list.value)
        for name, value in example.features.feature.items()
    }


def make_records(
    num_examples: int, length: int = 8, predictions: int = 0, v2: bool = False
) -> list[bytes]:
    """Returns records written by TensorFlow's classes."""
    names = ["input_word_ids", "input_mask", "input_type_ids"] if v2 else []
    names = names or ["input_ids", "input_mask", "segment_ids"]
    sizes = dict.fromkeys(names, length) | {"next_sentence_labels": 1}
    if predictions:
        sizes |= {"masked_lm_positions": predictions, "masked_lm_ids": predictions}
    records = []
    for value in range(num_examples):
        example = tf.train.Example()
        for name, size in sizes.items():
            example.features.feature[name].int64_list.value.extend([value] * size)
        if predictions:
            weights = example.features.feature["masked_lm_weights"].float_list
            weights.value.extend([1.0] * predictions)
        records.append(example.SerializeToString())
    return records


@pytest.fixture
def path(tmp_path):
    """A file of ten records of 8 pieces, written by TensorFlow."""
    path = tmp_path / "ten.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in make_records(10):
            writer.write(record)
    return path


def test_examples_equal_protobufs():
    rng = np.random.default_rng(1)
    columns = {
        "ids": rng.integers(0, 30522, (50, 128)),
        "edges": np.tile([0, 127, 128, 16383, 16384, 2**31, 2**63 - 1, -1, -(2**63)], (50, 1)),
        "flags": rng.integers(0, 2, (50, 300)).astype(bool),
        "weights": rng.random((50, 7)).astype(np.float32),
        "label": rng.integers(0, 2, (50, 1)).astype(np.int32),
    }
    records = encode_examples(columns)
    for row, record in enumerate(records):
        assert parse(record) == {name: values[row].tolist() for name, values in columns.items()}


def test_bytes_worked_by_hand():
    assert tfrecords.encode_varints(np.array([[1, 300], [0, 0]])) == [b"\x01\xac\x02", b"\0\0"]
    # Example{1: Features{1: entry{1: "a", 2: Feature{3: Int64List{1: packed 5}}}}}
    expected = bytes.fromhex("0a0c 0a0a 0a0161 1205 1a03 0a0105")
    assert encode_examples({"a": np.array([[5]])}) == [expected]


@pytest.mark.parametrize("values", [np.zeros((2, 1)), np.zeros(3), np.array([["x"]] * 3)])
def test_wrong_arrays_are_refused(values):
    with pytest.raises(ValueError, match=r"\bb\b.*(?:\(2, 1\)|\(3,\)\}|<U1)"):
        encode_examples({"a": np.zeros((3, 1)), "b": values})


def test_tensorflow_reads_what_is_written(tmp_path):
    records = [b"", b"one", b"x" * 100_000]
    tfrecords.write_records(tmp_path / "a.tfrecord", records)
    dataset = tf.data.TFRecordDataset(str(tmp_path / "a.tfrecord"))
    assert list(dataset.as_numpy_iterator()) == records
    assert [p.name for p in tmp_path.iterdir()] == ["a.tfrecord"]


def test_a_failing_writer_leaves_no_file(tmp_path):
    with pytest.raises(KeyError), tfrecords.open_records(tmp_path / "a.tfrecord") as write:
        write(b"one")
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_any_record_is_read_at_any_time(path, tmp_path):
    second = tmp_path / "second.tfrecord"
    more = [f"record {n}".encode() for n in range(5)]
    tfrecords.write_records(second, more)
    records = RecordFiles([path, second])
    expected = make_records(10) + more
    assert len(records) == 15
    order = np.array([14, 0, 10, 9, 3, 3])
    assert records.read(order) == [expected[i] for i in order]
    assert records.locate(9) == f"record 9 of {path}"
    assert records.locate(10) == f"record 0 of {second}"


def test_files_are_listed_in_the_order_given(tmp_path):
    for name in ("b1", "b0", "a0"):
        (tmp_path / name).write_text(name)
    found = tfrecords.list_record_files(f"{tmp_path}/b*, {tmp_path}/a0")
    assert [p.name for p in found] == ["b0", "b1", "a0"]
    with pytest.raises(ValueError, match=r"'.*/c\*'"):
        tfrecords.list_record_files(f"{tmp_path}/c*")


def test_damaged_files_are_named(path, tmp_path):
    data = path.read_bytes()
    frame = len(data) // 10  # all records have one length

    def fails_to_open(content: bytes, message: str) -> None:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"(?s){message}") as raised:
            RecordFiles([path])
        assert str(path) in str(raised.value)

    fails_to_open(data[: 7 * frame + 30], "record 7 .* \\d+ bytes")
    fails_to_open(data[: 7 * frame + 5], "record 7 .* \\d+ bytes")
    fails_to_open(data[:-1], "record 9 .* \\d+ bytes")
    fails_to_open(
        data[: 2 * frame] + b"\xff" + data[2 * frame + 1 :], "length .*record 2 .*byte 266"
    )
    fails_to_open(b"plain text, not records", "length .*record 0 .*byte 0")
    fails_to_open(gzip.compress(data), "gunzip")
    fails_to_open(b"", "empty")
    with pytest.raises(ValueError, match="none.tfrecord"):
        RecordFiles([tmp_path / "none.tfrecord"])
    with pytest.raises(ValueError, match="TFRecord file"):
        RecordFiles([])


def test_corrupt_data_are_found_when_read(path):
    flip_a_bit(path, 4 * path.stat().st_size // 10 + 20)
    records = RecordFiles([path])
    records.read(np.array([0, 3, 5, 9]))
    with pytest.raises(ValueError, match=f"record 4 .*{path}"):
        records.read(np.array([3, 4]))


def test_many_files_raise_the_limit_of_open_files(tmp_path):
    """With a limit of 80 files, 100 are opened, unless the hard limit is 80 as well."""
    for number in range(100):
        tfrecords.write_records(tmp_path / f"{number:03d}", [b"record"])
    code = """
import pathlib, resource, sys
from bert_tf.corpus.tfrecords import RecordFiles
paths = sorted(pathlib.Path(sys.argv[1]).iterdir())
for hard in (1000, 80):
    resource.setrlimit(resource.RLIMIT_NOFILE, (80, hard))
    print(len(RecordFiles(paths)), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "100 180\n", done.stderr
    assert re.search(r"OSError: .* 100 TFRecord files.* 80 .*\(ulimit -n 356\)", done.stderr)
