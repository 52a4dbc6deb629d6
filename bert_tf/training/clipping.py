"""Gradient clipping by the global norm of all gradients (Pascanu et al. 2013)."""

from collections.abc import Sequence

import tensorflow as tf

from bert_tf.system.type_names import Tensor


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Returns the norm of all gradients, dense float tensors, as of one vector: float32 []."""
    # l2_loss is half the sum of squares, in one fused operation; in float32, where a float16 sum
    # overflows.
    halves = [tf.nn.l2_loss(tf.cast(gradient, tf.float32)) for gradient in gradients]
    return tf.sqrt(2.0 * tf.add_n(halves))


def clip_scale(norm: Tensor, clip_norm: float) -> Tensor | float:
    """Returns the factor that brings gradients of this norm to at most `clip_norm`; 0: no limit."""
    if clip_norm:
        return clip_norm / tf.maximum(norm, clip_norm)
    return 1.0
