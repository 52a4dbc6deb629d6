"""The loss of multiple choice, for Keras' `fit` and for the trainer."""

from typing import Any

from bert_tf.network.losses import LabelLoss
from bert_tf.system.type_names import Tensor


def choice_losses(scores: Tensor, labels: Tensor, label_loss: LabelLoss | None = None) -> Any:
    """Returns the cross-entropy over the choices of each example, float32 [B].

    Args:
      scores: float [B, C], the unnormalised scores of the choices.
      labels: int32 [B], indices of the correct choices.
      label_loss: loss of each label; None: plain cross-entropy.
    """
    return (label_loss or LabelLoss()).losses("single_label", scores, labels)
