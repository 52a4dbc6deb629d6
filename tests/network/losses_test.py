"""Losses by hand, against NumPy, and their additivity."""

import numpy as np
import tensorflow as tf

from bert_tf.network.losses import WeightedSum, accuracy, cross_entropy


def random_case(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    logits = draw.normal(size=(4, 3, 11)).astype(np.float32) * 3
    labels = draw.integers(0, 11, (4, 3)).astype(np.int32)
    return logits, labels, draw.integers(0, 2, (4, 3)).astype(np.float32)


def test_by_hand():
    loss = cross_entropy(tf.zeros((1, 2, 2)), [[0, 1]], [[1.0, 0.0]])
    np.testing.assert_allclose(loss, [np.log(2), 1.0], rtol=1e-6)
    loss = cross_entropy(tf.constant([[0.0, np.log(3.0)], [9, 9]]), [1, 0], [1.0, 0.0])
    np.testing.assert_allclose(loss, [np.log(4 / 3), 1.0], rtol=1e-6)


def test_halves_add_up_and_weight_zero_counts_nothing():
    logits, labels, weights = random_case()
    for function in (cross_entropy, accuracy):
        whole = function(logits, labels, weights)
        parts = [function(logits[i : i + 2], labels[i : i + 2], weights[i : i + 2]) for i in (0, 2)]
        np.testing.assert_allclose(whole, np.sum(parts, axis=0), rtol=1e-5)
        other = np.where(weights[..., None] == 0, -logits, logits)
        np.testing.assert_allclose(function(other, labels, weights), whole, rtol=1e-6)


def test_extreme_scores_are_finite():
    logits = tf.constant([[[1e30, -1e30, 0.0]]])
    assert cross_entropy(logits, [[0]], [[1.0]]).total == 0.0
    assert np.isfinite(cross_entropy(logits, [[1]], [[1.0]]).total)


def test_mean_of_nothing_is_zero():
    assert WeightedSum(tf.constant(0.0), tf.constant(0.0)).mean() == 0.0
    assert WeightedSum(tf.constant(3.0), tf.constant(2.0)).mean() == 1.5
