"""The learning rate over time: linear warm-up, then linear decay to zero."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="bert_tf")
class LinearWarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises from 0 to the peak, then falls on the line that runs from the peak at step 0 to 0.

      step <  num_warmup_steps: learning_rate * step / num_warmup_steps
      step >= num_warmup_steps: learning_rate * (1 - min(step, num_train_steps) / num_train_steps)

    The first step is number 0, so with warm-up it changes nothing, and the rate jumps down a little
    where warm-up ends: both as in the original.

    Args:
      learning_rate: peak.
      num_train_steps: step at which the rate is 0.
      num_warmup_steps: steps of warm-up; 0 for none.

    Reference: google-research/bert optimization.py, create_optimizer.
    """

    def __init__(
        self, learning_rate: float, num_train_steps: int, num_warmup_steps: int = 0
    ) -> None:
        self.learning_rate = learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        done = ops.minimum(step, float(self.num_train_steps)) / self.num_train_steps
        rate = self.learning_rate * (1.0 - done)
        if self.num_warmup_steps:
            rising = self.learning_rate * (step / self.num_warmup_steps)
            rate = ops.where(step < self.num_warmup_steps, rising, rate)
        return rate

    def get_config(self) -> dict[str, Any]:
        return {
            "learning_rate": self.learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
        }
