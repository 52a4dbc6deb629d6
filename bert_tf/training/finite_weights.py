"""Finds weights that are too large to compute with, and ends Keras' `fit` on losses without value.

After too large an update, weights may be finite although nothing can be computed with them: their
squares, which every normalisation needs, exceed the largest float32.
"""

import math
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf


def unusable_weight(variables: Iterable[Any]) -> str:
    """Returns the path of a variable with a value whose square is not finite; "" if none has."""
    for variable in variables:
        square = tf.square(tf.cast(tf.convert_to_tensor(variable), tf.float32))
        if not bool(tf.reduce_all(tf.math.is_finite(square))):
            return str(variable.path)
    return ""


class FiniteLosses(keras.callbacks.Callback):
    """Ends `fit` with FloatingPointError after an epoch whose loss is not a finite number.

    Keras' own callback for NaN only stops, so that the caller gets a model that is useless.
    The loss is read once an epoch: reading it at each step would make the steps wait.
    """

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        for name in ("loss", "val_loss"):
            value = float((logs or {}).get(name, 0.0))
            if not math.isfinite(value):
                self._fail(f"{name} is {value} in epoch {epoch + 1}")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if path := unusable_weight(self.model.trainable_variables):
            self._fail(f"the weight {path} is too large or not a number")

    def _fail(self, fault: str) -> None:
        raise FloatingPointError(
            f"fit: {fault}: the training diverged, and the model's weights are useless. Load or "
            "build the model again, and fit it with a lower learning_rate; if this does not help, "
            "look for NaN in the labels and weights."
        )
