"""Fine-tuning: the trainer's loop, with evaluations that need every prediction.

Losses can be summed batch by batch, but Matthews' correlation, entity F1 and SQuAD's exact match
cannot. An evaluation therefore collects the outputs of every example, and the task scores them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.system.type_names import Batch, Tensor
from bert_tf.tasks.base.examples.row_batches import evaluation_batches
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.programs.rows_task import CollectedOutputs, RowsTask
from bert_tf.training.precision import compilation
from bert_tf.training.train_step import ReplicaFunction
from bert_tf.training.trainer import Trainer

# Outputs with an axis of tokens.
TOKEN_OUTPUTS = ("tag_ids", "start_logits", "end_logits")


class FineTuner(Trainer):
    """`Trainer` for a `RowsTask`; arguments are those of `Trainer`."""

    task: RowsTask

    def __init__(self, task: RowsTask, *arguments: Any, **keywords: Any) -> None:
        super().__init__(task, *arguments, **keywords)
        # On a batch, without dropout.
        self._run_predictions = ReplicaFunction(
            self._predictions, self.strategy, *compilation(self.config)
        )

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

    @tf.function
    def _predict_batch(self, iterator: Iterator[Batch]) -> Batch:
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
