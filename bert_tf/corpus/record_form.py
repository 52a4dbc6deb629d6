"""Describes the form of records in TFRecord files, and finds records that differ.

Reading checks only the first record of each file, and TensorFlow's parser does not name the record
at which it fails. So after a failure all records are searched.

Reference: tensorflow/core/example/example.proto.
"""

import dataclasses

import numpy as np
from absl import logging
from tensorflow.core.example import example_pb2

from bert_tf.corpus import features
from bert_tf.corpus.tfrecords import RecordFiles


@dataclasses.dataclass(frozen=True)
class RecordForm:
    """The form of the records of some files."""

    is_masked: bool  # whether they have static masks, the three masked_lm_ features
    file_names: dict[str, str]  # name of each feature in the library -> its name in the files
    max_seq_length: int  # T
    max_predictions_per_seq: int  # P; 0 for unmasked records


def describe_records(records: RecordFiles) -> RecordForm:
    """Looks at the first record of each file.

    Raises:
      ValueError: if a feature is missing, lists have different lengths or the files differ in form.
    """
    first_records = {}
    for path, index in zip(records.paths, records.file_starts[:-1], strict=True):
        first_records[path] = _describe_record(records, int(index))
    (first_path, first), *others = first_records.items()
    for path, form in others:
        if form != first:
            raise ValueError(
                f"The record files differ in form: {first_path} holds {first}, {path} holds {form}."
            )
    return first


def _describe_record(records: RecordFiles, index: int) -> RecordForm:
    lengths, kinds = _feature_sizes(records, index)
    is_masked = "masked_lm_ids" in lengths
    file_names = {}
    # The lengths that occur on each axis; a second one is an error.
    axes = {"": {1}, "T": set(), "P": set()}
    for feature in features.STORED[is_masked]:
        # The name of google-research/bert, or of the Model Garden.
        name = feature.file_name if feature.file_name in lengths else feature.name
        if name not in lengths:
            raise ValueError(
                f"Feature {feature.file_name} is missing in {records.locate(index)}; "
                f"it holds {sorted(lengths)}. Make the records with create_pretraining_data."
            )
        # An empty list shows no type.
        if lengths[name] and kinds[name] != feature.file_dtype:
            raise ValueError(
                f"Feature {name} holds {kinds[name].__name__} in {records.locate(index)}, expected "
                f"{feature.file_dtype.__name__}. Make the records with create_pretraining_data."
            )
        file_names[feature.name] = name
        axes[feature.axis].add(lengths[name])
    if any(len(sizes) > 1 for sizes in axes.values()):
        raise ValueError(f"Different lengths of features in {records.locate(index)}: {lengths}.")
    return RecordForm(is_masked, file_names, axes["T"].pop(), (axes["P"] or {0}).pop())


def _feature_sizes(records: RecordFiles, index: int) -> tuple[dict[str, int], dict[str, type]]:
    """Returns the length and the type of each list of one record."""
    (record,) = records.read(np.array([index]))
    try:
        example = example_pb2.Example.FromString(record)
    except Exception as error:  # DecodeError: its package, protobuf, is TensorFlow's matter
        raise ValueError(
            f"No tf.train.Example in {records.locate(index)} ({error}). Make the "
            "records with create_pretraining_data."
        ) from None
    lengths: dict[str, int] = {}
    kinds: dict[str, type] = {}
    for name, value in example.features.feature.items():
        # A feature has one of the two lists; the other one is empty.
        lengths[name] = len(value.float_list.value or value.int64_list.value)
        kinds[name] = np.float32 if value.float_list.value else np.int64
    return lengths, kinds


def find_fault(records: RecordFiles) -> None:
    """Reads all records again, to name the one at which a reader failed.

    Raises:
      ValueError: naming the first record that is corrupt, is not an Example, lacks a feature, or
        differs in form from record 0.
    """
    logging.info("A record cannot be read; searching for it among %d.", len(records))
    first = dataclasses.asdict(_describe_record(records, 0))
    for index in range(1, len(records)):
        form = dataclasses.asdict(_describe_record(records, index))
        if form != first:
            received, expected = (
                ", ".join(f"{name} {one[name]}" for name in one if form[name] != first[name])
                for one in (form, first)
            )
            raise ValueError(
                f"Another form in {records.locate(index)}: received {received}; expected "
                f"{expected}, as in {records.locate(0)}. Leave its file out, or make all records "
                "with the same flags of create_pretraining_data."
            )


def check_form(
    records: RecordFiles, form: RecordForm, max_seq_length: int, max_predictions_per_seq: int
) -> None:
    """Checks the records' T and P against the configuration.

    Raises:
      ValueError: naming the flag to change.
    """
    wanted = {"max_seq_length": max_seq_length}
    if form.is_masked:
        wanted["max_predictions_per_seq"] = max_predictions_per_seq
    for name, expected in wanted.items():
        received = getattr(form, name)
        if received != expected:
            raise ValueError(
                f"Records of {records.paths[0]} have {name} {received}, but the configuration has "
                f"{expected}. Pass --{name}={received}, or make the records again with {expected}."
            )
