"""Masked language model: which pieces stood where [MASK] stands (BERT section 3.1, task 1)."""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.modeling.heads import MaskedLMHead
from bert_tf.modeling.losses import WeightedSum, accuracy, cross_entropy
from bert_tf.objectives.objective import Batch, Objective, count_labels


class MaskedLM(Objective):
    """Scores of every piece at the masked positions, `masked_lm_logits` float32 [B, P, V]."""

    panels = {"masked_lm_loss": "MLM loss (nats)", "masked_lm_accuracy": "MLM accuracy"}

    def build(self, model: Any) -> None:
        model.predictions = MaskedLMHead(model.config, name="predictions", dtype=model.dtype_policy)
        model.predictions.build()

    def outputs(self, model: Any, encoded: dict[str, Any], inputs: Batch) -> dict[str, Any]:
        table = model.bert.embeddings.word_embeddings
        positions = inputs["masked_lm_positions"]
        logits = model.predictions(encoded["sequence_output"], positions, table)
        return {"masked_lm_logits": logits}

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        return {"masked_lm_loss": tf.reduce_sum(batch["masked_lm_weights"])}

    def sums(self, batch: Batch, outputs: dict[str, Any]) -> dict[str, WeightedSum]:
        labels = (outputs["masked_lm_logits"], batch["masked_lm_ids"], batch["masked_lm_weights"])
        return {"masked_lm_loss": cross_entropy(*labels), "masked_lm_accuracy": accuracy(*labels)}

    def baseline(
        self, config: ModelConfig, train: tf.data.Dataset, held_out: tf.data.Dataset
    ) -> dict[str, float]:
        """Predicts each piece from how often it is masked in training, one added to each count.

        Its accuracy is that of always the commonest piece.
        """
        names = ("masked_lm_ids", "masked_lm_weights")
        counts, wanted = (count_labels(d, *names, config.vocab_size) for d in (train, held_out))
        share, total = (counts + 1.0) / (counts + 1.0).sum(), wanted.sum()
        return {
            "masked_lm_loss": float(-(wanted * np.log(share)).sum() / total),
            "masked_lm_accuracy": float(wanted[counts.argmax()] / total),
        }
