"""Attention by hand-multiplied numbers, prime dimensions, and its mask."""

import numpy as np
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network.attention import AttentionPattern, SelfAttention, dot_product_attention
from bert_tf.network.layout import PaddedBatch, attention_bias
from tests.float_bounds import assert_close


def test_two_positions_by_hand():
    # One head of size 4 (scale 1/2): scores of the first query are 2 and 0, of the second 0 and 0.
    query = tf.constant([[[[4.0, 0, 0, 0]], [[0.0, 0, 0, 0]]]])
    key = tf.constant([[[[1.0, 0, 0, 0]], [[0.0, 1, 0, 0]]]])
    value = tf.constant([[[[1.0, 2, 3, 4]], [[5.0, 6, 7, 8]]]])
    context = dot_product_attention(query, key, value, attention_bias(tf.ones((1, 2), tf.int32)))
    weight = np.exp(2) / (np.exp(2) + 1)  # 0.8808
    expected = [5 - 4 * weight + np.arange(4), 3 + np.arange(4)]
    assert_close(context[0, :, 0], expected)


def test_primes_against_loops():
    draw = np.random.default_rng(0)
    batch, queries, keys, heads, size = 2, 5, 7, 3, 11
    query = draw.normal(size=(batch, queries, heads, size)).astype(np.float32)
    key, value = draw.normal(size=(2, batch, keys, heads, size)).astype(np.float32)
    mask = np.array([[1, 1, 1, 0, 1, 1, 0], [1, 0, 0, 0, 0, 0, 0]])
    received = dot_product_attention(query, key, value, attention_bias(mask))
    for b in range(batch):
        for n in range(heads):
            for t in range(queries):
                scores = [query[b, t, n] @ key[b, s, n] / np.sqrt(size) for s in range(keys)]
                weights = np.exp(scores) * mask[b]
                expected = weights @ value[b, :, n] / weights.sum()
                assert_close(received[b, t, n], expected)


def test_bias_is_finite_in_half_precision():
    bias = attention_bias(np.array([[1, 0]]))
    np.testing.assert_array_equal(bias, [[[[0.0, -10000.0]]]])
    assert np.isfinite(tf.cast(bias, tf.float16)).all()


def test_layer_keeps_sequences_apart():
    layer = SelfAttention(2, 0.0, salt=1, initializer_range=0.5)
    layer.build((None, 6))
    x = np.random.default_rng(1).normal(size=(3 * 4, 6)).astype(np.float32)  # B 3, T 4
    pattern = AttentionPattern(
        PaddedBatch(np.ones((3, 4), np.int32)), ModelConfig(), is_local=False
    )
    one = layer(x, pattern=pattern).numpy()
    x[4:8] += 1.0
    two = layer(x, pattern=pattern).numpy()
    changed = np.abs(one - two).max(-1) > 1e-6
    assert changed.tolist() == [False] * 4 + [True] * 4 + [False] * 4
    names = [v.path.removeprefix(f"{layer.name}/") for v in layer.variables]
    assert names[:2] == ["query/kernel", "query/bias"]
