"""Statistics of the hashed masks: bounds are 4 standard deviations, missed once in 16,000 draws."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.network.dropout import Dropout, _sequence, dropout, mix, random_bits
from bert_tf.network.xla_region import compile_xla_regions

SHAPE = (64, 8, 32, 32)
SIZE = np.prod(SHAPE)


def lowbias32(x: int) -> int:
    """Wellons' function as published, in Python integers."""
    x ^= x >> 16
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def kept(seed: int, salt: int = 0, rate: float = 0.1) -> np.ndarray:
    return dropout(tf.ones(SHAPE), rate, tf.constant(seed), salt).numpy() != 0


def assert_uncorrelated(one: np.ndarray, two: np.ndarray) -> None:
    correlation = np.corrcoef(one.ravel(), two.ravel())[0, 1]
    assert abs(correlation) < 4 / np.sqrt(one.size)


def test_mixer_is_the_published_one():
    values = [0, 1, 2, 12345, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
    received = mix(tf.constant(np.array(values, np.uint32).view(np.int32))).numpy().view(np.uint32)
    assert received.tolist() == [lowbias32(value) for value in values]


def slow_bits(index: int, seed: int, salt: int) -> int:
    """The sequence in Python integers: the published mixer up to its last shift, with two keys."""
    word, golden_ratio = 0xFFFFFFFF, 0x9E3779B9
    key_1 = lowbias32(seed + salt * golden_ratio & word)
    key_2 = lowbias32(key_1 ^ (~salt * golden_ratio & word))
    x = index ^ key_1
    x ^= x >> 16
    x = x * 0x7FEB352D & word
    x ^= x >> 15
    return (x + key_2) * 0x846CA68B & word


def test_bits_are_those_of_the_slow_twin():
    for seed, salt in [(0, 0), (7, 3), (2**31 - 1, 40)]:
        bits = random_bits((2, 70_000), tf.constant(seed), salt).numpy().ravel().view(np.uint32)
        for index in (0, 1, 2, 40_000, 65_535, 65_536, 99_999, 139_999):
            assert int(bits[index]) == slow_bits(index, seed, salt)


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.9])
def test_rate_and_scale(rate):
    outputs = dropout(tf.fill(SHAPE, 3.0), rate, tf.constant(11), salt=2).numpy()
    dropped = (outputs == 0).mean()
    assert abs(dropped - rate) < 4 * np.sqrt(rate * (1 - rate) / SIZE)
    np.testing.assert_allclose(outputs[outputs != 0], 3.0 / (1.0 - rate), rtol=1e-6)


def test_rate_is_even_over_every_axis():
    mask = kept(5)
    for axis in range(4):
        others = tuple(i for i in range(4) if i != axis)
        share = mask.mean(others)
        bound = 5 * np.sqrt(0.09 / (SIZE / SHAPE[axis]))  # up to 64 means are looked at
        assert np.abs(share - 0.9).max() < bound


def test_seeds_salts_rows_and_neighbours_are_independent():
    mask = kept(0)
    for seed, salt in [(1, 0), (2, 0), (-1, 0), (2**31 - 1, 0), (0, 1), (0, 2), (1, 1), (0, 36)]:
        assert_uncorrelated(mask, kept(seed, salt))
    flat = mask.ravel()
    for distance in (1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 64, 128, 1024, 8192, 2**15, 2**17):
        assert_uncorrelated(flat[:-distance], flat[distance:])


def test_no_two_layers_share_a_sequence():
    bits = [random_bits((1 << 16,), tf.constant(9), salt).numpy() for salt in range(4)]
    for one in range(4):
        for two in range(one):
            common = np.intersect1d(bits[one], bits[two]).size
            assert common < 10  # chance: 2**32 / 2**32 = 1 expected


def test_masks_of_all_shapes_and_layers_are_traced_once():
    random_bits((3,), tf.constant(1), 0)
    traced = _sequence.experimental_get_tracing_count()  # more than one after other tests' devices
    for salt, shape in enumerate([(2, 5), (4, 1, 2), (6,)]):
        assert random_bits(shape, tf.constant(1), salt).shape == shape
    assert _sequence.experimental_get_tracing_count() == traced


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("shape", "of_rows", "before"),
    [((6, 2, 3), True, (2, 99)), ((6, 5), False, (99, 2)), ((6, 3, 5), False, (99, 6))],
)
def test_parts_have_the_masks_of_the_whole(compiled, shape, of_rows, before):
    """Cut behind the second row, of attention or pieces; of [B, T, D] it has 3 pieces."""
    with compile_xla_regions(compiled):
        whole = dropout(tf.ones(shape), 0.4, tf.constant(8), 2, of_rows).numpy()
        ones = tf.ones((4, *shape[1:]))
        part = dropout(ones, 0.4, tf.constant([8, *before]), 2, of_rows)
    np.testing.assert_array_equal(part, whole[2:])
    assert whole.any() and not whole.all()


def test_spectrum_is_flat():
    signal = (kept(3).reshape(512, 1024) - 0.9) / 0.3
    power = np.abs(np.fft.fft2(signal)) ** 2 / signal.size
    power[0, 0] = 0.0
    assert power.max() < 25.0  # exponential, mean 1, 2**19 values: chance 7e-6


@pytest.mark.parametrize("jit_compile", [False, True])
def test_same_mask_eager_graph_and_compiled(jit_compile):
    run = tf.function(lambda x, s: dropout(x, 0.3, s, 4), jit_compile=jit_compile)
    eager = dropout(tf.ones((3, 5, 7)), 0.3, tf.constant(1), 4)
    np.testing.assert_array_equal(run(tf.ones((3, 5, 7)), tf.constant(1)), eager)


def test_gradient_uses_the_same_mask():
    x = tf.ones((50, 50))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = dropout(x, 0.25, tf.constant(6), 0)
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def test_layer():
    layer = Dropout(0.2, salt=3)
    x = tf.random.normal((4, 6))
    assert layer(x) is x or np.array_equal(layer(x), x)
    np.testing.assert_array_equal(
        layer(x, dropout_seed=tf.constant(1)), dropout(x, 0.2, tf.constant(1), 3)
    )
    assert not layer.variables
    twin = keras.layers.deserialize(keras.layers.serialize(layer))
    assert (twin.rate, twin.salt) == (0.2, 3)
    half = dropout(tf.ones((8, 8), tf.float16), 0.5, tf.constant(1), 0)
    assert half.dtype == tf.float16
    with pytest.raises(ValueError, match=r"Dropout .* 1\.0, .* 0 <= rate < 1"):
        Dropout(1.0, salt=0)
