"""Learning rate schedules: linear warm-up, then one of four kinds of decay.

  linear       to 0 on the line from the peak at step 0: google-research/bert's
  polynomial   a power of the remaining share of the run: NVIDIA's (0.5) and MLPerf's (1)
  cosine       half a wave from the end of the warm-up: Loshchilov and Hutter 2017
  trapezoid    constant, then a line down over the last steps

The first step is number 0, so with warm-up it changes nothing.
"""

import dataclasses
import math
from typing import TypeAlias

import keras
import tensorflow as tf
from keras import ops

from bert_tf.config import OptimizerConfig
from bert_tf.system.type_names import Fields, Tensor

LearningRateSchedule: TypeAlias = keras.optimizers.schedules.LearningRateSchedule


class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from 0 to the peak, then follows `after_warmup` of the subclass.

    Args:
      learning_rate: peak.
      num_train_steps: steps of the run; after that the rate stays constant.
      num_warmup_steps: steps of warm-up; 0 for none.
    """

    def __init__(
        self, learning_rate: float, num_train_steps: int, num_warmup_steps: int = 0
    ) -> None:
        self.learning_rate = learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.cast(step, "float32")  # []
        rate = self.after_warmup(step)
        # `where` and not `if`, because the step is known only when the graph runs.
        if self.num_warmup_steps:
            rising = self.learning_rate * (step / self.num_warmup_steps)
            rate = ops.where(step < self.num_warmup_steps, rising, rate)
        return rate

    def after_warmup(self, step: Tensor) -> Tensor:
        """Returns the rate at a step after the warm-up, both float32 []."""
        raise NotImplementedError

    def get_config(self) -> Fields:
        return {
            "learning_rate": self.learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class LinearWarmupLinearDecay(Warmup):
    """Rises from 0 to the peak, then falls on the line that runs from the peak at step 0 to 0.

      step <  num_warmup_steps: learning_rate * step / num_warmup_steps
      step >= num_warmup_steps: learning_rate * (1 - min(step, num_train_steps) / num_train_steps)

    The rate jumps down a little where warm-up ends, as in the original. Arguments are those of
    `Warmup`.

    Reference: google-research/bert optimization.py, create_optimizer.
    """

    def after_warmup(self, step: Tensor) -> Tensor:
        done = ops.minimum(step, float(self.num_train_steps)) / self.num_train_steps
        return self.learning_rate * (1.0 - done)


class _WarmupToEnd(Warmup):
    """A `Warmup` that ends at `end_learning_rate`."""

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        end_learning_rate: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, num_train_steps, num_warmup_steps)
        self.end_learning_rate = end_learning_rate

    def _between(self, share: Tensor) -> Tensor:
        """Interpolates between the end rate (share 0) and the peak (share 1)."""
        return self.end_learning_rate + (self.learning_rate - self.end_learning_rate) * share

    def get_config(self) -> Fields:
        return {**super().get_config(), "end_learning_rate": self.end_learning_rate}


@keras.saving.register_keras_serializable(package="bert_tf")
class LinearWarmupPolynomialDecay(_WarmupToEnd):
    """Rises from 0 to the peak, then falls with a power of the share of the run that is left.

      step >= num_warmup_steps: end + (learning_rate - end) * (1 - step / num_train_steps) ** power

    The share counts from step 0, as in both sources, so the rate jumps down where warm-up ends: by
    15 % in NVIDIA's first phase. With power 1 and end 0 it is `LinearWarmupLinearDecay`.

    Args:
      learning_rate, num_train_steps, num_warmup_steps: see `Warmup`.
      end_learning_rate: rate at num_train_steps and beyond.
      power: above 0; 0.5 is a root.

    Reference: NVIDIA/DeepLearningExamples, PyTorch BERT schedulers.py, PolyWarmUpScheduler (it
    calls our step 0 step 1), and TensorFlow2 BERT optimization.py, create_optimizer; MLPerf's
    optimization.py, create_optimizer.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        end_learning_rate: float = 0.0,
        power: float = 1.0,
    ) -> None:
        super().__init__(learning_rate, num_train_steps, num_warmup_steps, end_learning_rate)
        self.power = power

    def after_warmup(self, step: Tensor) -> Tensor:
        done = ops.minimum(step, float(self.num_train_steps)) / self.num_train_steps
        return self._between(ops.power(1.0 - done, self.power))

    def get_config(self) -> Fields:
        return {**super().get_config(), "power": self.power}


@keras.saving.register_keras_serializable(package="bert_tf")
class LinearWarmupCosineDecay(_WarmupToEnd):
    """Rises from 0 to the peak, then falls on half a cosine wave that starts there.

      step >= num_warmup_steps: end + (learning_rate - end) * (1 + cos(pi * share)) / 2
      share = (step - num_warmup_steps) / (num_train_steps - num_warmup_steps)

    Arguments are those of `LinearWarmupPolynomialDecay`, without the power.

    Reference: Loshchilov and Hutter 2017 (SGDR), equation 5 without restarts.
    """

    def after_warmup(self, step: Tensor) -> Tensor:
        # At least one step, in case that warm-up fills the run.
        falling = max(1, self.num_train_steps - self.num_warmup_steps)
        done = ops.clip((step - float(self.num_warmup_steps)) / falling, 0.0, 1.0)
        return self._between(0.5 * (1.0 + ops.cos(math.pi * done)))


