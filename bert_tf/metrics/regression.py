"""Pearson's and Spearman's correlation, GLUE's scores for STS-B."""

import math

import numpy as np
from numpy.typing import ArrayLike


def pearson(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns Pearson's correlation coefficient, as scipy.stats.pearsonr and GLUE's script.

    It is nan where labels or predictions are all equal: a constant has no correlation, and 0 would
    look like a measured one.

    Args:
      labels, predictions: numbers [N], N > 1.

    Raises:
      ValueError: fewer than two examples, unequal lengths, a value that is not finite.
    """
    true, predicted = _number_pair(labels, predictions)
    if np.ptp(true) == 0 or np.ptp(predicted) == 0:
        return math.nan
    if true.size == 2:
        # The correlation of two points is exactly 1 or -1, without rounding errors.
        return float(np.sign(true[1] - true[0]) * np.sign(predicted[1] - predicted[0]))
    product = np.dot(_unit(true), _unit(predicted))
    return float(np.clip(product, -1.0, 1.0))


def spearman(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns Spearman's rank correlation, as scipy.stats.spearmanr; equal values share a rank.

    Arguments, errors and nan are those of `pearson`.
    """
    true, predicted = _number_pair(labels, predictions)
    return pearson(_ranks(true), _ranks(predicted))


def pearson_and_spearman(labels: ArrayLike, predictions: ArrayLike) -> dict[str, float]:
    """Returns GLUE's scores for STS-B: "pearson", "spearman" and their "mean", as fractions.

    Arguments, errors and nan are those of `pearson`. Reference: Wang et al. 2018, section 3.
    """
    linear = pearson(labels, predictions)
    ranked = spearman(labels, predictions)
    return {"pearson": linear, "spearman": ranked, "mean": (linear + ranked) / 2}


def _unit(values: np.ndarray) -> np.ndarray:
    """Returns the deviations from the mean, [N], scaled to length 1."""
    deviations = values - values.mean()
    deviations -= deviations.mean()  # Corrects the rounding error of the mean of close values.
    largest = np.max(np.abs(deviations))  # Scaling before squaring avoids an overflow.
    return deviations / (largest * np.linalg.vector_norm(deviations / largest, axis=-1))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Returns ranks from 1, float64 [N]; equal values get the mean of the ranks they fill."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    # The last rank of each group of equal values, minus half of the others in it.
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _number_pair(labels: ArrayLike, predictions: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns both as float64 [N], or raises the ValueError of `pearson`."""
    true = np.asarray(labels, np.float64)
    predicted = np.asarray(predictions, np.float64)
    if true.ndim != 1 or true.shape != predicted.shape or true.size < 2:
        raise ValueError(
            f"labels are of shape {true.shape}, predictions of {predicted.shape}; expected one"
            " number for each of two or more examples in both: squeeze a last axis of one."
        )
    for name, values in (("labels", true), ("predictions", predicted)):
        if not np.all(np.isfinite(values)):
            bad = int(np.argmin(np.isfinite(values)))
            raise ValueError(
                f"{name} holds {values[bad]} at index {bad}; expected finite numbers: the model"
                " may have diverged, or a field of the data was empty."
            )
    return true, predicted
