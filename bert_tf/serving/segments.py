"""Choosing among windows inside the graph."""

import tensorflow as tf


def first_of_largest(scores: tf.Tensor, keys: tf.Tensor, num_keys: tf.Tensor) -> tf.Tensor:
    """Returns where the largest score of each key stands, the first of equal ones.

    Args:
      scores: [N].
      keys: int64 [N], each of 0 .. num_keys - 1 at least once.
      num_keys: K.

    Returns:
      int64 [K].
    """
    largest = tf.math.unsorted_segment_max(scores, keys, num_keys)
    places = tf.range(tf.size(scores, tf.int64))
    places = tf.where(scores == tf.gather(largest, keys), places, places.dtype.max)
    return tf.math.unsorted_segment_min(places, keys, num_keys)
