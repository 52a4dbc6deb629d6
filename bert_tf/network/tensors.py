"""Names for the types in this package's signatures."""

from collections.abc import Mapping
from typing import Any, TypeAlias, TypedDict

import keras
import tensorflow as tf

# Also accepts what TensorFlow converts to a tensor: Keras' variables and NumPy arrays.
Tensor: TypeAlias = tf.Tensor
Batch: TypeAlias = Mapping[str, Tensor]
Outputs: TypeAlias = dict[str, Any]  # Tensors and lists of them.
Shape: TypeAlias = tuple[int | None, ...]
Fields: TypeAlias = dict[str, Any]  # The fields of a configuration, ready for JSON.


class ModelOptions(TypedDict, total=False):
    """Keras' own arguments of a model, besides its name."""

    dtype: str | keras.DTypePolicy | None
    trainable: bool


class LayerOptions(ModelOptions, total=False):
    """Keras' own arguments of a layer."""

    name: str | None
