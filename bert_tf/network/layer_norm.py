"""LayerNorm over the last axis, with an explicit gradient.

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
from bert_tf.network.xla_region import part


def normalize(inputs: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Normalizes rows, in float32.

    Args:
      inputs: float [..., D].
      gamma: float [D].
      beta: float [D].
      epsilon: added to the variance.

    Returns:
      [..., D], of the type of `inputs`.
    """

    @tf.custom_gradient
    def normalized(inputs: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> Any:
        outputs, mean, inverse = _forward(inputs, gamma, beta, epsilon)
        return outputs, lambda upstream: _backward(inputs, gamma, beta, mean, inverse, upstream)

    return normalized(inputs, gamma, beta)


@part
def _forward(
    inputs: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float
) -> tuple[tf.Tensor, ...]:
    """Returns the result, and mean and 1 / deviation of each row."""
    rows, gamma, beta = (tf.cast(x, tf.float32) for x in (inputs, gamma, beta))
    mean = tf.reduce_mean(rows, -1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(rows, mean), -1, keepdims=True)
    inverse = tf.math.rsqrt(variance + epsilon)
    # Summed up as Keras does it, to the same last digit.
    scale = inverse * gamma
    return tf.cast(rows * scale + (beta - mean * scale), inputs.dtype), mean, inverse


@part
def _backward(
    inputs: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    mean: tf.Tensor,
    inverse: tf.Tensor,
    upstream: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """Returns the slopes of inputs, gamma and beta."""
    wide = (tf.cast(x, tf.float32) for x in (inputs, gamma, upstream))
    rows, weights, upstream = wide
    axes = list(range(len(rows.shape) - 1))
    normal = (rows - mean) * inverse
    product = upstream * normal
    inner = upstream * weights
    along = tf.reduce_mean(inner * normal, -1, keepdims=True)
    slope = (inner - tf.reduce_mean(inner, -1, keepdims=True) - normal * along) * inverse
    return (
        tf.cast(slope, inputs.dtype),
        tf.cast(tf.reduce_sum(product, axes), gamma.dtype),
        tf.cast(tf.reduce_sum(upstream, axes), beta.dtype),
    )


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerNorm(keras.layers.LayerNormalization):
    """Keras' layer over the last axis; when training with the gradient above."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if not training:
            return super().call(inputs)
        beta = tf.zeros_like(self.gamma) if self.beta is None else self.beta
        inputs, gamma, beta = (tf.convert_to_tensor(x) for x in (inputs, self.gamma, beta))
        return tf.cast(normalize(inputs, gamma, beta, self.epsilon), self.compute_dtype)


def layer_norm(config: ModelConfig, dtype: Any, name: str = "LayerNorm") -> LayerNorm:
    """Makes a LayerNorm as the configuration has it, with beta or without."""
    return LayerNorm(
        epsilon=config.layer_norm_eps, center=config.has_bias("norm"), name=name, dtype=dtype
    )
