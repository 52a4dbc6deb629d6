"""The loss of a tagger, for Keras' `fit` and for the trainer."""

from typing import Any

from bert_tf.network.losses import LabelLoss
from bert_tf.type_names import Tensor


def word_losses(logits: Tensor, tag_ids: Tensor, label_loss: LabelLoss | None = None) -> Any:
    """Returns the cross-entropy of the tag at each position, float32 [B, T].

    Args:
      logits: float [B, T, C], unnormalised.
      tag_ids: int32 [B, T]; where an id is not in [0, C), no word is predicted, and the loss must
        get the weight 0.
      label_loss: None: the plain loss.
    """
    return (label_loss or LabelLoss()).losses("single_label", logits, tag_ids)
