"""Accuracy, F1, Matthews correlation and reports per class, of labels and predictions.

A quotient with a denominator of 0 counts as 0: the precision of a class that is never predicted,
the recall of a class that never occurs, the F1 of a class with neither. Averages over classes
include such a class. The numbers are those of scikit-learn with `labels=range(num_labels)` and
`zero_division=0`, which GLUE's scripts call.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bert_tf.system.number_arguments import check_numbers


class ClassScores(NamedTuple):
    """Scores of a class or of an average, each in [0, 1]; `support` counts its true examples."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int


class ClassReport(NamedTuple):
    """Scores of each class, in the order of the names, and three averages of them.

    `micro` adds up the counts of all classes before it divides, `macro` is the plain mean over
    classes, `weighted` the mean weighted with `support`. `accuracy` is the share of examples with
    all labels right.
    """

    classes: list[ClassScores]
    micro: ClassScores
    macro: ClassScores
    weighted: ClassScores
    accuracy: float


# One label per example --------------------------------------------------------------------------


THRESHOLD = 0.5  # A text gets the labels with a higher probability.


def check_threshold(threshold: float | None, has_several: bool) -> float:
    """Returns the threshold of labels; `THRESHOLD` for None.

    Raises:
      ValueError: if a text has one label, or the threshold is no probability.
    """
    if threshold is None:
        return THRESHOLD
    if not has_several:
        raise ValueError(
            f"threshold={threshold} is for a model of several labels per text; this one has one."
        )
    check_numbers(0, 1, whole=False, threshold=threshold)
    return threshold


def labels_above(
    probabilities: Mapping[str, float],
    threshold: float,
    thresholds: Mapping[str, float] | None = None,
) -> dict[str, list[Any]]:
    """Returns the labels with a probability above their threshold, the likeliest first.

    Args:
      probabilities: by label.
      threshold: of labels that are not in `thresholds`.
      thresholds: by label.
    """
    own = thresholds or {}
    # The sort is stable: equal probabilities keep their order.
    ordered = sorted(probabilities.items(), key=lambda item: -item[1])
    labels = []
    scores = []
    for label, probability in ordered:
        if probability > own.get(label, threshold):
            labels.append(label)
            scores.append(float(probability))
    return {"labels": labels, "scores": scores}


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the probabilities of scores [..., C], in float64."""
    # Subtracting the maximum avoids an overflow.
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns the sigmoid of each score, in float64."""
    # Far below 0 the exponential is infinite, and the result is the right one, 0.
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns the share of predictions that equal their labels, in [0, 1].

    Args:
      labels, predictions: ints [N], N > 0.

    Raises:
      ValueError: no examples, not ints, not one-dimensional or of unequal lengths.
    """
    true, predicted = _label_pair(labels, predictions)
    return float(np.mean(true == predicted))


def f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns the F1 of class 1, as for MRPC and QQP; 0 where it is neither predicted nor true.

    Arguments and errors are those of `accuracy`.

    Example: labels 1 1 1 0 and predictions 1 0 0 1: right 1, predicted 2, true 3, F1 = 2/5.
    """
    true, predicted = _label_pair(labels, predictions)
    right = np.sum((true == 1) & (predicted == 1))
    return _ratio(2 * right, np.sum(true == 1) + np.sum(predicted == 1))


def macro_f1(labels: ArrayLike, predictions: ArrayLike, num_labels: int) -> float:
    """Returns the mean F1 of all classes; arguments and errors are those of `confusion_matrix`.

    A class that never occurs counts with 0.
    """
    return class_report(labels, predictions, [""] * num_labels).macro.f1


