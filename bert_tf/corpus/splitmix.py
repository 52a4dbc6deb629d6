"""Random numbers that are a pure function of a seed and counters, in NumPy alone.

The n-th output of SplitMix64 is `mix64(seed + (n + 1) * GAMMA)`: a stream can be entered anywhere,
and nothing has to be carried from one draw to the next. For several counters (epoch, example, draw,
position) each output seeds the stream that the next counter enters. `random_bits.py` gives the
same numbers in the graph.

Reference: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", figure 17.
"""

import numpy as np

GAMMA = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, odd
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS = (30, 27, 31)
UNIT = 2.0**-53


def numpy_random_bits(seed: int, *counters: np.ndarray | int) -> np.ndarray:
    """Returns 64 random bits for each tuple of counters, uint64 of their common shape.

    Args:
      seed: in [0, 2**64).
      *counters: non-negative ints or int arrays, broadcast from left to right.
    """
    bits = np.array(seed, np.uint64)
    with np.errstate(over="ignore"):  # modulo 2**64 is meant
        for counter in counters:
            count = np.asarray(counter).astype(np.uint64) + np.uint64(1)
            bits = mix64(bits + count * np.uint64(GAMMA))
    return bits


def hash64(*keys: np.ndarray | int) -> np.ndarray:
    """Mixes 64-bit integers, negative ones and hashes among them, to one; keys broadcast."""
    state = np.zeros(1, np.uint64)
    for key in keys:
        # Two's complement: NumPy refuses to convert a negative Python int to uint64.
        if isinstance(key, int):
            key = key & 0xFFFFFFFFFFFFFFFF
        state = state * np.uint64(GAMMA) + np.asarray(key).astype(np.uint64)
        state = mix64(state + np.uint64(GAMMA))
    return state


def uniform(*keys: np.ndarray | int) -> np.ndarray:
    """Returns float64 in [0, 1), a pure function of the keys."""
    # A float64 has 53 bits of mantissa, so each of the 2**53 values is exact and below 1.
    return (hash64(*keys) >> np.uint64(11)) * UNIT


def mix64(state: np.ndarray) -> np.ndarray:
    """Returns SplitMix64's output for a state, uint64 of any shape."""
    # There are two multipliers for three shifts; the last shift has no product.
    for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=False):
        state = (state ^ state >> np.uint64(shift)) * np.uint64(multiplier)
    return state ^ state >> np.uint64(SHIFTS[-1])
