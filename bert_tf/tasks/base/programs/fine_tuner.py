"""Fine-tuning: the trainer's loop, with evaluations that need every prediction.

Losses can be summed batch by batch, but Matthews' correlation, entity F1 and SQuAD's exact match
cannot. An evaluation therefore collects the outputs of every example, and the task scores them.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from bert_tf.system.type_names import Batch, Outputs, Tensor
from bert_tf.tasks.base.examples.row_batches import evaluation_batches
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.training.precision import compilation
from bert_tf.training.task import Task
from bert_tf.training.train_step import ReplicaFunction
from bert_tf.training.trainer import Trainer

# The outputs of all examples by name: for each an array per example.
CollectedOutputs = dict[str, list[np.ndarray]]


class FineTuningTask(Task, Protocol):
    """A task whose evaluation needs all predictions.

    Attributes:
      buckets: lengths that batches are padded to; see
        `bert_tf.tasks.base.examples.rows.length_buckets`.
      eval_examples: the examples to evaluate during training.
    """

    buckets: list[int]
    eval_examples: Any

    def predictions(self, batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
        """Returns the outputs to collect, tensors [B, ...], with `loss` float32 [B]."""

    def metrics(self, examples: Any, outputs: CollectedOutputs) -> dict[str, float]:
        """Scores the predictions of all examples; returns `loss` and the task's metrics."""


class FineTuner(Trainer):
    """`Trainer` for a `FineTuningTask`; arguments are those of `Trainer`."""

    task: FineTuningTask

    def __init__(self, task: FineTuningTask, *arguments: Any, **keywords: Any) -> None:
        super().__init__(task, *arguments, **keywords)
        self._predict_batch = PredictStep(task, self.strategy, *compilation(self.config))

    def evaluate(self) -> dict[str, float]:
        """Returns loss and metrics over the task's evaluation examples."""
        examples = self.task.eval_examples
        return self.task.metrics(examples, self.predict(examples.rows, self.config.eval_batch_size))

    def predict(self, rows: TokenizedDataset, batch_size: int) -> CollectedOutputs:
        """Returns for each output one array per example, in order and without padding.

        Outputs [B, T] are cut to [t], the length of the example. If the optimizer keeps averaged
        weights, these are used.

        Raises:
          FloatingPointError: if an output is NaN.
        """
        with self.optimizer.averaged_weights():
            return self._predict(rows, batch_size)

    def _predict(self, rows: TokenizedDataset, batch_size: int) -> CollectedOutputs:
        buckets = self.task.buckets
        data = self.distribute(
            # Batches of similar length: padding would dominate the time of short texts.
            lambda shard: evaluation_batches(rows, batch_size, 0, buckets, shard)
        )
        collected: dict[str, list[Any]] = {}
        iterator = iter(data)
        for _ in range(-(-len(rows) // batch_size)):
            self.leave_if_stopped()
            outputs = self._predict_batch(iterator)
            values = {name: value.numpy() for name, value in outputs.items()}
            # Batches come in the order of lengths; the ids put the outputs back in that of the
            # rows.
            row_ids = values.pop("row_ids")  # [B]
            for name, value in values.items():
                collected_rows = collected.setdefault(name, [None] * len(rows))
                for index in np.flatnonzero(row_ids >= 0):  # Negative ids fill the last batch.
                    row = row_ids[index]
                    output = value[index]
                    if name in TOKEN_OUTPUTS:
                        output = output[: rows.lengths[row]]  # [t]
                    collected_rows[row] = output
        self._check_outputs(collected)
        return collected

    def _check_outputs(self, collected: CollectedOutputs) -> None:
        for name, rows in collected.items():
            # A sum is NaN if a value is; minus infinity is a legitimate score.
            sums = np.array(list(map(np.sum, rows)))
            if sums.dtype.kind == "f" and np.isnan(sums).any():
                raise FloatingPointError(
                    f"{name} of example {int(np.isnan(sums).argmax()) + 1} is not a number at step "
                    f"{self.step}: the weights are useless. Train again with a lower "
                    "--learning_rate, or take an earlier checkpoint."
                )


# Outputs with an axis of tokens.
TOKEN_OUTPUTS = ("tag_ids", "start_logits", "end_logits")


class PredictStep:
    """Runs the model on batches, without dropout.

    Args:
      compile_parts: compile only the regions of `xla_region.py`.
    """

    def __init__(
        self,
        task: FineTuningTask,
        strategy: tf.distribute.Strategy,
        jit_compile: bool,
        compile_parts: bool = False,
        attention: str = "plain",
    ) -> None:
        self.task = task
        self.strategy = strategy
        self._run_predictions = ReplicaFunction(
            self._predictions, strategy, jit_compile, compile_parts, attention
        )

    @tf.function
    def __call__(self, iterator: Iterator[Batch]) -> Batch:
        """Returns the predictions of the next global batch, with `row_ids` int32 [B]."""
        # The iterator is read inside, because a batch as an argument would be traced for each
        # length.
        outputs = self.strategy.run(self._run_predictions, (next(iterator),))
        if self.strategy.num_replicas_in_sync == 1:
            return outputs
        return {name: self.strategy.gather(value, axis=0) for name, value in outputs.items()}

    def _predictions(self, batch: Batch) -> dict[str, Tensor]:
        outputs = self.task.model(batch, training=False)
        return {**self.task.predictions(batch, outputs), "row_ids": batch["row_ids"]}
