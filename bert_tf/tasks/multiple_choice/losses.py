"""The loss of multiple choice, for Keras' `fit` and for the trainer."""

from typing import Any

from bert_tf.network.losses import class_losses
from bert_tf.type_names import Tensor


def choice_losses(scores: Tensor, labels: Tensor) -> Any:
    """Returns the cross-entropy of the right choice among the choices of its example, float32 [B].

    Args:
      scores: float [B, C], unnormalised, of each choice.
      labels: int32 [B], indices of the right choices.
    """
    return class_losses(scores, labels)
