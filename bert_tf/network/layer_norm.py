"""LayerNorm over the last axis, with an explicit gradient.

  n = (x - mean) / sqrt(variance + epsilon)      y = n * gamma + beta      over each row, in float32

  d_n = d_y * gamma      d_x = (d_n - mean(d_n) - n * mean(d_n * n)) / sqrt(variance + epsilon)

The backward pass that TensorFlow derives from Keras' formula has 80 operations for one LayerNorm,
a third of all operations of a training step, and many of them pass over all tokens.

Reference: Ba et al. 2016; the backward pass is the usual one, as in Apex and PyTorch.
"""

import keras
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network.xla_region import xla_region
from bert_tf.system.type_names import Tensor


def normalize(inputs: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Normalizes rows float [..., D] in float32; gamma and beta are float [D]."""

    @tf.custom_gradient
    def normalized(inputs: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        outputs, mean, inverse = _forward(inputs, gamma, beta, epsilon)
        return outputs, lambda upstream: _backward(inputs, gamma, beta, mean, inverse, upstream)

    return normalized(inputs, gamma, beta)


@xla_region
def _forward(inputs: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> tuple[Tensor, ...]:
    """Returns the normalized rows, and mean and 1 / deviation of each row."""
    rows = tf.cast(inputs, tf.float32)
    gamma = tf.cast(gamma, tf.float32)
    beta = tf.cast(beta, tf.float32)
    mean = tf.reduce_mean(rows, -1, keepdims=True)  # [..., 1]
    variance = tf.reduce_mean(tf.math.squared_difference(rows, mean), -1, keepdims=True)
    inverse = tf.math.rsqrt(variance + epsilon)
    # In the order of Keras' formula, so that the results are bit for bit the same.
    scale = inverse * gamma
    return tf.cast(rows * scale + (beta - mean * scale), inputs.dtype), mean, inverse


@xla_region
def _backward(
    inputs: Tensor,
    gamma: Tensor,
    beta: Tensor,
    mean: Tensor,
    inverse: Tensor,
    upstream: Tensor,
) -> tuple[Tensor, ...]:
    """Returns the gradients of inputs, gamma and beta."""
    rows = tf.cast(inputs, tf.float32)
    weights = tf.cast(gamma, tf.float32)
    upstream = tf.cast(upstream, tf.float32)
    axes = list(range(len(rows.shape) - 1))
    normal = (rows - mean) * inverse  # n of the module's formula
    product = upstream * normal  # Summed over rows, the gradient of gamma.
    inner = upstream * weights  # d_n
    along = tf.reduce_mean(inner * normal, -1, keepdims=True)
    slope = (inner - tf.reduce_mean(inner, -1, keepdims=True) - normal * along) * inverse
    return (
        tf.cast(slope, inputs.dtype),
        tf.cast(tf.reduce_sum(product, axes), gamma.dtype),
        tf.cast(tf.reduce_sum(upstream, axes), beta.dtype),
    )


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerNorm(keras.layers.LayerNormalization):
    """Keras' LayerNormalization over the last axis, with `normalize` in training."""

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        # Inference needs no gradient.
        if not training:
            return super().call(inputs)
        beta = tf.zeros_like(self.gamma) if self.beta is None else self.beta
        inputs = tf.convert_to_tensor(inputs)
        gamma = tf.convert_to_tensor(self.gamma)
        beta = tf.convert_to_tensor(beta)
        return tf.cast(normalize(inputs, gamma, beta, self.epsilon), self.compute_dtype)


def layer_norm(config: ModelConfig, dtype: keras.DTypePolicy, name: str = "LayerNorm") -> LayerNorm:
    """Makes the LayerNorm of a configuration, with or without beta."""
    return LayerNorm(
        epsilon=config.layer_norm_eps, center=config.has_bias("norm"), name=name, dtype=dtype
    )
