"""The loss of a tagger, for Keras' `fit` and for the trainer."""

from typing import Any

from bert_tf.network.losses import LabelLoss
from bert_tf.system.type_names import Tensor


def word_losses(logits: Tensor, tag_ids: Tensor, label_loss: LabelLoss | None = None) -> Any:
    """Returns the cross-entropy of the tag at each position, float32 [B, T].

    Args:
      logits: float [B, T, C], unnormalised.
      tag_ids: int32 [B, T]; an id outside [0, C) marks a position without a predicted word, whose
        loss must get the weight 0.
      label_loss: loss of each label; None: plain cross-entropy.
    """
    return (label_loss or LabelLoss()).losses("single_label", logits, tag_ids)
