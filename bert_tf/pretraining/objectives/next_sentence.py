"""Next sentence prediction: does the second segment follow the first (BERT section 3.1, task 2)."""

import numpy as np
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network.heads import label_head
from bert_tf.network.losses import WeightedSum, accuracy, cross_entropy
from bert_tf.pretraining.objectives.objective import Objective
from bert_tf.system.type_names import Batch, Model, Outputs


class NextSentence(Objective):
    """Classifies the pooled output: `next_sentence_logits`, float32 [B, 2]; 0 follows, 1 random."""

    plot_titles = {
        "next_sentence_loss": "NSP loss (nats)",
        "next_sentence_accuracy": "NSP accuracy",
    }
    needs_pooler = True

    def build(self, model: Model) -> None:
        model.seq_relationship = label_head(model, 2, "seq_relationship")

    def outputs(self, model: Model, encoded: Outputs, inputs: Batch) -> Outputs:
        return {"next_sentence_logits": model.seq_relationship(encoded["pooled_output"])}

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        return {"next_sentence_loss": tf.reduce_sum(batch["next_sentence_weights"])}

    def loss_and_metric_sums(self, batch: Batch, outputs: Outputs) -> dict[str, WeightedSum]:
        logits = outputs["next_sentence_logits"]
        labels = batch["next_sentence_labels"]
        weights = batch["next_sentence_weights"]
        return {
            "next_sentence_loss": cross_entropy(logits, labels, weights),
            "next_sentence_accuracy": accuracy(logits, labels, weights),
        }

    def baseline(
        self, config: ModelConfig, train: tf.data.Dataset, held_out: tf.data.Dataset
    ) -> dict[str, float]:
        """Guesses at random."""
        return {"next_sentence_loss": float(np.log(2.0)), "next_sentence_accuracy": 0.5}
