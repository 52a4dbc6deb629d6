"""Random numbers that are a pure function of a seed and counters, in TensorFlow and in NumPy.

The n-th output of SplitMix64 is `mix64(seed + (n + 1) * GAMMA)`: a stream can be entered anywhere,
and nothing has to be carried from one draw to the next. For several counters (epoch, example, draw,
position) each output seeds the stream that the next counter enters.

TensorFlow's stateless_* ops take one seed for a whole tensor, so a row's numbers would depend on
its place in the batch; here they depend on the counters alone.

Reference: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", figure 17.
"""

import numpy as np
import tensorflow as tf

GAMMA = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, odd
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS = (30, 27, 31)


def random_bits(seed: int, *counters: tf.Tensor | int) -> tf.Tensor:
    """Returns 64 random bits for each tuple of counters.

    Args:
      seed: in [0, 2**64).
      *counters: non-negative ints or int tensors, broadcast from left to right.

    Returns:
      uint64, of the counters' common shape.
    """
    bits = tf.constant(seed, tf.uint64)
    for counter in counters:
        bits = mix64(bits + (tf.cast(counter, tf.uint64) + 1) * tf.constant(GAMMA, tf.uint64))
    return bits


def random_integers(bits: tf.Tensor, limit: int) -> tf.Tensor:
    """Maps random bits to integers in [0, limit), limit <= 2**31.

    Scales the upper 32 bits: a value's probability differs from 1 / limit by less than 2**-32
    (relative: limit / 2**32, 7e-6 for a vocabulary of 30,522).

    Args:
      bits: uint64 of any shape.
      limit: number of values.

    Returns:
      int32 of the shape of `bits`.
    """
    upper = tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64))
    scaled = upper * tf.constant(limit, tf.uint64)
    return tf.cast(tf.bitwise.right_shift(scaled, tf.constant(32, tf.uint64)), tf.int32)


def mix64(state: tf.Tensor) -> tf.Tensor:
    """Returns SplitMix64's output for a state, uint64 of any shape."""
    for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=False):
        shifted = tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64))
        state = tf.bitwise.bitwise_xor(state, shifted) * tf.constant(multiplier, tf.uint64)
    shifted = tf.bitwise.right_shift(state, tf.constant(SHIFTS[-1], tf.uint64))
    return tf.bitwise.bitwise_xor(state, shifted)


def numpy_random_bits(seed: int, *counters: np.ndarray | int) -> np.ndarray:
    """Returns exactly what `random_bits` returns, as an array."""
    bits = np.array(seed, np.uint64)
    with np.errstate(over="ignore"):  # modulo 2**64 is meant
        for counter in counters:
            bits = bits + (np.asarray(counter).astype(np.uint64) + np.uint64(1)) * np.uint64(GAMMA)
            for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=False):
                bits = (bits ^ bits >> np.uint64(shift)) * np.uint64(multiplier)
            bits = bits ^ bits >> np.uint64(SHIFTS[-1])
    return bits
