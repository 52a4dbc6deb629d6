"""Texts of a TensorFlow Datasets data set; no other reader of raw text imports TensorFlow."""

import importlib.util
import re
from collections.abc import Iterator
from typing import Any

from absl import logging

from bert_tf.config.config_flags import flags_naming
from bert_tf.system.fetching import fetching

_NAME = re.compile(r"[a-z][a-z0-9_]*(/[\w.\-]+)*(:[\w\[\]%:+\-]+)?")


def is_dataset_name(name: str) -> bool:
    """Returns whether `name` (NAME or NAME/CONFIG, optionally with :SPLIT) is a known data set."""
    if not _NAME.fullmatch(name) or importlib.util.find_spec("tensorflow_datasets") is None:
        return False
    known = _import_datasets().list_builders(with_community_datasets=False)  # Without a network.
    return name.split(":")[0].split("/")[0] in known


def list_dataset_parts(name: str, part_bytes: int) -> list[tuple[str, int, int]]:
    """Prepares a data set, downloading it if necessary, and splits it into ranges of examples.

    `name` is NAME or NAME/CONFIG, optionally with :SPLIT (`train`); a part has about `part_bytes`.

    Returns:
      (NAME:SPLIT, first example, past the last example) of each part.

    Raises:
      ValueError: if there is no such data set or split, if it cannot be prepared, or if
        tensorflow_datasets is missing.
    """
    name, _, split = name.partition(":")
    split = split or "train"
    tfds = _import_datasets()
    asked_by = flags_naming(f"tfds:{name}")
    logging.info("tfds:%s%s: preparing; it is downloaded the first time.", name, asked_by)
    try:
        builder = tfds.builder(name)
    except tfds.core.DatasetNotFoundError as error:
        raise ValueError(f"tfds:{name}{asked_by} is no TensorFlow dataset: {error}") from None
    try:
        with fetching():
            builder.download_and_prepare()
    except Exception as error:  # Third-party builders may raise anything.
        raise ValueError(
            f"tfds:{name}{asked_by} could not be prepared ({type(error).__name__}: {error}). Give "
            "files of your own there; or, where there is no network or a package is missing, "
            "prepare it elsewhere and set TFDS_DATA_DIR."
        ) from error
    if split not in builder.info.splits:
        raise ValueError(
            f"tfds:{name} has no split {split!r}; it has {sorted(builder.info.splits)}."
        )
    info = builder.info.splits[split]
    # Examples per part, if all have the average size.
    step = max(1, info.num_examples * part_bytes // max(1, info.num_bytes))
    starts = range(0, info.num_examples, step)
    return [(f"{name}:{split}", at, min(at + step, info.num_examples)) for at in starts]


def describe_dataset(name: str) -> list[Any]:
    """Identifies the examples of NAME:SPLIT, which must be prepared.

    Returns the full name with the version, the folder, the size in bytes, and the number of
    examples of each shard.
    """
    name, _, split = name.partition(":")
    builder = _import_datasets().builder(name)
    info = builder.info.splits[split]
    return [builder.info.full_name, str(builder.data_dir), info.num_bytes, *info.shard_lengths]


def read_dataset(name: str, start: int, stop: int, text_field: str) -> Iterator[str]:
    """Yields the texts of the examples [start, stop) of NAME:SPLIT.

    Raises:
      ValueError: if the examples lack the field or it does not hold one string, or it is not UTF-8.
    """
    tfds = _import_datasets()
    name, _, split = name.partition(":")
    # In the stored order, so that documents have the same numbers in each run.
    examples = tfds.load(name, split=f"{split}[{start}:{stop}]", shuffle_files=False)
    for number, example in enumerate(tfds.as_numpy(examples), start):
        if text_field not in example:
            raise ValueError(
                f"tfds:{name} has no field {text_field!r} but {sorted(example)}; set text_field."
            )
        text = example[text_field]
        # TensorFlow's strings are bytes in Python.
        if not isinstance(text, bytes):
            kind = type(text).__name__
            raise ValueError(f"tfds:{name}: field {text_field!r} holds {kind}, expected a string.")
        try:
            yield text.decode("utf8")
        except UnicodeDecodeError as error:
            raise ValueError(f"tfds:{name}, example {number} is not UTF-8: {error}.") from None


def _import_datasets() -> Any:
    try:
        import tensorflow_datasets
    except ImportError as error:
        raise ValueError(
            f"TensorFlow Datasets cannot be imported ({error}); install it: "
            "pip install tensorflow-datasets importlib_resources"
        ) from error
    return tensorflow_datasets
