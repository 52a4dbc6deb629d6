"""The trainer's interface to a task: a model, its data, and its losses as sums."""

from typing import Protocol

from bert_tf.corpus.mapping import InputShard
from bert_tf.network.losses import WeightedSum
from bert_tf.system.type_names import Batch, Dataset, Model, Outputs, Tensor


class Task(Protocol):
    """A model with its data and losses.

    Attributes:
      model: called as `model(batch, training=True, dropout_seed=seed)`, returns a dict.
      loss_names: the sums whose ratios `total / weight` add up to the loss.
      sum_names: all names of `loss_and_metric_sums`, including losses, in the order of the reports.

    A task with a step other than `TrainStep` names it in the attribute `step_class`.
    """

    model: Model
    loss_names: tuple[str, ...]
    sum_names: tuple[str, ...]

    def train_dataset(self, batch_size: int, start_step: int, shard: InputShard) -> Dataset:
        """Returns this worker's slice of every global batch from `start_step` on, endlessly."""

    def eval_dataset(self, batch_size: int, max_steps: int, shard: InputShard) -> Dataset:
        """Returns this worker's slice of the evaluation batches, the same on every call."""

    def loss_weights(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the weight of each loss, float32 [], computed from the labels alone."""

    def score(self, results: dict[str, float]) -> float:
        """Returns the score of an evaluation, by which the best checkpoint is chosen."""

    def loss_and_metric_sums(self, batch: Batch, outputs: Outputs) -> dict[str, WeightedSum]:
        """Returns the sums of losses and metrics over the batch."""
