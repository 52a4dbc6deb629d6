"""Sentence order: are two consecutive segments in the order of the text, or swapped? (ALBERT)"""

from typing import Any

import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network.losses import WeightedSum
from bert_tf.pretraining.objectives.next_sentence import NextSentence
from bert_tf.system.type_names import Batch, Outputs


class SentenceOrder(NextSentence):
    """The head and labels of `NextSentence` (0 in order, 1 swapped) under other names.

    Reference: Lan et al. 2020 (ALBERT), section 3.1.
    """

    plot_titles = {
        "sentence_order_loss": "SOP loss (nats)",
        "sentence_order_accuracy": "SOP accuracy",
    }

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        return _renamed(super().loss_weights(batch))

    def loss_and_metric_sums(self, batch: Batch, outputs: Outputs) -> dict[str, WeightedSum]:
        return _renamed(super().loss_and_metric_sums(batch, outputs))

    def baseline(
        self, config: ModelConfig, train: tf.data.Dataset, held_out: tf.data.Dataset
    ) -> dict[str, float]:
        return _renamed(super().baseline(config, train, held_out))


def _renamed(values: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("next_sentence", "sentence_order"): v for name, v in values.items()}
