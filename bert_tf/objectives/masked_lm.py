"""Masked language model: predicts the tokens that [MASK] replaced (BERT section 3.1, task 1)."""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network.heads import MaskedLMHead
from bert_tf.network.losses import WeightedSum, accuracy, cross_entropy
from bert_tf.objectives.objective import Batch, Objective, count_labels


class MaskedLM(Objective):
    """Predicts the token at each masked position: `masked_lm_logits`, float32 [B, P, V]."""

    plot_titles = {"masked_lm_loss": "MLM loss (nats)", "masked_lm_accuracy": "MLM accuracy"}

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

    def loss_and_metric_sums(self, batch: Batch, outputs: dict[str, Any]) -> dict[str, WeightedSum]:
        logits = outputs["masked_lm_logits"]
        labels = batch["masked_lm_ids"]
        weights = batch["masked_lm_weights"]
        return {
            "masked_lm_loss": cross_entropy(logits, labels, weights),
            "masked_lm_accuracy": accuracy(logits, labels, weights),
        }

    def baseline(
        self, config: ModelConfig, train: tf.data.Dataset, held_out: tf.data.Dataset
    ) -> dict[str, float]:
        """Predicts every token by its frequency among the masked tokens of the training data.

        Each count is raised by one. The accuracy is that of the most frequent token.
        """
        counts = count_labels(train, "masked_lm_ids", "masked_lm_weights", config.vocab_size)
        labels = count_labels(held_out, "masked_lm_ids", "masked_lm_weights", config.vocab_size)
        probabilities = (counts + 1.0) / (counts + 1.0).sum()
        return {
            "masked_lm_loss": float(-(labels * np.log(probabilities)).sum() / labels.sum()),
            "masked_lm_accuracy": float(labels[counts.argmax()] / labels.sum()),
        }
