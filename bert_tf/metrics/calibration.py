"""Temperature, thresholds and calibration error: from scores to probabilities and decisions.

All are chosen on labelled development examples, after training. "Labels" are int [N] of one class
per example, or 0 and 1 [N, C] of several.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.metrics.classification import THRESHOLD, sigmoid, softmax

NUM_BINS = 15
# Bounds of the temperature: without a wrong answer, the loss falls as the temperature does.
LEAST_TEMPERATURE = 0.05
LARGEST_TEMPERATURE = 20.0


def best_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns the temperature that minimises the loss of labels: softmax or sigmoid of logits / T.

    The loss is convex in 1 / T, so its minimum is where its slope

        mean over examples of  (sum over classes of p_k z_k) - z_label          one class
        mean over decisions of (p - y) z                                        several labels

    changes its sign, which is found by bisection from `LEAST_TEMPERATURE` to `LARGEST_TEMPERATURE`.

    Args:
      logits: z, float [N, C], N > 0.
      labels: int [N], or 0 and 1 [N, C].

    Reference: Guo et al. 2017, "On Calibration of Modern Neural Networks".
    """
    logits = logits.astype(np.float64)
    labels = np.asarray(labels)

    def slope(temperature: float) -> float:
        scaled = logits / temperature
        if labels.ndim == 2:
            return float(np.mean((sigmoid(scaled) - labels) * logits))
        expected = np.sum(softmax(scaled) * logits, axis=-1)  # [N]
        return float(np.mean(expected - logits[np.arange(len(labels)), labels]))

    # Bisection in log T, because the bounds are a factor of 400 apart.
    low = math.log(LEAST_TEMPERATURE)
    high = math.log(LARGEST_TEMPERATURE)
    # 60 halvings reach the precision of float64.
    for _ in range(60):
        middle = (low + high) / 2
        if slope(math.exp(middle)) > 0:  # The scores are too large.
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


class ChosenThreshold(NamedTuple):
    """A threshold with the F1 of the examples above it."""

    threshold: float
    f1: float


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> ChosenThreshold | None:
    """Returns the threshold with the highest F1, where an example is positive if above it.

    All midpoints between two distinct scores are tried, and half of the lowest score. Among equal
    F1, the threshold nearest to 0.5 is taken.

    Args:
      scores: probabilities [N].
      labels: 0 and 1, [N].

    Returns:
      None if no example is positive: every threshold has an F1 of 0.
    """
    labels = np.asarray(labels)
    num_true = int(labels.sum())
    if not num_true:
        return None
    # float32, because exported models compute no finer: scores equal there are one score.
    values, groups = np.unique(np.asarray(scores, np.float32), return_inverse=True)
    counts = np.bincount(groups)  # [V]
    rights = np.bincount(groups, labels)  # [V]
    predicted = np.cumsum(counts[::-1])[::-1]  # examples with this score or a higher one
    right = np.cumsum(rights[::-1])[::-1]
    # [V]: the F1 if all examples from this score upwards are positive.
    f1 = 2 * right / (predicted + num_true)
    if values[0] == 0.0:
        f1[0] = 0.0  # No probability is below 0, so no threshold makes all examples positive.
    values = values.astype(np.float64)
    # [V]: the middle between each score and the next lower one; below the lowest is 0.
    thresholds = (np.concatenate([[0.0], values[:-1]]) + values) / 2
    best = np.flatnonzero(f1 == f1.max())
    index = best[np.argmin(np.abs(thresholds[best] - THRESHOLD))]
    return ChosenThreshold(float(thresholds[index]), float(f1[index]))


class ReliabilityBin(NamedTuple):
    """The decisions whose confidence is in one interval.

    Attributes:
      num_decisions: how many they are.
      confidence: their mean confidence; the middle of an empty interval.
      accuracy: share of right ones; nan for an empty interval.
    """

    num_decisions: int
    confidence: float
    accuracy: float


def reliability(probabilities: np.ndarray, labels: np.ndarray) -> list[ReliabilityBin]:
    """Sorts decisions into `NUM_BINS` intervals of (0, 1] by their confidence.

    The decision of an example is its likeliest class, with its probability as confidence. Of
    several labels, each is a decision, with the probability of yes or no, whichever is larger.

    Args:
      probabilities: float [N, C].
      labels: int [N], or 0 and 1 [N, C].
    """
    labels = np.asarray(labels)
    if labels.ndim == 2:
        # Yes has probability p and no has 1 - p, so the confidence is at least 0.5.
        confidence = np.maximum(probabilities, 1 - probabilities).ravel()
        right = ((probabilities > 0.5) == (labels == 1)).ravel()
    else:
        confidence = probabilities.max(axis=-1)
        right = probabilities.argmax(axis=-1) == labels
    # ceil, because an interval includes its upper end.
    indices = np.ceil(confidence * NUM_BINS).astype(int) - 1
    indices = np.clip(indices, 0, NUM_BINS - 1)
    bins = []
    for index in range(NUM_BINS):
        inside = indices == index
        count = int(inside.sum())
        middle = (index + 0.5) / NUM_BINS
        mean = float(confidence[inside].mean()) if count else middle
        share = float(right[inside].mean()) if count else math.nan
        bins.append(ReliabilityBin(count, mean, share))
    return bins


def calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """Returns the expected calibration error: |accuracy - confidence|, weighted by the counts.

    Example: of 4 decisions, 3 with confidence .9 of which 2 are right, and 1 with .6 that is right:
      (3 |2/3 - .9| + |1 - .6|) / 4 = .275.

    Reference: Naeini et al. 2015; Guo et al. 2017 with 15 bins.
    """
    total = sum(one.num_decisions for one in bins)
    error = 0.0
    for one in bins:
        if one.num_decisions:
            error += one.num_decisions * abs(one.accuracy - one.confidence)
    return error / total if total else math.nan


def log_losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns the negative log-likelihood of each example's labels, float64 [N], in nats.

    Args:
      probabilities: float [N, C].
      labels: int [N], or 0 and 1 [N, C], over which the loss of an example is a mean.
    """
    labels = np.asarray(labels)
    if labels.ndim == 2:
        of_labels = np.where(labels == 1, probabilities, 1 - probabilities)
    else:
        of_labels = probabilities[np.arange(len(labels)), labels]
    # A probability that underflowed to 0 must not make the loss infinite.
    losses = -np.log(np.maximum(of_labels, np.finfo(np.float64).tiny))
    return losses.mean(axis=1) if losses.ndim == 2 else losses
