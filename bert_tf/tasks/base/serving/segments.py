"""Selects among the windows of a text inside the graph."""

import tensorflow as tf


def first_of_largest(scores: tf.Tensor, keys: tf.Tensor, num_keys: tf.Tensor) -> tf.Tensor:
    """Returns the position of the largest score of each key, the first of equal scores.

    Args:
      scores: [N].
      keys: int64 [N], with each of 0 .. num_keys - 1 at least once.
      num_keys: K.

    Returns:
      int64 [K].
    """
    largest = tf.math.unsorted_segment_max(scores, keys, num_keys)
    positions = tf.range(tf.size(scores, tf.int64))
    # Positions with a smaller score become the largest number, which the minimum ignores.
    positions = tf.where(scores == tf.gather(largest, keys), positions, positions.dtype.max)
    return tf.math.unsorted_segment_min(positions, keys, num_keys)
