"""The form of records, and the record that has another one or is damaged."""

import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.corpus.record_form import check_form, describe_records, find_fault
from bert_tf.corpus.tfrecords import RecordFiles, encode_examples, write_records
from tests.corpus.tfrecords_test import make_records
from tests.damaged import flip_a_bit


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("predictions", [0, 3])
def test_form_is_seen_in_the_first_record(tmp_path, predictions, v2):
    write_records(tmp_path / "a", make_records(2, 8, predictions, v2))
    form = describe_records(RecordFiles([tmp_path / "a"]))
    found = (form.is_masked, form.max_seq_length, form.max_predictions_per_seq)
    assert found == (predictions > 0, 8, predictions)
    assert form.file_names["input_word_ids"] == ("input_word_ids" if v2 else "input_ids")
    assert form.file_names["input_type_ids"] == ("input_type_ids" if v2 else "segment_ids")
    assert ("masked_lm_ids" in form.file_names) == (predictions > 0)


def test_wrong_forms_are_refused(tmp_path):
    records = RecordFiles([_write(tmp_path / "masked", make_records(2, 8, predictions=3))])
    form = describe_records(records)
    check_form(records, form, 8, 3)
    with pytest.raises(ValueError, match="masked .*max_seq_length 8, .*128.*--max_seq_length=8"):
        check_form(records, form, 128, 3)
    with pytest.raises(ValueError, match="max_predictions_per_seq 3, .* 20"):
        check_form(records, form, 8, 20)

    mixed = [tmp_path / "masked", _write(tmp_path / "unmasked", make_records(2, 8))]
    with pytest.raises(ValueError, match="/masked .*/unmasked "):
        describe_records(RecordFiles(mixed))
    _write(tmp_path / "odd", encode_examples({"input_ids": np.ones((1, 4), int)}))
    with pytest.raises(ValueError, match="input_mask.*record 0 .*/odd"):
        describe_records(RecordFiles([tmp_path / "odd"]))
    names = ("input_ids", "input_mask", "segment_ids", "next_sentence_labels")
    sizes = zip(names, (4, 5, 4, 1), strict=True)
    uneven = {name: np.ones((1, size), int) for name, size in sizes}
    _write(tmp_path / "uneven", encode_examples(uneven))
    with pytest.raises(ValueError, match="record 0 .*/uneven.*'input_mask': 5"):
        describe_records(RecordFiles([tmp_path / "uneven"]))


def _write(path, records):
    write_records(path, records)
    return path


def wrong_type():
    """Returns a record whose input_mask is of floats."""
    example = tf.train.Example.FromString(make_records(1)[0])
    example.features.feature["input_mask"].float_list.value.extend([1.0] * 8)
    return example.SerializeToString()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (make_records(1, 12)[0], r"max_seq_length 12; .*max_seq_length 8, .*record 0 .*good"),
        (make_records(1, 8, predictions=3)[0], "is_masked True.*is_masked False"),
        (make_records(1, 8, v2=True)[0], "file_names .*'input_word_ids'.*file_names .*'input_ids'"),
        (b"no Example", "tf.train.Example"),
        (encode_examples({"input_ids": np.ones((1, 8), int)})[0], "input_mask"),
        (wrong_type(), "input_mask .*float32 .*int64"),
    ],
)
def test_a_record_of_another_form_is_found(tmp_path, record, message):
    good = make_records(5)
    paths = [_write(tmp_path / "good", good), _write(tmp_path / "bad", [*good, record, *good])]
    describe_records(RecordFiles(paths))  # sees the first records alone
    with pytest.raises(ValueError, match=message) as raised:
        find_fault(RecordFiles(paths))
    assert re.search(f"record 5 .*{paths[1]}", str(raised.value))
    find_fault(RecordFiles(paths[:1]))


def test_a_corrupt_record_is_found(tmp_path):
    path = _write(tmp_path / "a", make_records(5))
    flip_a_bit(path)  # in the middle of record 2
    with pytest.raises(ValueError, match=f"record 2 .*{path}"):
        find_fault(RecordFiles([path]))


def test_records_without_an_example_are_refused_at_the_start(tmp_path):
    path = _write(tmp_path / "a", [b"\xff\xff no Example"])
    with pytest.raises(ValueError, match=f"tf.train.Example .*record 0 .*{path}"):
        describe_records(RecordFiles([path]))
