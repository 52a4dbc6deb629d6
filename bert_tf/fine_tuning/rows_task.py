"""The base of fine-tuning tasks: rows in memory, in batches."""

import abc
import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.config import TeacherConfig
from bert_tf.corpus.input_shard import InputShard
from bert_tf.examples.row_batches import evaluation_batches, training_batches
from bert_tf.examples.rows import TokenizedDataset
from bert_tf.network.losses import WeightedSum, weigh
from bert_tf.training.task import Batch

# A teacher's scores of the rows [N, C] or of their pieces.
TEACHER_LOGITS = "teacher_logits"


class RowsTask(abc.ABC):
    """A model with rows to train on and examples to evaluate; see `training.task.Task`.

    A subclass defines losses and metrics. The loss of a batch is the sum "loss" of
    `loss_and_metric_sums`, divided by its weight.

    Args:
      model: the network with its head.
      train_rows: None if nothing is trained.
      eval_examples: an object with `rows`; None if nothing is evaluated.
      buckets: lengths that batches are padded to.
      seed: of the order of the rows.
      teacher: how rows with `TEACHER_LOGITS` are learned.
    """

    loss_names: tuple[str, ...] = ("loss",)
    sum_names: tuple[str, ...] = ("loss",)
    best_metric: str

    def __init__(
        self,
        model: keras.Model,
        train_rows: TokenizedDataset | None,
        eval_examples: Any,
        buckets: Sequence[int],
        seed: int,
        teacher: TeacherConfig | None = None,
    ) -> None:
        self.model = model
        self.train_rows = train_rows
        self.eval_examples = eval_examples
        self.buckets = list(buckets)
        self.seed = seed
        self.teacher = teacher or TeacherConfig()
        if isinstance(train_rows, TokenizedDataset) and train_rows.has(TEACHER_LOGITS):
            self.sum_names = (*self.sum_names, "teacher_loss")

    def train_dataset(
        self, batch_size: int, start_step: int, worker_index: int, num_workers: int
    ) -> tf.data.Dataset:
        """Batches of `TokenizedDataset.batch`."""
        shares = InputShard(worker_index, num_workers)
        rows = self.train_rows
        if rows is None:
            raise ValueError("There are no training examples.")
        return training_batches(rows, batch_size, start_step, self.seed, self.buckets, shares)

    def eval_dataset(
        self, batch_size: int, max_steps: int, worker_index: int, num_workers: int
    ) -> tf.data.Dataset:
        """Batches of `TokenizedDataset.batch`, every row once."""
        shares = InputShard(worker_index, num_workers)
        rows = self.eval_examples.rows
        return evaluation_batches(rows, batch_size, max_steps, self.buckets, shares)

    def score(self, results: dict[str, float]) -> float:
        """The higher the task's metric, the better; the lower the loss; nan is the worst."""
        value = results[self.best_metric]
        if math.isnan(value):  # A correlation of constants; every number is better.
            return -math.inf
        return -value if self.best_metric == "loss" else value

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns the weight of the batch: float32 []."""
        return {"loss": tf.reduce_sum(batch["example_weights"])}

    def losses_with_teacher(
        self, batch: Batch, losses: Any, soft: Any, weights: Any
    ) -> dict[str, Any]:
        """Returns the sums "loss" and, where a teacher has scored the rows, "teacher_loss".

        Args:
          batch: with `TEACHER_LOGITS` if there is a teacher.
          losses: to the labels, float32 [...].
          soft: takes the teacher's scores and the temperature; returns the losses to them.
          weights: float32 [...].
        """
        if TEACHER_LOGITS not in batch:
            return {"loss": weigh(losses, weights)}
        config = self.teacher
        taught = soft(batch[TEACHER_LOGITS], config.distillation_temperature)
        both = config.teacher_weight * taught + (losses if config.learn_labels else 0.0)
        return {"teacher_loss": weigh(taught, weights), "loss": weigh(both, weights)}

    @abc.abstractmethod
    def loss_and_metric_sums(self, batch: Batch, outputs: Any) -> dict[str, WeightedSum]:
        """See `Task.loss_and_metric_sums`."""

    @abc.abstractmethod
    def predictions(self, batch: Batch, outputs: Any) -> dict[str, tf.Tensor]:
        """See `training.fine_tuner.FineTuningTask`."""

    @abc.abstractmethod
    def metrics(self, examples: Any, outputs: Any) -> dict[str, float]:
        """See `training.fine_tuner.FineTuningTask`."""
