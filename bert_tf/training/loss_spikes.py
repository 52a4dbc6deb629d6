"""Detects and handles steps whose loss or gradients are not finite, or whose loss jumps.

    stop     the run ends; nothing after the last checkpoint is saved
    skip     the update of the step is skipped
    rewind   the run returns to the last checkpoint and continues with the batches after the bad
             one, without those that led to it (Chowdhery et al. 2022, PaLM, section 5.1)

The decision is made in the graph, before a weight changes, from numbers that are part of a
checkpoint: a run that is killed and resumed decides, skips and rewinds like an uninterrupted one.
"""

import json
import math
import pathlib
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.config import TrainingConfig
from bert_tf.training.metrics_log import read_metrics

Row = dict[str, float]


class LossGuard:
    """Compares the loss of a step with the losses of the preceding `WINDOW` accepted steps.

    Args:
      spike_sigmas: a loss is a spike if it is more than this many standard deviations above the
        mean; 0: never. The first `WINDOW` steps have no spikes.
    """

    WINDOW = 100

    def __init__(self, spike_sigmas: float) -> None:
        self.spike_sigmas = spike_sigmas
        self.losses = tf.Variable(tf.zeros([self.WINDOW]), trainable=False, name="losses")
        self.count = tf.Variable(0, trainable=False, name="count")

    def check(self, loss: tf.Tensor, is_finite: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns whether a step is good, bool [], and the largest loss allowed, float32 [].

        Args:
          loss: float32 [], the loss of the step.
          is_finite: bool [], whether the gradients are finite.
        """
        limit = tf.constant(math.inf)
        if self.spike_sigmas:
            mean = tf.reduce_mean(self.losses)
            deviation = tf.math.reduce_std(self.losses)
            threshold = mean + self.spike_sigmas * deviation
            limit = tf.where(self.count >= self.WINDOW, threshold, limit)
        is_good = is_finite & tf.math.is_finite(loss) & (loss <= limit)
        # A ring buffer. Bad losses do not enter it: they would raise the limit.
        is_next = tf.equal(tf.range(self.WINDOW), self.count % self.WINDOW)
        self.losses.assign(tf.where(is_good & is_next, loss, self.losses))
        self.count.assign_add(tf.cast(is_good, tf.int32))
        return is_good, limit

    def state(self) -> dict[str, Any]:
        """Returns the values to save in a checkpoint."""
        return {"losses": self.losses.numpy().tolist(), "count": int(self.count.numpy())}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the result of `state`; {} starts from 0."""
        self.losses.assign(state.get("losses", [0.0] * self.WINDOW))
        self.count.assign(state.get("count", 0))


class LossSpikes:
    """Counts bad steps, records them in events.jsonl, and ends the run after too many.

    Attributes:
      batches_left_out: batches skipped by all rewinds; a step's batch is `step + batches_left_out`.
      not_finite_in_a_row: the last steps whose loss or gradients were not finite.
    """

    def __init__(
        self, config: TrainingConfig, path: pathlib.Path, loss_names: tuple[str, ...]
    ) -> None:
        self.policy = config.on_bad_loss
        self.limit = config.max_bad_losses
        self.path = path / "events.jsonl"
        self.loss_names = loss_names
        self.batches_left_out = 0
        self._rewinds = 0
        self._skipped_in_a_row = 0
        # Skipped steps since the last finite loss. A spike is finite: the weights can still learn.
        self.not_finite_in_a_row = 0

    def state(self) -> dict[str, Any]:
        """Returns the values to save in a checkpoint."""
        return {
            "batches_left_out": self.batches_left_out,
            "rewinds": self._rewinds,
            "skipped_in_a_row": self._skipped_in_a_row,
            "not_finite_in_a_row": self.not_finite_in_a_row,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the result of `state`, but keeps counting the rewinds of this process."""
        self.batches_left_out = state.get("batches_left_out", 0)
        self._rewinds = max(self._rewinds, state.get("rewinds", 0))
        self._skipped_in_a_row = state.get("skipped_in_a_row", 0)
        self.not_finite_in_a_row = state.get("not_finite_in_a_row", 0)

    def find(self, row: Row) -> str:
        """Describes the fault of a step; "" for a good step."""
        bad = [name for name in self.loss_names if not math.isfinite(row[f"{name}_total"])]
        # The norm is 0 if a smaller loss scale avoids the overflow.
        if not math.isfinite(row["gradient_norm"]):
            bad.append("gradient_norm")
        if bad:
            self.not_finite_in_a_row += 1
            return f"{', '.join(bad)} is not a finite number"
        self.not_finite_in_a_row = 0
        if row.get("is_good", 1.0):
            self._skipped_in_a_row = 0
            return ""
        return f"the loss {self._loss(row):.4g} is a spike, above {row['loss_limit']:.4g}"

    def decide(self, step: int, row: Row, fault: str, is_chief: bool) -> str:
        """Counts and records a bad step; returns the policy, or "stop" after too many."""
        self._skipped_in_a_row += 1
        action = self.policy
        # Skipped steps count in a row, rewinds over the whole run.
        count = self._skipped_in_a_row
        if action == "rewind":
            self._rewinds += 1
            count = self._rewinds
        if count > self.limit:
            action = "stop"
        event = {"step": step, "event": fault, "done": action}
        if action == "rewind":
            event["number"] = count
        values = {"loss": self._loss(row), **row}
        for key in ("loss", "loss_limit", "learning_rate", "gradient_norm"):
            if key in values:
                value = values[key]
                event[key] = value if math.isfinite(value) else str(value)
        logging.warning("Step %d: %s: %s.", step, fault, action)
        # A resumed run repeats the event, which is recorded once.
        if is_chief and event not in read_metrics(self.path):
            with self.path.open("a", encoding="utf8") as file:
                file.write(json.dumps(event) + "\n")
        return action

    def _loss(self, row: Row) -> float:
        loss = 0.0
        for name in self.loss_names:
            if weight := row[f"{name}_weight"]:
                loss += row[f"{name}_total"] / weight
        return loss
