"""Keras' cross entropies, given to `compile` of a model whose outputs are unnormalised scores."""

from typing import Any

import keras

_CROSS_ENTROPIES = (
    keras.losses.SparseCategoricalCrossentropy,
    keras.losses.CategoricalCrossentropy,
    keras.losses.CategoricalFocalCrossentropy,
    keras.losses.BinaryCrossentropy,
    keras.losses.BinaryFocalCrossentropy,
)
_NAMES = {
    "sparse_categorical_crossentropy": keras.losses.SparseCategoricalCrossentropy,
    "categorical_crossentropy": keras.losses.CategoricalCrossentropy,
    "categorical_focal_crossentropy": keras.losses.CategoricalFocalCrossentropy,
    "binary_crossentropy": keras.losses.BinaryCrossentropy,
    "binary_focal_crossentropy": keras.losses.BinaryFocalCrossentropy,
    **{one.__name__: one for one in _CROSS_ENTROPIES},
}


def loss_of_scores(loss: Any) -> Any:
    """Returns a loss of `compile`, where a name of a cross entropy means that of scores.

    By a name, or as a function, Keras takes them for losses of probabilities.
    """
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", "")
    return _NAMES[name](from_logits=True) if name in _NAMES else loss


def takes_probabilities(loss: Any) -> bool:
    """Returns whether a loss is a cross entropy that expects probabilities instead of scores."""
    return isinstance(loss, _CROSS_ENTROPIES) and not loss.from_logits


def takes_one_hot(loss: Any) -> bool:
    """Returns whether a loss expects one-hot labels, not indices of classes."""
    is_sparse = isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
    others = (*_CROSS_ENTROPIES, keras.losses.CategoricalHinge, keras.losses.KLDivergence)
    return isinstance(loss, others) and not is_sparse
