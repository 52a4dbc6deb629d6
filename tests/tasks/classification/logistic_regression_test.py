"""The head of few-shot training is scikit-learn's logistic regression with C = 1."""

import itertools

import numpy as np
import pytest

from bert_tf.tasks.classification.logistic_regression import fit_logistic
from tests.float_bounds import assert_close
from tests.slow_variants import slow_where


def make_vectors(count: int, num_labels: int, size: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(num_labels)
    labels = np.arange(count) % num_labels
    vectors = rng.normal(size=[count, size]) + rng.normal(size=[num_labels, size])[labels]
    return vectors, labels


@pytest.mark.parametrize(
    ("num_labels", "scale"),
    slow_where(
        lambda case: case[0] > 2 and case[1] > 1, itertools.product([2, 3, 7], [0.1, 1.0, 30.0])
    ),
)
def test_classes_as_scikit_learn(num_labels, scale):
    linear_model = pytest.importorskip("sklearn.linear_model")
    vectors, labels = make_vectors(40, num_labels)
    vectors *= scale
    weights = fit_logistic(vectors, labels, "single_label", num_labels)
    expected = linear_model.LogisticRegression(tol=1e-10, max_iter=10_000).fit(vectors, labels)
    logits = vectors @ weights[:-1] + weights[-1]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    found = powers / powers.sum(axis=1, keepdims=True)
    assert_close(found, expected.predict_proba(vectors))


def test_several_labels_as_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    vectors, _ = make_vectors(40, 3)
    labels = (np.random.default_rng(1).uniform(size=[40, 3]) < [0.2, 0.5, 0.8]).astype(int)
    weights = fit_logistic(vectors, labels, "multi_label")
    found = 1 / (1 + np.exp(-(vectors @ weights[:-1] + weights[-1])))
    for column in range(3):
        alone = linear_model.LogisticRegression(tol=1e-10, max_iter=10_000)
        alone.fit(vectors, labels[:, column])
        expected = alone.predict_proba(vectors)[:, 1]
        assert_close(found[:, column], expected)
