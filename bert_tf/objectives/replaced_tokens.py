"""Replaced-token detection: which pieces of the input are not the text's own (ELECTRA)."""

from typing import Any

import tensorflow as tf
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.modeling.losses import WeightedSum, weigh
from bert_tf.objectives.objective import Batch, Objective


class ReplacedTokens(Objective):
    """A decision on each piece, [CLS] and [SEP] included; the model is `ElectraPretrainer`.

    Args:
      factor: what the loss is multiplied with; it is reported so, as it enters the sum.
    """

    panels = {
        "replaced_tokens_loss": "Replaced tokens: loss, weighted",
        "replaced_tokens_accuracy": "Replaced tokens: accuracy of all pieces",
        "replaced_tokens_recall": "Replaced tokens: share found",
        "replaced_tokens_share": "Replaced tokens: share of all pieces",
    }

    def __init__(self, factor: float = 50.0) -> None:
        self.factor = factor

    def build(self, model: Any) -> None:
        """Nothing: the model makes the head, which needs the generator beside it."""

    def outputs(self, model: Any, encoded: dict[str, Any], inputs: Batch) -> dict[str, Any]:
        return {"replaced_logits": model.discriminator(encoded["sequence_output"])}

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        return {"replaced_tokens_loss": tf.reduce_sum(tf.cast(batch["input_mask"], tf.float32))}

    def sums(self, batch: Batch, outputs: dict[str, Any]) -> dict[str, WeightedSum]:
        logits, labels = outputs["replaced_logits"], outputs["is_replaced"]
        is_real = ops.cast(batch["input_mask"], "float32")
        losses = ops.softplus(logits) - logits * labels  # Sigmoid cross-entropy, [B, T].
        is_right = ops.cast(ops.equal(logits > 0, labels > 0.5), "float32")
        loss = weigh(losses, is_real)
        return {
            "replaced_tokens_loss": WeightedSum(self.factor * loss.total, loss.weight),
            "replaced_tokens_accuracy": weigh(is_right, is_real),
            "replaced_tokens_recall": weigh(is_right, labels * is_real),
            "replaced_tokens_share": weigh(labels, is_real),
        }

    def baseline(
        self, config: ModelConfig, train: tf.data.Dataset, held_out: tf.data.Dataset
    ) -> dict[str, float]:
        """Nothing: what is replaced depends on the generator."""
        return {}
