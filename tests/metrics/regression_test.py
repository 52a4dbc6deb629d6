"""Correlations: numbers worked by hand, then SciPy beside ours."""

import fractions
import math
from collections.abc import Callable

import numpy as np
import pytest

from bert_tf.metrics import regression
from tests.float_bounds import close_to


def test_pearson_by_hand() -> None:
    assert regression.pearson([1, 2, 3], [1, 3, 2]) == pytest.approx(0.5)
    assert regression.pearson([1, 2, 3], [9, 7, 5]) == pytest.approx(-1.0)
    # Deviations -1 0 1 and -2 -2 4: 6 / sqrt(2 * 24)
    assert regression.pearson([1, 2, 3], [0, 0, 6]) == pytest.approx(6 / 48**0.5)


def exact_pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the coefficient, rounded at the end alone."""

    def deviations(values: np.ndarray) -> list[fractions.Fraction]:
        exact = [fractions.Fraction(value) for value in values]
        return [value - sum(exact) / len(exact) for value in exact]

    a, b = deviations(x), deviations(y)
    aa, ab, bb = (
        sum(p * q for p, q in zip(u, v, strict=True)) for u, v in ((a, a), (a, b), (b, b))
    )
    return float(ab / aa) * math.sqrt(aa / bb)


def test_pearson_of_close_values_is_exact() -> None:
    """Their mean is rounded, and the deviations from it with it."""
    random = np.random.default_rng(0)
    for count in (2, 3, 10):
        for offset in (1, 1e3, 1e7):
            for spread in (1, 1e-3, 1e-7):
                x, y = offset + spread * random.normal(size=count), random.normal(size=count)
                assert regression.pearson(x, y) == close_to(exact_pearson(x, y))


def test_two_points_lie_on_a_line() -> None:
    for sign in (1, -1):
        for pair in ([0.1, 0.3], [1e7, 1e7 + 1e-8], [-1e300, 1e300]):
            for function in (regression.pearson, regression.spearman):
                assert function(pair, [5, 5 + sign * 1e-3]) == sign


def test_spearman_by_hand() -> None:
    assert regression.spearman([1, 2, 3], [7, 7, 9]) == pytest.approx(1.5 / 3**0.5)
    assert regression.spearman([1, 2, 3, 4], [1, 10, 100, 1000]) == pytest.approx(1.0)
    # Without ties 1 - 6 * sum of squared differences / (n (n n - 1)): 1 - 6 * 6 / 60
    assert regression.spearman([1, 2, 3, 4], [20, 30, 10, 40]) == pytest.approx(0.4)
    scores = regression.pearson_and_spearman([1, 2, 3], [0, 1, 5])
    linear = 5 / 28**0.5  # deviations -1 0 1 and -2 -1 3
    assert scores == pytest.approx({"pearson": linear, "spearman": 1.0, "mean": (linear + 1) / 2})


@pytest.mark.parametrize("function", [regression.pearson, regression.spearman])
def test_constant_gives_nan(function: Callable[..., float]) -> None:
    assert math.isnan(function([1.0, 2.0, 3.0], [0.1, 0.1, 0.1]))
    assert math.isnan(function([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]))


def test_never_beyond_one_and_no_overflow() -> None:
    values = np.array([0.1, 0.2, 0.7, 0.3])
    assert regression.pearson(values, values) <= 1.0
    assert regression.spearman(values, values) <= 1.0
    assert regression.pearson(values * 1e300, values * 1e-300) == pytest.approx(1.0)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"labels .*\(3,\), predictions .*\(2,\)"):
        regression.pearson([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match=r"labels .*\(1,\), predictions .*\(1,\)"):
        regression.spearman([1], [1])
    with pytest.raises(ValueError, match=r"labels .*\(2,\), predictions .*\(2, 1\)"):
        regression.pearson([1, 2], [[1], [2]])
    with pytest.raises(ValueError, match=r"predictions .*nan .* 1\b"):
        regression.spearman([1, 2], [1, math.nan])


def test_same_as_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(0)
    for count in [3, 10, 1500]:
        for spread in [0.1, 1.0, 10.0]:
            labels = np.round(random.uniform(0, 5, count) * 5) / 5  # STS-B's, with ties
            predictions = labels + random.normal(0, spread, count)
            predictions[: count // 3] = np.round(predictions[: count // 3])
            pair = (labels, predictions)
            assert regression.pearson(*pair) == close_to(stats.pearsonr(*pair)[0])
            assert regression.spearman(*pair) == close_to(stats.spearmanr(*pair)[0])
