"""Keras' cross entropies, given to `compile` of a model whose outputs are unnormalised scores."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras

from bert_tf.system.type_names import Tensor

# The argument `loss` of `compile`: one loss, or one for each output.
LossArgument: TypeAlias = (
    str
    | keras.losses.Loss
    | Callable[[Tensor, Tensor], Tensor]
    | Mapping[str, Any]
    | Sequence[Any]
    | None
)

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


def loss_of_scores(loss: LossArgument) -> LossArgument:
    """Returns the loss for `compile`, with a cross entropy given by name computed from logits.

    Keras itself reads such a name, or the function of that name, as a loss of probabilities.
    """
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", "")
    if name in _NAMES:
        return _NAMES[name](from_logits=True)
    return loss


def takes_probabilities(loss: LossArgument) -> bool:
    """Returns whether a loss is a cross entropy that expects probabilities instead of scores."""
    return isinstance(loss, _CROSS_ENTROPIES) and not loss.from_logits


def takes_one_hot(loss: LossArgument) -> bool:
    """Returns whether a loss expects one-hot labels, not indices of classes."""
    is_sparse = isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
    others = (*_CROSS_ENTROPIES, keras.losses.CategoricalHinge, keras.losses.KLDivergence)
    return isinstance(loss, others) and not is_sparse
