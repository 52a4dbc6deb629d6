"""SPLADE's pooling and its gradient beside plain ones that hold all scores at once."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.tasks.embedding import losses
from bert_tf.tasks.embedding.splade_model import splade_weights
from tests.float_bounds import assert_close, close_to


def plain(rows, mask, table, bias):
    scores = tf.einsum("bte,ve->btv", rows, table) + bias
    scores = tf.nn.relu(scores) * tf.cast(mask, tf.float32)[:, :, None]
    return tf.math.log1p(tf.reduce_max(scores, axis=1))


@pytest.mark.parametrize("length", [5, 16, 37])
def test_weights_and_gradients_equal_those_of_all_scores_at_once(length):
    random = np.random.default_rng(length)
    shapes = [3, length, 4], [30, 4], [30]
    values = [tf.constant(random.normal(size=shape), tf.float32) for shape in shapes]
    mask = tf.constant(np.arange(length)[None] < np.array([[length], [3], [1]]), tf.int32)
    upstream = tf.constant(random.normal(size=[3, 30]), tf.float32)
    found = []
    for function in (splade_weights, plain):
        with tf.GradientTape() as tape:
            tape.watch(values)
            weights = function(values[0], mask, *values[1:])
        found.append([weights, *tape.gradient(weights, values, upstream)])
    for own, expected in zip(*found, strict=True):
        assert_close(own, expected)
    assert (found[0][0].numpy() == 0).any()  # Some pieces weigh nothing, and learn nothing.
    assert not found[0][1].numpy()[1, 3:].any()


def test_flops_are_the_squared_means_of_rows_that_count():
    queries = tf.constant([[1.0, 0.0], [3.0, 2.0], [9.0, 9.0]])  # the last only fills
    documents = tf.constant([[[2.0, 0.0]], [[0.0, 4.0]], [[9.0, 9.0]]])
    weights = tf.constant([[1.0], [1.0], [0.0]])
    nothing = losses.WeightedSum(tf.constant(0.0), tf.constant(2.0))
    loss = losses.sparse(lambda _: nothing, 0.1, 0.01)
    # Queries: 2^2 + 1^2 = 5; documents: 1^2 + 2^2 = 5.
    total = loss(losses.Vectors(queries, documents, weights))
    assert float(total.total / total.weight) == close_to(0.5 + 0.05)


def test_in_batch_negatives_by_dot_products():
    queries = tf.constant([[1.0, 0.0], [0.0, 2.0]])
    documents = tf.constant([[[3.0, 1.0]], [[0.5, 1.0]]])
    vectors = losses.Vectors(queries, documents, tf.ones([2, 1]))
    loss = losses.in_batch_negatives(vectors, scale=1.0, similarity="dot")
    scores = np.array([[3.0, 0.5], [2.0, 2.0]])
    expected = np.log(np.exp(scores).sum(axis=1)) - scores.diagonal()
    assert float(loss.total) == close_to(expected.sum())
    found = losses.in_batch_accuracy(vectors, "dot")
    assert float(found.total) == 1.0  # The second has two that are equal; the first is not its own.