def matthews(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns the Matthews correlation of labels and predictions, GLUE's score for CoLA.

    With n examples, c of them right, t true and p predicted ones per class:
    (n c - t.p) / sqrt((n n - t.t) (n n - p.p)), a number in [-1, 1]; 0 where labels or predictions
    are all of one class. Arguments and errors are those of `accuracy`.

    Reference: Gorodkin 2004, "Comparing two K-category assignments by a K-category correlation
    coefficient"; for two classes Matthews 1975.
    """
    both = np.stack(_label_pair(labels, predictions))
    # Classes that never occur do not change the correlation.
    classes, indices = np.unique(both, return_inverse=True)
    true, predicted = indices.reshape(both.shape)
    matrix = confusion_matrix(true, predicted, len(classes))
    # Python's integers: the product of spreads exceeds 64 bits at some 50,000 examples.
    counts = matrix.astype(object)
    true_counts = counts.sum(axis=1)  # [C]
    predicted_counts = counts.sum(axis=0)  # [C]
    number = counts.sum()
    covariance = number * np.trace(counts) - true_counts @ predicted_counts
    spread = number**2 - true_counts @ true_counts
    spread *= number**2 - predicted_counts @ predicted_counts
    return covariance / math.sqrt(spread) if spread else 0.0


def confusion_matrix(labels: ArrayLike, predictions: ArrayLike, num_labels: int) -> np.ndarray:
    """Counts the examples of each pair of true and predicted class.

    Args:
      labels, predictions: ints [N] in [0, num_labels).
      num_labels: C.

    Returns:
      int64 [C, C]; row = true class, column = predicted class.

    Raises:
      ValueError: see `accuracy`; a class is out of range.
    """
    true, predicted = _label_pair(labels, predictions)
    for name, values in (("labels", true), ("predictions", predicted)):
        if values.min() < 0 or values.max() >= num_labels:
            bad = int(np.argmax((values < 0) | (values >= num_labels)))
            raise ValueError(
                f"{name} holds {values[bad]} at index {bad}; expected classes in [0, {num_labels}):"
                " leave out examples without a label, or give the right number of classes."
            )
    # Each pair of classes is one integer, so that one pass counts all pairs.
    pairs = np.bincount(true * num_labels + predicted, minlength=num_labels**2)  # [C * C]
    return pairs.reshape(num_labels, num_labels)


def class_report(labels: ArrayLike, predictions: ArrayLike, names: Sequence[str]) -> ClassReport:
    """Scores every class and the averages over them.

    Args:
      labels, predictions: ints [N], indices into the names; errors are those of `confusion_matrix`.
      names: one for each class.
    """
    matrix = confusion_matrix(labels, predictions, len(names))
    return _report(
        right=np.diagonal(matrix),
        predicted=matrix.sum(axis=0),
        true=matrix.sum(axis=1),
        names=names,
        whole=accuracy(labels, predictions),
    )


# Several labels per example ---------------------------------------------------------------------


def multilabel_report(
    labels: ArrayLike, predictions: ArrayLike, names: Sequence[str]
) -> ClassReport:
    """Scores every class and the averages over them; `accuracy` compares whole rows.

    Args:
      labels, predictions: 0 or 1, [N, C]: whether the example is of the class.
      names: one for each class, C in all.

    Raises:
      ValueError: no examples, values other than 0 and 1, not two-dimensional or of unequal shapes;
        the names are not C.

    Example: labels 10 11 and predictions 10 10: micro F1 4/5 (2 right ones, 2 predicted, 3 true),
      macro F1 1/2 (1 and 0), accuracy 1/2.
    """
    true, predicted = _row_pair(labels, predictions)
    if len(names) != true.shape[1]:
        raise ValueError(f"{len(names)} names, expected one for each of {true.shape[1]} columns.")
    return _report(
        right=(true * predicted).sum(axis=0),  # [C]
        predicted=predicted.sum(axis=0),
        true=true.sum(axis=0),
        names=names,
        whole=float(np.mean(np.all(true == predicted, axis=1))),
    )


def format_report(report: ClassReport) -> str:
    """Returns the report as a table: a line for each class, one for each average, the accuracy."""
    rows = [*report.classes, report.micro, report.macro, report.weighted]
    names = ["accuracy", *(row.name for row in rows)]
    width = max(map(len, names))
    lines = [f"{'':{width}}  precision  recall      f1  support"]
    for name, precision, recall, score, support in rows:
        lines.append(f"{name:{width}}  {precision:9.4f}  {recall:6.4f}  {score:6.4f}  {support:7d}")
    lines.append(f"{'accuracy':{width}}  {report.accuracy:.4f}")
    return "\n".join(lines) + "\n"


# Counts and quotients ---------------------------------------------------------------------------


def _label_pair(labels: ArrayLike, predictions: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns both as int64 [N], or raises the ValueError of `accuracy`."""
    true = np.asarray(labels)
    predicted = np.asarray(predictions)
    if true.ndim != 1 or true.shape != predicted.shape or not true.size:
        raise ValueError(
            f"labels are of shape {true.shape}, predictions of {predicted.shape}; expected one"
            " class for each example in both: take the argmax of scores first."
        )
    for name, values in (("labels", true), ("predictions", predicted)):
        if values.dtype.kind not in "biu":
            raise ValueError(f"{name} are {values.dtype}, expected ints: give indices of classes.")
    return true.astype(np.int64), predicted.astype(np.int64)


def _row_pair(labels: ArrayLike, predictions: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns both as int64 [N, C], or raises the ValueError of `multilabel_report`."""
    true = np.asarray(labels)
    predicted = np.asarray(predictions)
    if true.ndim != 2 or true.shape != predicted.shape or not true.size:
        raise ValueError(
            f"labels are of shape {true.shape}, predictions of {predicted.shape}; expected rows of "
            f"zeros and ones, of the same shape in both."
        )
    for name, values in (("labels", true), ("predictions", predicted)):
        wrong = values[(values != 0) & (values != 1)]
        if wrong.size:
            raise ValueError(
                f"{name} hold {wrong[0]:g}, expected 0 and 1; compare scores with a threshold."
            )
    return true.astype(np.int64), predicted.astype(np.int64)


def _report(
    right: np.ndarray,
    predicted: np.ndarray,
    true: np.ndarray,
    names: Sequence[str],
    whole: float,
) -> ClassReport:
    """Makes the report of the right, predicted and true examples of each class, int64 [C]."""
    classes = list(map(_scores, names, right, predicted, true))
    total = int(true.sum())
    micro = _scores("micro", right.sum(), predicted.sum(), true.sum())
    macro = _mean("macro", classes, np.ones_like(true), total)
    weighted = _mean("weighted", classes, true, total)
    return ClassReport(classes, micro, macro, weighted, whole)


def _mean(name: str, rows: list[ClassScores], weights: np.ndarray, total: int) -> ClassScores:
    columns = np.array([row[1:4] for row in rows]).T  # [3, C]
    # np.average fails if all weights are 0.
    means = [float(np.average(column, weights=weights)) if total else 0.0 for column in columns]
    return ClassScores(name, means[0], means[1], means[2], total)


def _scores(name: str, right: int, predicted: int, true: int) -> ClassScores:
    score = _ratio(2 * right, predicted + true)
    return ClassScores(name, _ratio(right, predicted), _ratio(right, true), score, int(true))


def _ratio(part: int, whole: int) -> float:
    """Returns the quotient, or 0 if the denominator is 0."""
    return float(part / whole) if whole else 0.0