@keras.saving.register_keras_serializable(package="bert_tf")
class LinearWarmupTrapezoid(_WarmupToEnd):
    """Rises from 0 to the peak, stays there, and falls linearly over the last steps.

    Args:
      learning_rate, num_train_steps, num_warmup_steps: see `Warmup`.
      end_learning_rate: rate at num_train_steps and beyond.
      num_cooldown_steps: steps of the fall; 0: the rate stays constant.

    Reference: Hägele et al. 2024, section 3 (constant rate and cooldown).
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        end_learning_rate: float = 0.0,
        num_cooldown_steps: int = 0,
    ) -> None:
        super().__init__(learning_rate, num_train_steps, num_warmup_steps, end_learning_rate)
        self.num_cooldown_steps = num_cooldown_steps

    def after_warmup(self, step: Tensor) -> Tensor:
        if not self.num_cooldown_steps:
            return ops.full_like(step, self.learning_rate)
        # Above 1 before the cooldown, negative after the end of the run: `clip` gives both ends.
        left = (self.num_train_steps - step) / self.num_cooldown_steps
        return self._between(ops.clip(left, 0.0, 1.0))

    def get_config(self) -> Fields:
        return {**super().get_config(), "num_cooldown_steps": self.num_cooldown_steps}


class WarmupFactor(keras.optimizers.schedules.LearningRateSchedule):
    """The share of the peak in `LinearWarmupLinearDecay`, for a run whose length may change.

    The lengths are variables, so a training step that was traced for one run serves the next.
    """

    def __init__(self) -> None:
        self._steps = tf.Variable([1.0, 0.0], trainable=False, name="steps")

    def set_steps(self, num_train_steps: int, num_warmup_steps: int) -> None:
        """Sets the steps of the run and of its warm-up."""
        self._steps.assign([float(num_train_steps), float(num_warmup_steps)])

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.cast(step, "float32")
        num_train_steps = self._steps[0]
        num_warmup_steps = self._steps[1]
        # Without warm-up the quotient is unused, but its denominator must not be 0.
        rising = step / ops.maximum(num_warmup_steps, 1.0)
        falling = 1.0 - ops.minimum(step, num_train_steps) / num_train_steps
        return ops.where(step < num_warmup_steps, rising, falling)

    def get_config(self) -> Fields:
        num_train_steps, num_warmup_steps = map(int, self._steps.numpy())
        return {"num_train_steps": num_train_steps, "num_warmup_steps": num_warmup_steps}


class ByShare(keras.optimizers.schedules.LearningRateSchedule):
    """Another schedule as a function of the completed share of the run, instead of the step.

    Args:
      schedule: a schedule of UNITS steps.
    """

    UNITS = 10_000

    def __init__(self, schedule: Warmup) -> None:
        self.schedule = schedule
        self._plan = tf.Variable([0.0, 0.0, 1.0], trainable=False, name="plan")

    def set_plan(self, first_step: int, first_share: float, last_step: int) -> None:
        """Lets the share go from `first_share` at `first_step` to 1 at `last_step`."""
        # At least one step, because the share is divided by their number.
        self._plan.assign([float(first_step), first_share, float(max(first_step + 1, last_step))])

    def __call__(self, step: Tensor) -> Tensor:
        first, share, last = tf.unstack(self._plan)
        # The share grows linearly from `share` at `first` to 1 at `last`.
        share += (1.0 - share) * (ops.cast(step, "float32") - first) / (last - first)
        return self.schedule(self.UNITS * ops.clip(share, 0.0, 1.0))

    def get_config(self) -> Fields:
        raise NotImplementedError("The plan of a run belongs to its checkpoints.")


def build_schedule(config: OptimizerConfig) -> Warmup | ByShare:
    """Makes the configured schedule; ValueError if warm-up and cooldown are longer than the run."""
    config.check_lengths()
    if config.train_minutes:
        # The number of steps is unknown, so the schedule is a function of the share of the run.
        whole = dataclasses.replace(
            config,
            train_minutes=0.0,
            num_train_steps=ByShare.UNITS,
            num_warmup_steps=int(ByShare.UNITS * config.warmup_proportion),
            num_cooldown_steps=int(ByShare.UNITS * config.cooldown_proportion),
        )
        return ByShare(build_schedule(whole))
    steps = (config.learning_rate, config.num_train_steps, config.num_warmup_steps)
    end = config.end_learning_rate
    match config.learning_rate_schedule:
        case "polynomial":
            return LinearWarmupPolynomialDecay(*steps, end, config.decay_power)
        case "cosine":
            return LinearWarmupCosineDecay(*steps, end)
        case "trapezoid":
            return LinearWarmupTrapezoid(*steps, end, config.num_cooldown_steps)
        case _:
            return LinearWarmupLinearDecay(*steps)
