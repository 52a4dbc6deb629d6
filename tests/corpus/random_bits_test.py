"""Random bits against SplitMix64 in Python integers, and published outputs."""

import numpy as np
import tensorflow as tf

from bert_tf.corpus.random_bits import random_bits, random_integers
from bert_tf.corpus.splitmix import numpy_random_bits

WORD = 2**64


def splitmix(state: int) -> int:
    """One output of SplitMix64 as published by Vigna (splitmix64.c); state after the increment."""
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % WORD
    state = (state ^ state >> 27) * 0x94D049BB133111EB % WORD
    return state ^ state >> 31


def slow_bits(seed: int, *counters: int) -> int:
    for counter in counters:
        seed = splitmix((seed + (counter + 1) * 0x9E3779B97F4A7C15) % WORD)
    return seed


def test_published_stream():
    # First outputs of java.util.SplittableRandom / splitmix64.c for seed 1234567.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert random_bits(1234567, tf.range(3)).numpy().tolist() == published
    assert numpy_random_bits(1234567, np.arange(3)).tolist() == published


def test_tensorflow_numpy_and_python_agree():
    epochs, examples, positions = (
        np.array([[0], [3], [2**40]]),
        np.array([[7], [0], [2**50]]),
        np.arange(5),
    )
    seed = 2**64 - 5
    expected = [
        [slow_bits(seed, int(e[0]), int(x[0]), 2, p) for p in range(5)]
        for e, x in zip(epochs, examples, strict=True)
    ]
    assert numpy_random_bits(seed, epochs, examples, 2, positions).tolist() == expected
    graph = tf.function(lambda *counters: random_bits(seed, *counters))
    tensors = [tf.constant(c) for c in (epochs, examples, np.int64(2), positions)]
    assert graph(*tensors).numpy().tolist() == expected


def test_integers_are_the_scaled_upper_half_and_uniform():
    bits = random_bits(5, tf.range(300_000))
    values = random_integers(bits, 10).numpy()
    assert values.tolist() == [(int(b) >> 32) * 10 >> 32 for b in bits.numpy()]
    counts = np.bincount(values, minlength=10)
    chi_square = ((counts - 30_000) ** 2 / 30_000).sum()
    assert chi_square < 29.7  # 9 degrees of freedom: exceeded with probability 0.0005
    top = random_integers(tf.constant([0, WORD - 1], tf.uint64), 30522)
    assert top.numpy().tolist() == [0, 30521]


def test_neighbouring_counters_are_unrelated():
    bits = numpy_random_bits(0, np.arange(64)[:, None], np.arange(64))  # [64, 64]
    assert len(np.unique(bits)) == bits.size
    flips = np.bitwise_xor(bits[:, 1:], bits[:, :-1]), np.bitwise_xor(bits[1:], bits[:-1])
    for differences in flips:
        ones = np.unpackbits(differences.view(np.uint8)).mean()
        assert abs(ones - 0.5) < 4 * 0.5 / np.sqrt(differences.size * 64)
