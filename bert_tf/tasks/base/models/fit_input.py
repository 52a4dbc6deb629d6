"""Input of Keras' `fit`: the validation split, and the number of steps in an epoch."""

import dataclasses
import math
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from absl import logging

from bert_tf.system.type_names import ClassWeight, Column, KerasInput, Labels
from bert_tf.tasks.base.examples.columns import read_column
from bert_tf.tasks.base.examples.known_texts import KnownTexts

# Inputs and labels of the training part, its weights, and the validation part (x, y[, weights]).
SplitParts = tuple[Column, Labels | None, Column | None, tuple[Any, ...]]


class FitArguments(NamedTuple):
    """The arguments of `fit` that define the data; see `TextModel.fit`."""

    x: KerasInput | None
    y: Labels | None
    sample_weight: Column | None
    class_weight: ClassWeight | None
    batch_size: int | None
    shuffle: bool
    initial_epoch: int
    steps_per_epoch: int | None
    validation_data: KerasInput | None
    validation_split: float
    validation_steps: int | None
    validation_batch_size: int | None


@dataclasses.dataclass
class FitInput:
    """Input for Keras' own `fit`."""

    data: KerasInput  # a dataset, a stream or arrays
    options: dict[str, Any]  # other arguments of Keras' `fit`
    batch_size: int  # examples per step
    num_rows: int  # examples of an epoch; 0: unknown
    validation_data: KerasInput | None  # raw input, or input for Keras; None without any
    has_steps: bool  # whether `fit` was given the number of steps
    # The training texts, if there are validation data to compare with them.
    known_texts: KnownTexts | None = None

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in an epoch."""
        validation_split = self.options.get("validation_split", 0.0)
        given = self.options["steps_per_epoch"]
        return given or count_steps(self.data, self.batch_size, validation_split)


def check_is_alone(**others: object) -> None:
    """Raises ValueError for arguments of `fit` that the elements of a dataset already hold."""
    for name, value in others.items():
        if value is not None:
            raise ValueError(
                f"fit: received {name} with a dataset; give a dataset of (x, y) or (x, y, "
                "sample_weight), and validation_data."
            )


def split_off(x: Column, y: Labels | None, weights: Column | None, share: float) -> SplitParts:
    """Splits the last examples off as validation data."""
    is_columns = isinstance(x, tuple) and not isinstance(x[0], str | bytes)
    columns = [read_column(c, "x") for c in x] if is_columns else [read_column(x, "x")]
    count = len(columns[0])
    # Rounded like Keras' `validation_split`.
    first = int(count * (1.0 - share))
    if not 0 < first < count:
        raise ValueError(f"validation_split={share} of {count} texts leaves one part empty.")
    labels: Any = y
    if y is not None and getattr(y, "ndim", 1) != 2:  # A matrix is sliced as it is.
        labels = read_column(y, "y")

    def part(chosen: slice) -> tuple[Any, Any]:
        inputs = tuple(column[chosen] for column in columns)
        return inputs if is_columns else inputs[0], None if y is None else labels[chosen]

    training_x, training_y = part(slice(0, first))
    validation = part(slice(first, None))
    if weights is None:
        return training_x, training_y, None, validation
    all_weights = list(weights)
    return training_x, training_y, all_weights[:first], (*validation, all_weights[first:])


def with_known_size(data: tf.data.Dataset, steps_per_epoch: int | None) -> tf.data.Dataset:
    """Returns a dataset whose number of batches is known, as the schedule of the rate needs it.

    One of unknown size is iterated once to count them, unless `steps_per_epoch` is given.
    """
    if steps_per_epoch or data.cardinality() != tf.data.UNKNOWN_CARDINALITY:
        return data
    logging.info("Counting the batches of the dataset, whose number is unknown.")
    return data.apply(tf.data.experimental.assert_cardinality(sum(1 for _ in data)))


def count_steps(data: KerasInput, batch_size: int, validation_split: float = 0.0) -> int:
    """Returns the number of batches in an epoch; ValueError for infinite data or a generator."""
    if isinstance(data, tf.data.Dataset):
        # An infinite dataset leads to the error at the end.
        if data.cardinality() != tf.data.INFINITE_CARDINALITY:
            return int(data.cardinality())
    elif isinstance(data, keras.utils.PyDataset):
        return int(data.num_batches or 1)
    elif not hasattr(data, "__next__"):
        count = math.floor(len(tf.nest.flatten(data)[0]) * (1.0 - validation_split))
        return -(-count // batch_size)  # Keras also trains on the last, smaller batch.
    if hasattr(data, "__next__"):
        raise ValueError("The number of batches of a generator is unknown: give steps_per_epoch.")
    raise ValueError("The dataset is infinite: give steps_per_epoch.")
