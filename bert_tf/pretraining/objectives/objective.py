"""Base class of the objectives of pre-training; `masked_lm.py` has the first one.

    batch -> encoder -> Objective.outputs -> loss_and_metric_sums -> losses and metrics

A run may have several objectives; its loss is the sum of their losses.
"""

import abc
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network.losses import WeightedSum
from bert_tf.system.type_names import Batch, Model, Outputs


class Objective(abc.ABC):
    """An objective: its head on top of the encoder, and its losses and metrics.

    Attributes:
      plot_titles: title of each sum in plots, in the order of the reports. Sums whose names end in
        `_loss` are part of the training loss.
      needs_pooler: whether the head takes the pooled output.
      mask_batch: function that replaces `bert_tf.corpus.masking.mask_batch`, or None.
      is_learned: whether the losses are part of the training loss, or only reported.
    """

    plot_titles: dict[str, str]
    needs_pooler = False
    is_learned = True
    mask_batch: Callable[..., Batch] | None = None

    @property
    def loss_names(self) -> tuple[str, ...]:
        if not self.is_learned:
            return ()
        return tuple(name for name in self.plot_titles if name.endswith("_loss"))

    def build(self, model: Model) -> None:  # noqa: B027
        """Makes the head, if any, as an attribute of the model; its weights are in cls/."""

    @abc.abstractmethod
    def outputs(self, model: Model, encoded: Outputs, inputs: Batch) -> Outputs:
        """Returns the logits of the head for the outputs of the encoder."""

    @abc.abstractmethod
    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns the weight of each loss, float32 [], which the labels alone determine."""

    @abc.abstractmethod
    def loss_and_metric_sums(self, batch: Batch, outputs: Outputs) -> dict[str, WeightedSum]:
        """Returns losses and metrics by name, as sums over the batch."""

    def baseline(
        self, config: ModelConfig, train: tf.data.Dataset, held_out: tf.data.Dataset
    ) -> dict[str, float]:
        """Returns losses and metrics of a guess that does not see the inputs, by name, if known.

        Labels of the training batches may be counted; the guess is evaluated on `held_out`.
        """
        return {}


def count_labels(dataset: tf.data.Dataset, ids: str, weights: str, size: int) -> np.ndarray:
    """Returns the sum of the weights of each label over all batches, float64 [size]."""
    counts = np.zeros([size])
    for batch in dataset:
        batch_labels = batch[ids].numpy().ravel()
        batch_weights = batch[weights].numpy().ravel()
        counts += np.bincount(batch_labels, batch_weights, minlength=size)
    return counts
