"""The trainer's interface to a task: a model, its data, and its losses as sums."""

from typing import Any, Protocol

import keras
import tensorflow as tf

from bert_tf.network.losses import WeightedSum

Batch = dict[str, tf.Tensor]


class Task(Protocol):
    """A model with its data and losses.

    Attributes:
      model: called as `model(batch, training=True, dropout_seed=seed)`, returns a dict.
      loss_names: the sums whose ratios `total / weight` add up to the loss.
      sum_names: every name of `loss_and_metric_sums`, losses included, in the order of the
        reports.

    A task with a step other than `TrainStep` names it as `step_class`.
    """

    model: keras.Model
    loss_names: tuple[str, ...]
    sum_names: tuple[str, ...]

    def train_dataset(
        self, batch_size: int, start_step: int, worker_index: int, num_workers: int
    ) -> tf.data.Dataset:
        """Returns this worker's slice of every global batch from `start_step` on, endless."""

    def eval_dataset(
        self, batch_size: int, max_steps: int, worker_index: int, num_workers: int
    ) -> tf.data.Dataset:
        """Returns this worker's slice of the evaluation batches, always the same."""

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns the weight of each loss, known from the labels alone: float32 []."""

    def score(self, results: dict[str, float]) -> float:
        """Returns the score of an evaluation; the checkpoint with the highest score is the best."""

    def loss_and_metric_sums(self, batch: Batch, outputs: Any) -> dict[str, WeightedSum]:
        """Returns the sums of losses and metrics over the batch."""
