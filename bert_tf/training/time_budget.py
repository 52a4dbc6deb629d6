"""A run with a limit in minutes instead of steps.

    learning rate at a step = schedule(share), where share goes from 0 at the first step to 1 at the
    last

The first steps measure how many steps fit into the time, and the number is updated when the machine
gets faster or slower. After an update, the share of the run rises linearly from its current value
to 1 at the new last step: the rate never jumps, and the decay ends with the budget.

    plan (s, a, e): share(step) = a + (1 - a) * (step - s) / (e - s)

The plan and the seconds used are part of a checkpoint. A resumed run continues with both, so it
takes the same steps as an uninterrupted one, as long as the machine keeps its speed.
"""

import bisect
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from absl import logging

from bert_tf.config import TrainingConfig
from bert_tf.training.batch_ramp import stage_of
from bert_tf.training.schedules import ByShare

TOLERANCE = 0.02  # Smaller changes of the last step, relative to the remaining steps, are ignored.
FAR_AWAY = 1 << 24  # The last step before the first measurement: the share stays at 0.
SAVE_SECONDS = 1.0  # reserved for the end of the run, in addition to an evaluation
PATIENCE_SECONDS = 60.0  # tolerated in addition to ten times the expected time of a tick


class StepPlan(NamedTuple):
    """The share of the run rises from `first_share` at `first_step` to 1 at `last_step`."""

    first_step: int
    first_share: float
    last_step: int

    def share(self, step: int) -> float:
        """Returns the share of the run that is done before a step, 0 to 1."""
        progress = (step - self.first_step) / max(1, self.last_step - self.first_step)
        return min(1.0, self.first_share + (1.0 - self.first_share) * progress)


class NoBudget:
    """The budget of a run with a number of steps: nothing is counted, and its last step stays."""

    is_limited = False
    budget = math.inf

    def __init__(self, last_step: int) -> None:
        self.used = 0.0
        self.plan = StepPlan(0, 0.0, last_step)

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores nothing."""

    def start(self, skips_compilation: bool = False) -> None:
        """Starts nothing."""

    def tick(self, expected: float, most: float = math.inf) -> float:
        return 0.0

    def last_step(self, *measured: float) -> int:
        return self.plan.last_step


class TimeBudget:
    """Counts the seconds of a run and decides which step is the last.

    Args:
      schedule: the optimizer's schedule, which is given each plan.
      training: gives the batch sizes.
      now: a monotonic clock in seconds.

    Attributes:
      used: seconds counted so far, including earlier processes.
      plan: the current plan.
    """

    is_limited = True

    def __init__(
        self,
        minutes: float,
        schedule: ByShare,
        training: TrainingConfig,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.budget = 60.0 * minutes
        self._schedule = schedule
        self._training = training
        self._now = now
        self.used = 0.0
        self._last = now()
        self._skips_tick = False
        self._set(StepPlan(0, 0.0, FAR_AWAY))

    def _set(self, plan: StepPlan) -> None:
        self.plan = plan
        self._schedule.set_plan(*plan)

    def state(self) -> dict[str, Any]:
        """Returns the values to save in a checkpoint."""
        return {"used": self.used, "plan": list(self.plan)}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the result of `state`; {} starts from 0."""
        self.used = state.get("used", 0.0)
        self._set(StepPlan(*state.get("plan", (0, 0.0, FAR_AWAY))))

    def start(self, skips_compilation: bool = False) -> None:
        """Starts counting.

        Args:
          skips_compilation: whether the time of the first tick does not count. A resumed run
            compiles its step again, which would otherwise make it shorter than an uninterrupted
            one.
        """
        self._last = self._now()
        self._skips_tick = skips_compilation

    def tick(self, expected: float, most: float = math.inf) -> float:
        """Counts the seconds since the last tick and returns them.

        Args:
          expected: the expected seconds. If far more have passed, the process was suspended, and
            only the expected seconds count. 0: unknown.
          most: the most seconds that count; the rest was spent on compiling again.
        """
        now = self._now()
        seconds = now - self._last
        self._last = now
        if self._skips_tick:
            self._skips_tick = False
            return seconds
        if expected and seconds > 10 * expected + PATIENCE_SECONDS:
            logging.warning(
                "%.0f s passed instead of the expected %.0f s: was the machine suspended, or the "
                "process stopped? The difference does not count for --train_for.",
                seconds,
                expected,
            )
            seconds = expected
        seconds = min(seconds, most)
        self.used += seconds
        return seconds

    def last_step(
        self,
        step: int,
        batch: int,
        step_seconds: float,
        evaluation: float,
        compilation: float = 0.0,
    ) -> int:
        """Returns the last step, after making a new plan if necessary.

        Called after a step and before its evaluation.

        Args:
          step: optimizer steps done.
          batch: number of the next batch.
          step_seconds: current seconds per step; 0 if unknown.
          evaluation: seconds of an evaluation, during training or at its end.
          compilation: seconds of compiling the step for another size of batches.

        Raises:
          ValueError: if the first steps used up the budget.
        """
        reserve = SAVE_SECONDS + evaluation
        planned = self.plan.last_step
        left = self.budget - self.used - reserve
        count = 0
        if step_seconds:
            count = self._steps_within(left, batch, step_seconds, compilation)
        if count and (every := self._training.eval_steps):

            def is_too_long(steps: int) -> bool:
                num_evaluations = (step + steps - 1) // every - (step - 1) // every
                seconds = left - evaluation * num_evaluations
                return steps > self._steps_within(seconds, batch, step_seconds, compilation)

            # More steps mean more evaluations, which leave less time: find the most steps that fit.
            count = bisect.bisect_left(range(1, count + 1), True, key=is_too_long)
        if planned == FAR_AWAY and step and (left <= 0 or step_seconds and not count):
            raise ValueError(
                f"--train_for={self.budget / 60:g}min is over after step {step}: compilation "
                f"took {self.used:.0f} s, and evaluation and save need about {reserve:.0f} s. "
                f"Give at least {(self.used + reserve) / 30:.1f} minutes."
            )
        # Steps after the planned end would all have the final learning rate.
        if not step_seconds or step >= planned:
            return planned
        last = step + count
        if abs(last - planned) > max(1.0, TOLERANCE * (planned - step)):
            self._set(StepPlan(step, self.plan.share(step), last))
            if planned == FAR_AWAY:
                logging.info("--train_for=%gmin: about %d steps.", self.budget / 60, last)
        return self.plan.last_step

    def _steps_within(
        self, seconds: float, batch: int, step_seconds: float, compilation: float
    ) -> int:
        """Returns the number of steps that fit into `seconds`, with growing batches."""
        steps = 0
        stage = stage_of(self._training, batch)
        # The time of a step is assumed to be proportional to its number of rows.
        seconds_per_row = step_seconds / stage.batch_size
        while stage.end is not None and seconds > 0:
            seconds_per_step = seconds_per_row * stage.batch_size
            count = min(stage.end - batch, int(seconds / seconds_per_step))
            steps += count
            seconds -= count * seconds_per_step
            if batch + count < stage.end:
                return steps
            batch = stage.end
            stage = stage_of(self._training, batch)
            seconds -= compilation
        return steps + max(0, int(seconds / (seconds_per_row * stage.batch_size)))
