"""Relative positions: against loops over all pairs of tokens."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network.position_schemes import make_positions
from bert_tf.network.relative_positions import distance_buckets, expand_distances
from tests.float_bounds import assert_close


@pytest.mark.parametrize(("num_queries", "num_keys"), [(1, 1), (5, 5), (4, 12), (9, 3)])
def test_each_pair_gets_the_term_of_its_distance(num_queries, num_keys):
    width = num_queries + num_keys - 1
    terms = np.random.default_rng(0).normal(size=(2, 3, num_queries, width)).astype(np.float32)
    received = expand_distances(tf.constant(terms), num_queries, num_keys).numpy()
    assert received.shape == (2, 3, num_queries, num_keys)
    for i in range(num_queries):
        for j in range(num_keys):
            expected = terms[:, :, i, j - i + num_queries - 1]
            np.testing.assert_array_equal(received[:, :, i, j], expected)


def bucket_of(distance: int, num_buckets: int, max_distance: int) -> int:
    """T5's bucket as its paper describes it, in whole numbers and exact logarithms."""
    half = num_buckets // 2
    exact = half // 2
    start = half if distance > 0 else 0
    distance = abs(distance)
    if distance < exact:
        return start + distance
    growth = math.log(distance / exact) / math.log(max_distance / exact) * (half - exact)
    return start + min(exact + int(growth + 1e-9), half - 1)


@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(32, 128), (8, 11), (12, 300), (4, 2), (128, 64)]
)
def test_buckets(num_buckets, max_distance):
    distances = np.arange(-2 * max_distance, 2 * max_distance + 1, dtype=np.int32)
    received = distance_buckets(tf.constant(distances), num_buckets, max_distance).numpy()
    expected = [bucket_of(distance, num_buckets, max_distance) for distance in distances.tolist()]
    np.testing.assert_array_equal(received, expected)


@pytest.mark.parametrize(("offset", "num_keys"), [(0, 9), (-9, 27), (-4, 13)])
@pytest.mark.parametrize("is_shared", [True, False])
def test_bias_of_distances(is_shared, num_keys, offset):
    """Keys before the queries, as in blocks, have negative offsets."""
    config = ModelConfig(
        hidden_size=6,
        num_attention_heads=3,
        position_type="relative",
        relative_buckets=8,
        relative_max_distance=7,
        relative_bias_per_layer=not is_shared,
    )
    table = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
    layer = tf.Module()
    layer.relative_attention_bias = tf.constant(table)
    scheme = make_positions(config)
    query = tf.zeros([2, 9, 3, 2])
    key = tf.zeros([2, num_keys, 3, 2])
    shared = scheme.shared_terms(layer, 40)
    received = scheme.score_terms(layer, shared, query, key, offset)[0].numpy()
    assert received.shape == (3, 9, num_keys)
    for i in range(9):
        for j in range(num_keys):
            bucket = bucket_of(j + offset - i, 8, 7)
            assert_close(received[:, i, j], table[bucket])
