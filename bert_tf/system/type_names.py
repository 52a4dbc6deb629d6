"""Names for the types in signatures. Importing them loads neither TensorFlow nor Keras.

Both libraries come without stubs, so that `Tensor` is Any to mypy; the names are for the reader.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    # Also accepts what TensorFlow converts to a tensor: Keras' variables and NumPy arrays.
    Tensor: TypeAlias = tf.Tensor
    Dataset: TypeAlias = tf.data.Dataset
    Strategy: TypeAlias = tf.distribute.Strategy
    Model: TypeAlias = keras.Model
    Layer: TypeAlias = keras.layers.Layer
    Optimizer: TypeAlias = keras.optimizers.Optimizer
    Callback: TypeAlias = keras.callbacks.Callback
else:  # Python evaluates signatures, but nothing reads them while the program runs.
    Tensor = Dataset = Strategy = Model = Layer = Optimizer = Callback = Any

Batch: TypeAlias = Mapping[str, Tensor]
Outputs: TypeAlias = dict[str, Any]  # Tensors and lists of them.
Shape: TypeAlias = tuple[int | None, ...]
Fields: TypeAlias = dict[str, Any]  # The fields of a configuration, ready for JSON.

# A list, a tuple, a NumPy array, a column of pandas, Arrow or datasets, or a tensor.
Column: TypeAlias = Iterable[Any]
TextColumn: TypeAlias = Column  # Of str, or of bytes in UTF-8.
Texts: TypeAlias = Column  # A column of texts or of pairs, or a tuple of two columns of texts.
Labels: TypeAlias = Column  # Names, ids, one-hot rows, or numbers.

# Arguments of Keras' `fit`, `evaluate` and `predict`.
KerasInput: TypeAlias = Column | Batch | Dataset  # Also a generator or a `PyDataset` of batches.
ClassWeight: TypeAlias = str | Mapping[Any, float]  # "balanced", or by name or index of a class.
Callbacks: TypeAlias = Callback | Sequence[Callback]


class ModelOptions(TypedDict, total=False):
    """Keras' own arguments of a model, besides its name."""

    dtype: "str | keras.DTypePolicy | None"
    trainable: bool


class LayerOptions(ModelOptions, total=False):
    """Keras' own arguments of a layer."""

    name: str | None
