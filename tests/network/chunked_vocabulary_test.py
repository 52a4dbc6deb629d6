"""The losses in chunks of the vocabulary are those of all logits."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.network.chunked_vocabulary import chunked_token_losses, default_chunk_size
from bert_tf.network.losses import class_losses
from tests.float_bounds import assert_close
from tests.slow_variants import slow_where

V, E, M = 103, 8, 6


def draw(rows: int = M) -> tuple[tf.Tensor, tf.Variable, tf.Variable, tf.Tensor, tf.Tensor]:
    rng = np.random.default_rng(1)
    vectors = tf.constant(rng.normal(0, 2, (rows, E)), tf.float32)
    table = tf.Variable(rng.normal(0, 1, (V, E)), dtype=tf.float32)
    bias = tf.Variable(rng.normal(0, 1, V), dtype=tf.float32)
    labels = tf.constant([0, 102, 50, 51, 99, 100][:rows], tf.int32)
    weights = tf.constant([1.0, 0.5, 0.0, 2.0, 1.0, 1.0][:rows])
    return vectors, table, bias, labels, weights


def whole(vectors, table, bias, labels):
    scores = tf.matmul(vectors, tf.cast(table, vectors.dtype), transpose_b=True)
    logits = tf.cast(scores, tf.float32) + (0.0 if bias is None else bias)
    return class_losses(logits, labels), tf.argmax(logits, axis=-1)


def gradients(compute, has_bias: bool, dtype: str, jit: bool | None = None):
    drawn = draw()

    def run():
        return gradients_of(compute, has_bias, dtype, *drawn)

    return run() if jit is None else tf.function(run, jit_compile=jit)()


def gradients_of(compute, has_bias, dtype, vectors, table, bias, labels, weights):
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        used = tf.cast(vectors, dtype)
        losses, best = compute(used, table, bias if has_bias else None, labels)
        total = tf.reduce_sum(losses * weights)
    sources = [vectors, table, bias] if has_bias else [vectors, table]
    return losses, best, *tape.gradient(total, sources)


# With the same numbers of blocks as others.
SLOW = (
    (None, 1),
    (None, 51),
    (False, 1),
    (False, 50),
    (False, 103),
    (True, 50),
    (True, 51),
    (True, 102),
    (True, 103),
)


@pytest.mark.parametrize(
    ("jit", "size"),
    slow_where(
        lambda case: case in SLOW,
        itertools.product([None, False, True], [1, 50, 51, 102, 103, 500, 0]),
    ),
)
def test_losses_and_gradients_are_those_of_all_logits(jit, size):
    def compute(*arguments):
        return chunked_token_losses(*arguments, chunk_size=size)

    received = gradients(compute, True, "float32", jit)
    expected = gradients(whole, True, "float32")
    np.testing.assert_array_equal(received[1], expected[1])
    for value, right in zip(received, expected, strict=True):
        assert_close(value, right)


def test_without_a_bias():
    received = gradients(lambda *a: chunked_token_losses(*a, chunk_size=10), False, "float32")
    for value, right in zip(received, gradients(whole, False, "float32"), strict=True):
        assert_close(value, right)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_in_half_precision(dtype):
    received = gradients(lambda *a: chunked_token_losses(*a, chunk_size=40), True, dtype)
    expected = gradients(whole, True, dtype)
    assert_close(received[0], expected[0])
    for value, right in zip(received[2:], expected[2:], strict=True):
        assert value.dtype == tf.float32
        np.testing.assert_allclose(value, right, atol=2e-2 * np.abs(right).max())


def test_large_logits_and_ties():
    vectors = tf.constant([[1.0], [1.0]])
    table = tf.Variable([[-1e4], [1e4], [-1e4], [1e4], [0.0]])
    for size in (1, 2, 3):
        found = chunked_token_losses(vectors, table, None, tf.constant([3, 0]), size)
        assert_close(found.loss, [np.log(2), 2e4 + np.log(2)])
        np.testing.assert_array_equal(found.best, [1, 1])


def test_a_chunk_of_logits_is_bounded():
    assert default_chunk_size(640, 250_037) * 640 * 4 <= 32 << 20
    assert default_chunk_size(640, 1000) == 1000
    assert default_chunk_size(None, 250_037) * 16 >= 250_037
