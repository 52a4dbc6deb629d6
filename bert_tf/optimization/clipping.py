"""Clipping by the global norm: all gradients as one vector (Pascanu et al. 2013)."""

from collections.abc import Sequence

import tensorflow as tf


def global_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the norm of all gradients, dense float tensors, as of one vector: float32 []."""
    halves = [tf.nn.l2_loss(tf.cast(gradient, tf.float32)) for gradient in gradients]
    return tf.sqrt(2.0 * tf.add_n(halves))


def clip_scale(norm: tf.Tensor, clip_norm: float) -> tf.Tensor | float:
    """Returns the factor that brings gradients of this norm to at most `clip_norm`; 0: no limit."""
    return clip_norm / tf.maximum(norm, clip_norm) if clip_norm else 1.0


def clip_by_global_norm(
    gradients: Sequence[tf.Tensor], clip_norm: float, norm: tf.Tensor | None = None
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Scales all gradients alike so that their global norm is at most `clip_norm`.

    Args:
      gradients: dense float tensors.
      clip_norm: largest norm; 0 for no clipping.
      norm: their `global_norm`, if it is known.

    Returns:
      The gradients and their norm before clipping, float32 [].
    """
    norm = global_norm(gradients) if norm is None else norm
    if not clip_norm:
        return list(gradients), norm
    scale = clip_scale(norm, clip_norm)
    return [g * tf.cast(scale, g.dtype) for g in gradients], norm
