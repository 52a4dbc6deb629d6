"""Packs generators and `PyDataset`s whose batches are texts for Keras' loop.

Keras takes the shapes of a generator from its first batches, so all batches are padded to the same
length. Layers that skip the padding do not compute it.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.system.type_names import Column, Dataset, KerasInput
from bert_tf.tasks.base.examples.columns import TO_LIST

# Inputs, labels and weights of a batch for Keras' loop.
KerasBatch = tuple[dict[str, Any], Any, Any]
Pack = Callable[[Any], KerasBatch]


class PackedBatches(keras.utils.PyDataset):
    """The batches of another `PyDataset`, packed."""

    def __init__(self, data: keras.utils.PyDataset, pack: Pack) -> None:
        # Threads instead of processes, which would each need a copy of the model to pack batches.
        super().__init__(workers=data.workers, max_queue_size=data.max_queue_size)
        self._data = data
        self._pack = pack

    def __getitem__(self, index: int) -> KerasBatch:
        return self._pack(self._data[index])

    def __len__(self) -> int:
        return len(self._data)

    @property
    def num_batches(self) -> int | None:
        return self._data.num_batches

    def on_epoch_begin(self) -> None:
        self._data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._data.on_epoch_end()


def is_stream(x: object) -> bool:
    """Returns whether the input is a generator or a `PyDataset` of batches."""
    return isinstance(x, keras.utils.PyDataset) or hasattr(x, "__next__")


def first_batch(data: Any) -> tuple[Any, Any]:
    """Returns the first batch, and the data with all batches."""
    if isinstance(data, keras.utils.PyDataset):
        return data[0], data
    try:
        first = next(data)
    except StopIteration:
        raise ValueError("The generator is empty; expected batches of (texts, labels).") from None
    # A generator expression, because Keras does not accept `itertools.chain` as a generator.
    return first, (batch for batch in itertools.chain([first], data))


def unpack_batch(batch: Any) -> tuple[Any, Any, Any]:
    """Returns inputs, labels and weights of a batch; a list is a column of inputs alone."""
    if isinstance(batch, tuple):
        return keras.utils.unpack_x_y_sample_weight(batch)
    return batch, None, None


def pack_stream(data: Any, pack: Pack) -> PackedBatches | Iterator[KerasBatch]:
    """Returns the data with packed batches."""
    if isinstance(data, keras.utils.PyDataset):
        return PackedBatches(data, pack)
    # A generator expression, because Keras does not accept `map` as a generator either.
    return (pack(batch) for batch in data)


def inputs_in(data: Iterable[Any], steps: int | None) -> Iterator[Any]:
    """Yields the inputs of each batch, without labels."""
    batches = data
    if isinstance(data, keras.utils.PyDataset):
        count = steps or data.num_batches
        if count is None:
            raise ValueError("The PyDataset is infinite: give steps.")
        batches = (data[index] for index in range(count))
    for batch in itertools.islice(batches, steps):
        yield unpack_batch(batch)[0]


def is_symbolic(column: object) -> bool:
    """Returns whether a column of texts is a symbolic tensor, which has no values yet."""
    is_tensor = tf.is_tensor(column) and not hasattr(column, "numpy")
    return is_tensor or isinstance(column, keras.KerasTensor)


def holds_texts(x: Any) -> bool:
    """Returns whether the first value of some input, however nested, is a text."""
    while isinstance(x, list | tuple) and x:
        x = x[0]
    if isinstance(x, str | bytes):
        return True
    # Arrays, tensors and columns of pandas.
    dtype = getattr(x, "dtype", None)
    kind = getattr(dtype, "kind", "")
    if kind == "O" and len(x):  # Objects, such as strings in a column of pandas.
        return holds_texts(list(x))
    return kind in ("U", "S") or dtype == tf.string


def is_text_column(values: Column | Dataset | None) -> bool:
    """Returns whether a value is a column of texts, or of lists of texts."""
    if isinstance(values, str | bytes | tf.data.Dataset) or values is None:
        return False
    if isinstance(values, list | tuple | np.ndarray):
        return holds_texts(values)
    for method in TO_LIST:
        if hasattr(values, method):
            return holds_texts(getattr(values, method)())
    return False


def unpack_text_columns(data: KerasInput) -> tuple[Any, Any, Any]:
    """Returns x, y and weights of validation data whose x may be a tuple of columns without y."""
    if isinstance(data, list):
        return data, None, None
    if not isinstance(data, tuple) or not is_text_column(data[0]):
        return keras.utils.unpack_x_y_sample_weight(data)
    if len(data) == 3 and data[2] is None:
        return data
    if len(data) == 2 and not is_text_column(data[1]):
        return *data, None
    return data, None, None  # A tuple of columns of texts is x alone.
