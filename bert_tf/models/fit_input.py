"""Input of Keras' `fit`: the validation split, and the number of steps in an epoch."""

import dataclasses
import math
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from bert_tf.examples.columns import read_column


@dataclasses.dataclass
class FitArguments:
    """The arguments of `fit` that define the training data; see `TextFitMixin.fit`."""

    x: Any
    y: Any
    batch_size: int | None
    validation_split: float
    validation_data: Any
    shuffle: bool
    class_weight: Any
    sample_weight: Any
    initial_epoch: int
    steps_per_epoch: int | None

    def split_validation(self, is_one_column: bool) -> None:
        """Moves the share `validation_split` of raw input to `validation_data`, if there is none.

        Args:
          is_one_column: whether a tuple is a column of examples, not a tuple of columns.

        Raises:
          ValueError: if one of the two parts is empty.
        """
        if not self.validation_split or self.validation_data is not None:
            return
        x = list(self.x) if is_one_column and isinstance(self.x, tuple) else self.x
        parts = split_off(x, self.y, self.sample_weight, self.validation_split)
        self.x, self.y, self.sample_weight, self.validation_data = parts


@dataclasses.dataclass
class FitInput:
    """Input for Keras' own `fit`.

    Attributes:
      data: a dataset, a stream or arrays.
      options: other arguments of Keras' `fit`.
      batch_size: examples per step.
      num_rows: examples of an epoch; 0: not known.
      validation_data: raw input or what Keras takes; None without any.
    """

    data: Any
    options: dict[str, Any]
    batch_size: int
    num_rows: int
    validation_data: Any

    @property
    def steps_per_epoch(self) -> int:
        """Batches of an epoch.

        Raises:
          ValueError: if they have no end.
        """
        validation_split = self.options.get("validation_split", 0.0)
        given = self.options["steps_per_epoch"]
        return given or count_steps(self.data, self.batch_size, validation_split)


def check_is_alone(**others: Any) -> None:
    """Raises ValueError for arguments that a dataset has in its elements."""
    for name, value in others.items():
        if value is not None:
            raise ValueError(
                f"fit: received {name} with a dataset; give a dataset of (x, y) or (x, y, "
                "sample_weight), and validation_data."
            )


def split_off(x: Any, y: Any, weights: Any, share: float) -> tuple[Any, Any, Any, Any]:
    """Returns all but the last part of the input, and that part as validation data.

    Raises:
      ValueError: if one of the two is empty.
    """
    is_columns = isinstance(x, tuple) and not isinstance(x[0], str | bytes)
    columns = [read_column(c, "x") for c in x] if is_columns else [read_column(x, "x")]
    count = len(columns[0])
    first = int(count * (1.0 - share))
    if not 0 < first < count:
        raise ValueError(f"validation_split={share} of {count} texts leaves one part empty.")
    is_whole = y is None or getattr(y, "ndim", 1) == 2  # A matrix stays one.
    labels = y if is_whole else read_column(y, "y")

    def part(chosen: slice) -> list[Any]:
        inputs = tuple(column[chosen] for column in columns)
        return [inputs if is_columns else inputs[0], None if y is None else labels[chosen]]

    given = None if weights is None else list(weights)
    later = part(slice(first, None)) + ([] if given is None else [given[first:]])
    return *part(slice(0, first)), given and given[:first], tuple(later)


def counted(data: tf.data.Dataset, steps_per_epoch: int | None) -> tf.data.Dataset:
    """Returns a dataset that says how many batches it has, for which it may be gone through once.

    A schedule needs the number. Where it is given nothing is counted.
    """
    if steps_per_epoch or data.cardinality() != tf.data.UNKNOWN_CARDINALITY:
        return data
    logging.info("Counting the batches of the dataset, whose number is unknown.")
    return data.apply(tf.data.experimental.assert_cardinality(sum(1 for _ in data)))


def count_steps(data: Any, batch_size: int, validation_split: float = 0.0) -> int:
    """Returns the batches of an epoch of what Keras trains on.

    Args:
      data: a dataset, or arrays.
      batch_size: of arrays.
      validation_split: share of arrays that is held out, as Keras takes it.

    Raises:
      ValueError: if that has no end.
    """
    if isinstance(data, tf.data.Dataset):
        if data.cardinality() != tf.data.INFINITE_CARDINALITY:
            return int(data.cardinality())
    elif isinstance(data, keras.utils.PyDataset):
        return int(data.num_batches or 1)
    elif not hasattr(data, "__next__"):
        count = math.floor(len(tf.nest.flatten(data)[0]) * (1.0 - validation_split))
        return -(-count // batch_size)
    if hasattr(data, "__next__"):
        raise ValueError("The number of batches of a generator is unknown: give steps_per_epoch.")
    raise ValueError("The dataset is infinite: give steps_per_epoch.")
