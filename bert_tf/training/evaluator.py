"""Evaluates a task, during training and after it, and notes the results in a file."""

import functools
import math
import pathlib
from collections.abc import Callable
from typing import Protocol

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.unfinished import EVALUATIONS
from bert_tf.config import TrainingConfig
from bert_tf.corpus.mapping import InputShard
from bert_tf.system.files import atomic_write
from bert_tf.training.distribution import distribute, worker_of
from bert_tf.training.metrics_log import json_line, ratios, read_metrics
from bert_tf.training.optimizers import AdamWeightDecay
from bert_tf.training.packed_rows import pack_batch
from bert_tf.training.precision import compilation
from bert_tf.training.stopping import Stopped, StopRequest
from bert_tf.training.task import Task
from bert_tf.training.train_step import EvalStep, sum_columns


class Samples(Protocol):
    """Samples that a run shows in addition to metrics."""

    def note(self, step: int) -> None:
        """Creates and stores the sample of a step."""

    def report(self) -> list[str]:
        """Returns the lines to show at the end."""


class Evaluator:
    """Evaluates a task with the weights of its run.

    Args:
      optimizer: whose averaged weights are evaluated, if it has any.
      strategy: the strategy of the model.
      samples: see `note_samples`.

    Attributes:
      step: the step of the weights.
      last_evaluation: step and results of the last evaluation during training.
      baseline: returns the results of a trivial baseline, which evaluations are compared with.
    """

    def __init__(
        self,
        task: Task,
        optimizer: AdamWeightDecay,
        strategy: tf.distribute.Strategy,
        config: TrainingConfig,
        samples: Samples | None = None,
    ) -> None:
        self.task = task
        self.optimizer = optimizer
        self.strategy = strategy
        self.config = config
        self.samples = samples
        self.baseline: Callable[[], dict[str, float]] | None = None
        self.eval_step = EvalStep(task, strategy, *compilation(config))
        self.evaluations_path = pathlib.Path(config.output_dir) / EVALUATIONS
        self.step = 0
        self.last_evaluation: tuple[int, dict[str, float]] | None = None
        self._stop: StopRequest | None = None

    def evaluate(self) -> dict[str, float]:
        """Returns losses and metrics over the evaluation batches, as ratios of their sums.

        If the optimizer keeps averaged weights, these are evaluated.

        Raises:
          FloatingPointError: if a loss is not a finite number.
        """
        sums = np.zeros([2 * len(self.task.sum_names)])
        with self.optimizer.averaged_weights():
            for batch in self._eval_data:
                self.leave_if_stopped()
                # Float64 on the host: a float32 sum over many batches would lose small terms.
                sums += self.eval_step(batch).numpy()
        values = dict(zip(sum_columns(self.task.sum_names), sums.tolist(), strict=True))
        results = ratios(values, self.task.sum_names, self.task.loss_names)
        if not math.isfinite(results["loss"]):
            raise FloatingPointError(
                f"The loss of the evaluation at step {self.step} is {results['loss']}: the model "
                "computes no finite numbers. Train again with a lower --learning_rate, or evaluate "
                "another checkpoint."
            )
        return results

    @functools.cached_property
    def _eval_data(self) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        """The evaluation batches, whose pipeline is traced once for all evaluations."""
        size = self.config.eval_batch_size
        steps = self.config.max_eval_steps
        return self.distribute(lambda shard: self.task.eval_dataset(size, steps, shard))

    def distribute(
        self, make_dataset: Callable[[InputShard], tf.data.Dataset], num_parts: int = 1
    ) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        """Distributes batches to replicas, with packed rows if requested.

        Args:
          make_dataset: see `distribute`.
          num_parts: micro-batches that a replica's rows are split into.
        """
        pack = functools.partial(pack_batch, num_parts=num_parts)
        return distribute(self.strategy, make_dataset, pack if self.config.pack_rows else None)

    def leave_if_stopped(self) -> None:
        """Aborts an evaluation during training if a stop was requested; a resumed run repeats it.

        Raises:
          Stopped: if a stop was requested; the checkpoint is already written. With several hosts,
            no host stops alone.
        """
        if self._stop and self._stop.number and worker_of(self.strategy)[1] == 1:
            raise Stopped(self._stop.number)

    def note_samples(self) -> None:
        """Creates the samples of the current step, with the weights that evaluations use."""
        if self.samples:
            with self.optimizer.averaged_weights():
                self.samples.note(self.step)

    def is_evaluated(self) -> bool:
        """Returns whether there is an evaluation of the current step."""
        lines = read_metrics(self.evaluations_path)
        return self.step in [line["step"] for line in lines]

    def is_no_better(self) -> bool:
        """Returns whether the last `early_stopping_evaluations` brought no improvement."""
        patience = self.config.early_stopping_evaluations
        if not patience or not self.config.eval_steps:
            return False
        lines = read_metrics(self.evaluations_path)
        scores = [self.task.score(line) for line in lines if line["step"] <= self.step]
        return len(scores) > patience and max(scores[-patience:]) <= max(scores[:-patience])

    def comparison(self, results: dict[str, float]) -> str:
        """Describes an evaluation in comparison with the best so far and the baseline."""
        lines = read_metrics(self.evaluations_path)
        best = max(lines, key=self.task.score)
        if best["step"] == self.step:
            text = "; the best so far"
        else:
            same = {name: best[name] for name in results if name in best}
            text = f"; best so far: step {best['step']}, {as_text(same)}"
        if self.baseline is None:
            return text
        return f"{text}; baseline: {as_text(self.baseline())}"


def note_evaluation(path: pathlib.Path, step: int, results: dict[str, float]) -> None:
    """Adds a line to eval_metrics.jsonl, which replaces an earlier line of the same step."""
    lines = [line for line in read_metrics(path / EVALUATIONS) if line["step"] != step]
    lines = sorted([*lines, {"step": step, **results}], key=lambda line: line["step"])
    with atomic_write(path / EVALUATIONS) as file:
        file.writelines(map(json_line, lines))


def as_text(values: dict[str, float]) -> str:
    """Returns results as one line of text."""
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
