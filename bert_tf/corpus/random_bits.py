"""Random numbers in the graph: those of `splitmix.py`, bit for bit.

TensorFlow's stateless_* ops take one seed for a whole tensor, so the numbers of a row would depend
on its index in the batch; here they depend on the counters alone.
"""

import tensorflow as tf

from bert_tf.corpus.splitmix import GAMMA, MULTIPLIERS, SHIFTS


def random_bits(seed: int, *counters: tf.Tensor | int) -> tf.Tensor:
    """Returns 64 random bits for each tuple of counters, uint64 of their common shape.

    Args:
      seed: in [0, 2**64).
      *counters: non-negative ints or int tensors, broadcast from left to right.
    """
    bits = tf.constant(seed, tf.uint64)
    for counter in counters:
        # Counters from 1: with 0 the state would stay the seed.
        bits = mix64(bits + (tf.cast(counter, tf.uint64) + 1) * tf.constant(GAMMA, tf.uint64))
    return bits


def random_integers(bits: tf.Tensor, limit: int) -> tf.Tensor:
    """Maps random bits, uint64 of any shape, to integers in [0, limit), int32; limit <= 2**31.

    Scales the upper 32 bits: a value's probability differs from 1 / limit by less than 2**-32
    (relative: limit / 2**32, 7e-6 for a vocabulary of 30,522).
    """
    # A multiplication instead of a modulo: upper * limit / 2**32 needs fewer than 64 bits.
    upper = tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64))
    scaled = upper * tf.constant(limit, tf.uint64)
    return tf.cast(tf.bitwise.right_shift(scaled, tf.constant(32, tf.uint64)), tf.int32)


def mix64(state: tf.Tensor) -> tf.Tensor:
    """Returns SplitMix64's output for a state, uint64 of any shape."""
    # There are two multipliers for three shifts; the last shift has no product.
    for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=False):
        shifted = tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64))
        state = tf.bitwise.bitwise_xor(state, shifted) * tf.constant(multiplier, tf.uint64)
    shifted = tf.bitwise.right_shift(state, tf.constant(SHIFTS[-1], tf.uint64))
    return tf.bitwise.bitwise_xor(state, shifted)
