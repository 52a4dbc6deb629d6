"""Classification metrics: numbers worked by hand, then scikit-learn beside ours."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bert_tf.metrics import classification
from tests.float_bounds import assert_close

# Class 0: 2 true, 1 predicted, 1 right. Class 1: 2, 4, 2. Class 2: 1, 0, 0. Class 3 never occurs.
LABELS = [0, 0, 1, 1, 2]
PREDICTIONS = [0, 1, 1, 1, 1]
ROWS = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]]
PREDICTED_ROWS = [[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0]]


def test_accuracy_by_hand() -> None:
    assert classification.accuracy([0, 1, 1, 0], [0, 1, 0, 0]) == 0.75
    assert classification.accuracy([7], [7]) == 1.0


def test_f1_by_hand() -> None:
    assert classification.f1([1, 1, 1, 0], [1, 0, 0, 1]) == 0.4  # right 1, predicted 2, true 3
    assert classification.f1([0, 0], [0, 0]) == 0.0  # no positive anywhere


def test_confusion_matrix_by_hand() -> None:
    matrix = classification.confusion_matrix(LABELS, PREDICTIONS, 4)
    expected = [[1, 1, 0, 0], [0, 2, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(matrix, expected)
    assert matrix.dtype == np.int64


def test_matthews_by_hand() -> None:
    assert classification.matthews([1, 1, 1, 0], [1, 0, 1, 1]) == pytest.approx(-1 / 3)
    # tp 2, tn 1, fp 1, fn 0: (2 * 1 - 1 * 0) / sqrt(3 * 2 * 2 * 1)
    assert classification.matthews([1, 1, 0, 0], [1, 1, 1, 0]) == pytest.approx(2 / 12**0.5)
    # Three classes: n 5, c 3, t = (2, 2, 1), p = (1, 4, 0): (15 - 10) / sqrt(16 * 8)
    assert classification.matthews(LABELS, PREDICTIONS) == pytest.approx(5 / 128**0.5)
    assert classification.matthews([3, 5], [3, 5]) == 1.0
    assert classification.matthews([0, 1], [1, 0]) == -1.0
    assert classification.matthews([0, 1], [1, 1]) == 0.0  # one class was never predicted
    assert classification.matthews([1, 1], [1, 1]) == 0.0
    many = np.arange(200_000) % 2  # The product of the spreads exceeds 64 bits.
    assert classification.matthews(many, many) == 1.0


def test_class_report_by_hand() -> None:
    report = classification.class_report(LABELS, PREDICTIONS, ["no", "yes", "maybe", "never"])
    no, yes, maybe, never = report.classes
    assert no == ("no", 1.0, 0.5, pytest.approx(2 / 3), 2)
    assert yes == ("yes", 0.5, 1.0, pytest.approx(2 / 3), 2)
    assert maybe == ("maybe", 0.0, 0.0, 0.0, 1)
    assert never == ("never", 0.0, 0.0, 0.0, 0)
    assert report.micro == ("micro", 0.6, 0.6, 0.6, 5)
    assert report.macro == ("macro", 0.375, 0.375, pytest.approx(1 / 3), 5)
    assert report.weighted == ("weighted", pytest.approx(0.6), 0.6, pytest.approx(8 / 15), 5)
    assert report.accuracy == 0.6
    # F1 of the classes: 2/3, 4/6, 0, 0.
    assert classification.macro_f1(LABELS, PREDICTIONS, 4) == pytest.approx(1 / 3)
    assert classification.macro_f1(LABELS, PREDICTIONS, 3) == pytest.approx(4 / 9)


def test_report_as_table() -> None:
    report = classification.class_report([0, 0, 1], [0, 1, 1], ["no", "yes"])
    assert classification.format_report(report).splitlines() == [
        "          precision  recall      f1  support",
        "no           1.0000  0.5000  0.6667        2",
        "yes          0.5000  1.0000  0.6667        1",
        "micro        0.6667  0.6667  0.6667        3",
        "macro        0.7500  0.7500  0.6667        3",
        "weighted     0.8333  0.6667  0.6667        3",
        "accuracy  0.6667",
    ]


def test_multilabel_by_hand() -> None:
    # Class 0: true 2, predicted 3, right 2. Class 1: 2, 1, 1. Class 2 never occurs.
    report = classification.multilabel_report(ROWS, PREDICTED_ROWS, ["a", "b", "c"])
    assert report.classes[0] == ("a", pytest.approx(2 / 3), 1.0, 0.8, 2)
    assert report.classes[1] == ("b", 1.0, 0.5, pytest.approx(2 / 3), 2)
    assert report.classes[2] == ("c", 0.0, 0.0, 0.0, 0)
    assert report.micro == ("micro", 0.75, 0.75, 0.75, 4)  # 2 * 3 / (4 + 4)
    assert report.macro.f1 == pytest.approx((4 / 5 + 2 / 3) / 3)
    assert report.weighted.f1 == pytest.approx((2 * 4 / 5 + 2 * 2 / 3) / 4)
    assert report.accuracy == 0.5


def test_multilabel_without_a_one_is_zero() -> None:
    report = classification.multilabel_report([[0, 0]], [[0, 0]], ["a", "b"])
    assert report.micro.f1 == report.macro.f1 == report.weighted.f1 == 0.0
    assert report.accuracy == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: classification.accuracy([], []), r"labels .*\(0,\).*argmax"),
        (lambda: classification.f1([1, 0], [1]), r"labels .*\(2,\), predictions .*\(1,\)"),
        (lambda: classification.matthews([[1]], [[1]]), "argmax"),
        (lambda: classification.accuracy([0], [0.5]), "predictions .*float64, .*ints"),
        (
            lambda: classification.confusion_matrix([0, -1], [0, 0], 2),
            r"labels .*-1 .* 1; .*\[0, 2\)",
        ),
        (lambda: classification.macro_f1([0, 1], [0, 2], 2), r"predictions .*2 .* 1; .*\[0, 2\)"),
        (lambda: classification.multilabel_report([1], [1], "a"), r"labels .*\(1,\).*rows"),
        (
            lambda: classification.multilabel_report([[1]], [[0.7]], "a"),
            r"predictions .*0\.7, .*0 .*1",
        ),
        (lambda: classification.multilabel_report(1, 1, "a"), r"labels .*\(\), predictions .*\(\)"),
        (lambda: classification.multilabel_report([[1]], [[1]], ["a", "b"]), "2 names.* 1 columns"),
    ],
)
def test_bad_input_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("num_labels", [2, 3, 7])
def test_same_as_scikit_learn(num_labels: int) -> None:
    reference = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(num_labels)
    for count in [1, 2, 5, 30, 999]:
        labels = random.integers(num_labels, size=count)
        guesses = random.integers(num_labels, size=count)
        predictions = np.where(random.random(count) < 0.6, labels, guesses)
        pair, classes = (labels, predictions), list(range(num_labels))
        assert classification.accuracy(*pair) == reference.accuracy_score(*pair)
        assert classification.f1(*pair) == reference.f1_score(
            *pair, labels=[1], average="micro", zero_division=0
        )
        matrix = reference.confusion_matrix(*pair, labels=classes)
        np.testing.assert_array_equal(classification.confusion_matrix(*pair, num_labels), matrix)
        if count > 1:
            assert classification.matthews(*pair) == reference.matthews_corrcoef(*pair)
        report = classification.class_report(*pair, list(map(str, classes)))
        _same_report(report, reference, pair, classes)


def test_same_as_scikit_learn_with_several_labels() -> None:
    reference = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    for count in [2, 5, 30, 999]:
        pair = (random.random((2, count, 4)) < [0.5, 0.2, 0.05, 0.9]).astype(int)
        report = classification.multilabel_report(*pair, list("abcd"))
        assert report.accuracy == reference.accuracy_score(*pair)
        _same_report(report, reference, pair, [0, 1, 2, 3])


def _same_report(
    report: classification.ClassReport, reference: Any, pair: Any, classes: list[int]
) -> None:
    """Compares to the last digit, but for averages: their sums may run in another order."""

    def scores(average: str | None) -> Any:
        return reference.precision_recall_fscore_support(
            *pair, labels=classes, average=average, zero_division=0
        )

    for row, expected in zip(report.classes, zip(*scores(None), strict=True), strict=True):
        assert row[1:] == expected
    assert report.micro[1:4] == scores("micro")[:3]
    for row in (report.macro, report.weighted):
        assert_close(row[1:4], scores(row.name)[:3])
