"""Gradient clipping by the global norm of all gradients (Pascanu et al. 2013)."""

from collections.abc import Sequence

import tensorflow as tf


def global_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the norm of all gradients, dense float tensors, as of one vector: float32 []."""
    halves = [tf.nn.l2_loss(tf.cast(gradient, tf.float32)) for gradient in gradients]
    return tf.sqrt(2.0 * tf.add_n(halves))


def clip_scale(norm: tf.Tensor, clip_norm: float) -> tf.Tensor | float:
    """Returns the factor that brings gradients of this norm to at most `clip_norm`; 0: no limit."""
    return clip_norm / tf.maximum(norm, clip_norm) if clip_norm else 1.0
