"""The base class of fine-tuning tasks, whose examples are in memory."""

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import TeacherConfig
from bert_tf.corpus.mapping import InputShard
from bert_tf.network.losses import WeightedSum, weigh
from bert_tf.system.type_names import Batch, Tensor
from bert_tf.tasks.base.examples.row_batches import evaluation_batches, training_batches
from bert_tf.tasks.base.examples.rows import TokenizedDataset

# A teacher's scores of the examples [N, C] or of their tokens.
TEACHER_LOGITS = "teacher_logits"
# The outputs of all examples by name: for each an array per example.
CollectedOutputs = dict[str, list[np.ndarray]]


class RowsTask(abc.ABC):
    """A model with examples to train on and to evaluate; see `training.task.Task`.

    A subclass defines losses, and metrics of the predictions of all examples. The loss of a
    batch is the sum "loss" of `loss_and_metric_sums`, divided by its weight.

    Args:
      train_rows: the examples to train on; None without training.
      eval_examples: an object with `rows`; None without evaluation.
      teacher: how `TEACHER_LOGITS` are learned.
    """

    loss_names: tuple[str, ...] = ("loss",)
    sum_names: tuple[str, ...] = ("loss",)
    best_metric: str

    def __init__(
        self,
        model: keras.Model,
        train_rows: Any,
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

    def train_dataset(self, batch_size: int, start_step: int, shard: InputShard) -> tf.data.Dataset:
        """Returns batches of `TokenizedDataset.batch`; see `Task`."""
        rows = self.train_rows
        return training_batches(rows, batch_size, start_step, self.seed, self.buckets, shard)

    def eval_dataset(self, batch_size: int, max_steps: int, shard: InputShard) -> tf.data.Dataset:
        """Returns batches of `TokenizedDataset.batch`, with every example once."""
        rows = self.eval_examples.rows
        return evaluation_batches(rows, batch_size, max_steps, self.buckets, shard)

    def score(self, results: dict[str, float]) -> float:
        """Returns the task's main metric, negated for the loss; nan is the worst score."""
        value = results[self.best_metric]
        if math.isnan(value):  # The correlation of constant predictions.
            return -math.inf
        return -value if self.best_metric == "loss" else value

    def loss_weights(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the weight of the batch: float32 []."""
        return {"loss": tf.reduce_sum(batch["example_weights"])}

    def losses_with_teacher(
        self, batch: Batch, losses: Tensor, soft: Callable[[Tensor, float], Tensor], weights: Tensor
    ) -> dict[str, WeightedSum]:
        """Returns the sums "loss" and, if a teacher has scored the examples, "teacher_loss".

        Args:
          losses: the losses with respect to the labels, float32 [...].
          soft: takes the teacher's scores and the temperature; returns the losses with respect to
            them.
          weights: float32 [...].
        """
        if TEACHER_LOGITS not in batch:
            return {"loss": weigh(losses, weights)}
        config = self.teacher
        teacher_losses = soft(batch[TEACHER_LOGITS], config.distillation_temperature)
        total = config.teacher_weight * teacher_losses
        # The teacher's scores may replace the labels, or be learned in addition.
        if config.learn_labels:
            total += losses
        return {"teacher_loss": weigh(teacher_losses, weights), "loss": weigh(total, weights)}

    @abc.abstractmethod
    def loss_and_metric_sums(self, batch: Batch, outputs: Any) -> dict[str, WeightedSum]:
        """See `Task.loss_and_metric_sums`."""

    @abc.abstractmethod
    def predictions(self, batch: Batch, outputs: Any) -> dict[str, Tensor]:
        """Returns the outputs to collect, tensors [B, ...], with `loss` float32 [B]."""

    @abc.abstractmethod
    def metrics(self, examples: Any, outputs: CollectedOutputs) -> dict[str, float]:
        """Scores the predictions of all examples; returns `loss` and the task's metrics."""
