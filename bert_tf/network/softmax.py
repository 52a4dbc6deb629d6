"""The softmax of attention scores, in float32, with a gradient that needs only the result."""

import tensorflow as tf
from keras import ops

from bert_tf.network.attention_form import current_form
from bert_tf.network.xla_region import are_xla_regions_compiled, xla_region
from bert_tf.system.type_names import Tensor


def softmax(scores: Tensor, bias: Tensor) -> Tensor:
    """Returns softmax(scores + bias), computed in float32, in the dtype of the scores."""
    if not are_xla_regions_compiled() and current_form() != "by_heads":
        return _probabilities(scores, bias)

    # With an explicit gradient the backward pass is a region to compile as well, and needs only the
    # probabilities, not the scores. In half precision, which TPUs have, it keeps half the bytes.
    @tf.custom_gradient
    def probabilities(scores: Tensor) -> Tensor:
        probs = _probabilities(scores, bias)
        return probs, lambda upstream: _slope_of_scores(probs, upstream)

    return probabilities(scores)


@xla_region
def _probabilities(scores: Tensor, bias: Tensor) -> Tensor:
    return ops.cast(ops.softmax(ops.cast(scores, "float32") + bias), scores.dtype)


@xla_region
def _slope_of_scores(probs: Tensor, upstream: Tensor) -> Tensor:
    wide = tf.cast(probs, tf.float32)
    slope = tf.cast(upstream, tf.float32)
    # The gradient of softmax: p * (g - sum of p * g over the keys).
    slope = (slope - tf.reduce_sum(slope * wide, -1, keepdims=True)) * wide
    return tf.cast(slope, probs.dtype)
