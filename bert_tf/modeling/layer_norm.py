"""LayerNorm over the last axis, its gradient written out.

  n = (x - mean) / sqrt(variance + epsilon)      y = n * gamma + beta      over each row, in float32

  d_n = d_y * gamma      d_x = (d_n - mean(d_n) - n * mean(d_n * n)) / sqrt(variance + epsilon)

Derived by TensorFlow from Keras' formula, the backward pass of one LayerNorm is 80 operations,
a third of those of a training step, and many of them pass over all pieces.

Reference: Ba et al. 2016; the backward pass is the usual one, as in Apex and PyTorch.
"""

from typing import Any

import keras
import tensorflow as tf

from bert_tf.config import ModelConfig


def normalize(inputs: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Normalizes rows.

    Args:
      inputs: float32 [..., D].
      gamma: float32 [D].
      beta: float32 [D].
      epsilon: added to the variance.

    Returns:
      float32 [..., D].
    """

    @tf.custom_gradient
    def normalized(inputs: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> Any:
        mean = tf.reduce_mean(inputs, -1, keepdims=True)
        variance = tf.reduce_mean(tf.math.squared_difference(inputs, mean), -1, keepdims=True)
        inverse = tf.math.rsqrt(variance + epsilon)
        # Summed up as Keras does it, to the same last digit.
        scale = inverse * gamma

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            rows = list(range(len(inputs.shape) - 1))
            normal = (inputs - mean) * inverse
            product = upstream * normal
            inner = upstream * gamma
            along = tf.reduce_mean(inner * normal, -1, keepdims=True)
            slope = (inner - tf.reduce_mean(inner, -1, keepdims=True) - normal * along) * inverse
            return slope, tf.reduce_sum(product, rows), tf.reduce_sum(upstream, rows)

        return inputs * scale + (beta - mean * scale), gradient

    return normalized(inputs, gamma, beta)


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerNorm(keras.layers.LayerNormalization):
    """Keras' layer over the last axis; when training with the gradient above."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if not training:
            return super().call(inputs)
        beta = tf.zeros_like(self.gamma) if self.beta is None else self.beta
        inputs, gamma, beta = (tf.cast(x, tf.float32) for x in (inputs, self.gamma, beta))
        return tf.cast(normalize(inputs, gamma, beta, self.epsilon), self.compute_dtype)


def layer_norm(config: ModelConfig, dtype: Any, name: str = "LayerNorm") -> LayerNorm:
    """Makes a LayerNorm as the configuration has it, with beta or without."""
    return LayerNorm(
        epsilon=config.layer_norm_eps, center=config.has_bias("norm"), name=name, dtype=dtype
    )
