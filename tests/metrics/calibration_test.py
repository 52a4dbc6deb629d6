"""Temperature, thresholds and calibration error: by hand, by slow twins, and by scikit-learn."""

import itertools
import math

import numpy as np
import pytest

from bert_tf.metrics.calibration import (
    LEAST_TEMPERATURE,
    best_temperature,
    best_threshold,
    calibration_error,
    log_losses,
    reliability,
)
from bert_tf.metrics.classification import sigmoid, softmax
from tests.float_bounds import close_to


def draw_classes(count: int, num_classes: int, scale: float):
    """Returns logits that are `scale` times too large for labels drawn from their softmax."""
    draw = np.random.default_rng(7)
    logits = draw.normal(size=(count, num_classes)) * 2
    chances = softmax(logits)
    labels = np.array([draw.choice(num_classes, p=row) for row in chances])
    return logits * scale, labels


def test_certain_decisions_overflow_without_a_warning():
    logits = np.array([[-50.0], [50.0]])
    assert best_temperature(logits, np.array([[0], [1]])) == pytest.approx(LEAST_TEMPERATURE)


def test_the_temperature_of_two_decisions_by_hand():
    """3 of 4 answers with the logit difference 4 are right: T = 4 / log 3 makes it 3/4."""
    logits = np.array([[4.0, 0.0]] * 4)
    labels = np.array([0, 0, 0, 1])
    assert best_temperature(logits, labels) == close_to(4 / math.log(3))
    decisions = np.array([[4.0], [4.0], [4.0], [4.0]])
    rows = np.array([[1], [1], [1], [0]])
    assert best_temperature(decisions, rows) == close_to(4 / math.log(3))


def test_no_other_temperature_has_a_lower_loss():
    logits, labels = draw_classes(500, 4, scale=3.0)
    rows = (np.random.default_rng(1).random(logits.shape) < sigmoid(logits / 3)).astype(int)
    for function, truth in ((softmax, labels), (sigmoid, rows)):
        found = best_temperature(logits, truth)
        assert 2 < found < 4
        least = log_losses(function(logits / found), truth).mean()
        for factor in (0.9, 0.99, 1.01, 1.1):
            assert log_losses(function(logits / (found * factor)), truth).mean() > least


def test_the_temperature_without_a_wrong_answer_is_the_least():
    found = best_temperature(np.array([[2.0, 0.0], [0.0, 3.0]]), np.array([0, 1]))
    assert found == pytest.approx(LEAST_TEMPERATURE)


@pytest.mark.needs("sklearn")
def test_the_temperature_equals_that_of_scikit_learn():
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LogisticRegression

    logits, labels = draw_classes(400, 3, scale=2.5)
    model = LogisticRegression().fit(np.eye(3), [0, 1, 2])
    model.coef_ = np.eye(3)
    model.intercept_ = np.zeros(3)
    calibrated = CalibratedClassifierCV(FrozenEstimator(model), method="temperature")
    calibrated.fit(logits, labels)
    found = softmax(logits / best_temperature(logits, labels))
    np.testing.assert_allclose(found, calibrated.predict_proba(logits), atol=1e-4)


def slow_threshold(scores, labels):
    """Tries a threshold in every gap between two scores, by counting."""
    values = sorted(set(map(float, np.float32(scores))))
    best = None
    for low, high in itertools.pairwise([0.0, *values]):
        threshold = (low + high) / 2
        chosen = [score > threshold for score in np.float32(scores)]
        right = sum(c and bool(label) for c, label in zip(chosen, labels, strict=True))
        f1 = 2 * right / (sum(chosen) + sum(labels))
        rank = (f1, -abs(threshold - 0.5))
        if best is None or rank > best[0]:
            best = (rank, threshold, f1)
    return best[1:]


def test_a_threshold_by_hand():
    found = best_threshold(np.array([0.2, 0.4, 0.4, 0.9]), np.array([0, 0, 1, 1]))
    assert found.threshold == pytest.approx(0.3) and found.f1 == pytest.approx(0.8)
    assert best_threshold(np.array([0.2, 0.4]), np.array([0, 0])) is None
    # All are positive: half of the lowest score. A score of 0 is above no threshold.
    assert best_threshold(np.array([0.2, 0.4]), np.array([1, 1])).threshold == pytest.approx(0.1)
    found = best_threshold(np.array([0.0, 0.4]), np.array([1, 1]))
    assert found.threshold == pytest.approx(0.2) and found.f1 == pytest.approx(2 / 3)


@pytest.mark.parametrize("seed", range(20))
def test_thresholds_equal_a_slow_search(seed):
    draw = np.random.default_rng(seed)
    scores = draw.integers(1, 12, 30) / 12  # with ties
    labels = (draw.random(30) < scores).astype(int)
    labels[0] = 1
    found = best_threshold(scores, labels)
    assert found == pytest.approx(slow_threshold(scores, labels))
    assert not np.isin(found.threshold, scores.astype(np.float32))
    chosen = scores > found.threshold
    assert found.f1 == pytest.approx(
        2 * (chosen & (labels == 1)).sum() / (chosen.sum() + labels.sum())
    )


def test_the_calibration_error_by_hand():
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.4, 0.6]])
    bins = reliability(probabilities, np.array([0, 1, 1, 1]))
    assert [one.num_decisions for one in bins if one.num_decisions] == [1, 3]
    assert calibration_error(bins) == pytest.approx((3 * (0.9 - 2 / 3) + 0.4) / 4)
    # Of several labels, each is a decision: .8 right, .7 wrong.
    bins = reliability(np.array([[0.8, 0.3]]), np.array([[1, 1]]))
    assert calibration_error(bins) == pytest.approx((0.2 + 0.7) / 2)
    # The upper end of an interval is inside: 10/15 is in the tenth, 1 in the last.
    bins = reliability(np.array([[10 / 15, 5 / 15], [1.0, 0.0]]), np.array([0, 0]))
    assert [i for i, one in enumerate(bins) if one.num_decisions] == [9, 14]
