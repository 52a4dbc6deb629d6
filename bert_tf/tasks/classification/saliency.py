"""The contribution of each token to a score: gradient times input, for the token's embedding."""

from typing import Any

import numpy as np
import tensorflow as tf

BATCH_SIZE = 8


def token_contributions(
    model: Any, batch: dict[str, np.ndarray], columns: np.ndarray
) -> np.ndarray:
    """Returns the derivative of a score by a factor of each token's embedding, at the factor 1.

    This is the dot product of the embedding and the gradient of the score by the embedding. It is
    positive if the token raises the score.

    Args:
      model: a `BertClassifier`.
      batch: the encoder's inputs, int32 [B, T].
      columns: int [B] in [0, C), the class whose score is explained, for each row.

    Returns:
      float32 [B, T]; 0 at padding.

    Reference: Shrikumar et al. 2016, "Not Just a Black Box"; Atanasova et al. 2020.
    """
    parts = []
    # A few rows at a time: a gradient needs the activations of all layers.
    for start in range(0, len(columns), BATCH_SIZE):
        rows = {name: values[start : start + BATCH_SIZE] for name, values in batch.items()}
        chosen = tf.constant(columns[start : start + BATCH_SIZE], tf.int32)
        # The encoder multiplies the embedding of each token by its factor.
        factors = tf.ones(rows["input_mask"].shape, tf.float32)  # [B, T]
        with tf.GradientTape() as tape:
            tape.watch(factors)
            scores = model({**rows, "token_factors": factors}, training=False)  # [B, C]
            scores = tf.gather(scores, chosen, batch_dims=1)  # [B]
        parts.append(tape.gradient(scores, factors).numpy() * rows["input_mask"])
    return np.concatenate(parts)
