"""The loss of multiple choice, for Keras' `fit` and for the trainer."""

from typing import Any

from bert_tf.network.losses import LabelLoss
from bert_tf.type_names import Tensor


def choice_losses(scores: Tensor, labels: Tensor, label_loss: LabelLoss | None = None) -> Any:
    """Returns the cross-entropy of the right choice among the choices of its example, float32 [B].

    Args:
      scores: float [B, C], unnormalised, of each choice.
      labels: int32 [B], indices of the right choices.
      label_loss: None: the plain loss.
    """
    return (label_loss or LabelLoss()).losses("single_label", scores, labels)
