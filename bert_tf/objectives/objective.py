"""What an objective of pre-training is; see `masked_lm.py` for the first one.

    batch -> encoder -> Objective.outputs -> Objective.sums -> losses and metrics

A run learns several at once; its loss is the sum of theirs.
"""

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.modeling.losses import WeightedSum

Batch = dict[str, Any]


class Objective(abc.ABC):
    """One thing to learn: its head on top of the encoder, and its losses.

    Attributes:
      panels: title of each of its sums in plots, in the order of the reports. Sums whose names end
        in `_loss` are part of the training loss.
      needs_pooler: whether its head takes the pooled output.
      mask_batch: what masks records in the place of `bert_tf.data.masking.mask_batch`, or None.
      is_learned: whether its losses are part of the training loss, or just reported.
    """

    panels: dict[str, str]
    needs_pooler = False
    is_learned = True
    mask_batch: Callable[..., Batch] | None = None

    @property
    def loss_names(self) -> tuple[str, ...]:
        if not self.is_learned:
            return ()
        return tuple(name for name in self.panels if name.endswith("_loss"))

    def build(self, model: Any) -> None:  # noqa: B027
        """Makes the weights of its head, if it has one, attributes of the model, under cls/."""

    @abc.abstractmethod
    def outputs(self, model: Any, encoded: dict[str, Any], inputs: Batch) -> dict[str, Any]:
        """Returns its scores for what the encoder made of the inputs."""

    @abc.abstractmethod
    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns the weight of each loss, known from the labels alone: float32 []."""

    @abc.abstractmethod
    def sums(self, batch: Batch, outputs: dict[str, Any]) -> dict[str, WeightedSum]:
        """Returns its losses and metrics as sums over the batch, by name."""

    def baseline(
        self, config: ModelConfig, train: tf.data.Dataset, held_out: tf.data.Dataset
    ) -> dict[str, float]:
        """Returns what somebody who looks at nothing reaches on held-out batches, by name, if that
        can be said.

        Args:
          config: shape of the network.
          train: training batches to count in.
          held_out: the evaluation batches.
        """
        return {}


def count_labels(dataset: tf.data.Dataset, ids: str, weights: str, size: int) -> np.ndarray:
    """Counts each of `size` labels in all batches, as often as its weight says: float64 [size]."""
    counts = np.zeros([size])
    for batch in dataset:
        labels, worth = (batch[name].numpy().ravel() for name in (ids, weights))
        counts += np.bincount(labels, worth, minlength=size)
    return counts
