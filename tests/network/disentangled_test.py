"""Disentangled attention: against loops over all pairs of tokens."""

import itertools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network.disentangled import distance_buckets
from bert_tf.network.position_schemes import make_positions
from tests.float_bounds import assert_close
from tests.slow_variants import slow_where

HEADS = 3
HEAD_SIZE = 2


def bucket_of(distance: int, num_buckets: int, max_distance: int) -> int:
    """Returns the bucket of a distance, query minus key, by the formula of the paper's code."""
    half = num_buckets // 2
    middle = half // 2
    size = abs(distance)
    if half < max_distance and size > middle:
        growth = math.log(size / middle) / math.log((max_distance - 1) / middle) * (middle - 1)
        size = math.ceil(growth - 1e-6) + middle
    signed = size if distance > 0 else -size
    return min(max(signed + half, 0), num_buckets - 1)


@pytest.mark.parametrize(
    ("num_buckets", "max_distance"),
    [(20, 50), (32, 128), (512, 512), (10, 12), (10, 5), (14, 40), (6, 9), (4, 3), (24, 12)],
)
def test_buckets(num_buckets, max_distance):
    buckets = distance_buckets(num_buckets, max_distance)
    farthest = len(buckets) // 2
    assert buckets.dtype == np.int32 and len(buckets) == 2 * farthest + 1
    for distance in range(-3 * max_distance, 3 * max_distance + 1):
        index = min(max(distance, -farthest), farthest) + farthest
        assert buckets[index] == bucket_of(distance, num_buckets, max_distance), distance


def slow_terms(encoder, attention, query, key, terms, offset) -> np.ndarray:
    """Returns the terms of the scores, pair by pair."""
    table, gamma, beta = (np.asarray(weight) for weight in encoder.relative_embeddings.weights)
    centred = table - table.mean(-1, keepdims=True)
    scaled = centred / np.sqrt(table.var(-1, keepdims=True) + ModelConfig().layer_norm_eps)
    positions = scaled * gamma + beta  # [14, D]
    projected = []
    for layer in (attention.query, attention.key):
        kernel, bias = layer.get_weights()
        projected.append((positions @ kernel + bias).reshape(14, HEADS, HEAD_SIZE))
    position_queries, position_keys = projected
    length, num_keys = query.shape[1], key.shape[1]
    expected = np.zeros((2, HEADS, length, num_keys))
    for i in range(length):
        for j in range(num_keys):
            bucket = bucket_of(i - j - offset, 14, 20)
            if "c2p" in terms:
                expected[..., i, j] += np.sum(query[:, i] * position_keys[bucket], -1)
            if "p2c" in terms:
                product = np.sum(key[:, j] * position_queries[bucket], -1)
                expected[..., i, j] += product / np.sqrt((1 + len(terms)) * HEAD_SIZE)
    return expected


TERMS = []
for in_graph, terms in itertools.product([False, True], ["p2c,c2p", "c2p", "p2c"]):
    for keys in ((9, 0, 9), (9, -9, 27), (12, 0, 12), (8, -8, 24)):
        TERMS.append((in_graph, terms, *keys))


@pytest.mark.parametrize(
    ("in_graph", "terms", "length", "offset", "num_keys"),
    slow_where(lambda case: case[0] and case[1:3] != ("p2c,c2p", 12), TERMS),
)
def test_terms_of_all_pairs(in_graph, terms, length, offset, num_keys):
    """Keys before the queries, as in blocks, have negative offsets."""
    size = HEADS * HEAD_SIZE
    config = ModelConfig(
        hidden_size=size,
        num_attention_heads=HEADS,
        position_type="disentangled",
        pos_att_type=terms,
        relative_buckets=14,
        relative_max_distance=20,
    )
    draw = np.random.default_rng(1)
    scheme = make_positions(config)
    encoder = keras.Model()
    scheme.build_encoder(encoder)
    for weight in encoder.relative_embeddings.weights:
        weight.assign(draw.normal(size=weight.shape))
    attention = keras.layers.Layer()
    attention.query = keras.layers.Dense(size)
    attention.key = keras.layers.Dense(size)
    for layer in (attention.query, attention.key):
        layer.build((None, size))
        layer.set_weights([draw.normal(size=weight.shape) for weight in layer.weights])
    query = draw.normal(size=(2, length, HEADS, HEAD_SIZE)).astype(np.float32)
    key = draw.normal(size=(2, num_keys, HEADS, HEAD_SIZE)).astype(np.float32)

    def compute(query: tf.Tensor, key: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        shared = scheme.shared_terms(encoder, length)
        return scheme.score_terms(attention, shared, query, key, offset)

    row_length = 40 if offset else num_keys
    if in_graph:  # The lengths are not known when it is traced.
        shape = tf.TensorSpec([None, None, HEADS, HEAD_SIZE])
        compute = tf.function(compute, input_signature=[shape, shape, tf.TensorSpec([], "int32")])
    received = compute(query, key, row_length).numpy()
    expected = slow_terms(encoder, attention, query, key, terms.split(","), offset)
    assert_close(received, expected)


@pytest.mark.parametrize(("terms", "summands"), [("p2c", 2), ("c2p,p2c", 3)])
def test_scale_of_the_scores(terms, summands):
    config = ModelConfig(position_type="disentangled", pos_att_type=terms)
    assert make_positions(config).num_summands == summands
