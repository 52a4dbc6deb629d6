"""The texts that an evaluation leaves to be looked at, spelt out."""

import numpy as np
import pytest

from bert_tf.metrics.calibration import reliability
from bert_tf.tasks.classification.decisions import Decisions
from bert_tf.tasks.classification.examples import TextExample
from bert_tf.tasks.classification.report import (
    MAX_CONFUSIONS,
    MAX_MATRIX,
    calibration_text,
    class_report_text,
    reliability_figure,
    several_report_text,
    worst_errors_text,
)

TRUE = np.array([0, 0, 0, 0, 1, 1, 2])
PREDICTED = np.array([0, 1, 1, 2, 1, 0, 2])


def test_report_of_classes_by_hand():
    assert class_report_text(TRUE, PREDICTED, ["a", "bee", "neutral_one"]) == (
        "             precision  recall      f1  support\n"
        "a               0.5000  0.2500  0.3333        4\n"
        "bee             0.3333  0.5000  0.4000        2\n"
        "neutral_one     0.5000  1.0000  0.6667        1\n"
        "micro           0.4286  0.4286  0.4286        7\n"
        "macro           0.4444  0.5833  0.4667        7\n"
        "weighted        0.4524  0.4286  0.4000        7\n"
        "accuracy     0.4286\n"
        "\n\n"
        "Confusion matrix (rows: true classes, columns: predicted classes):\n"
        "                         a          bee  neutral_one\n"
        "            a            1            2            1\n"
        "          bee            1            1            0\n"
        "  neutral_one            0            0            1\n"
        "\n"
        "The most frequent confusions:\n"
        "      2  a taken for bee\n"
        "      1  a taken for neutral_one\n"
        "      1  bee taken for a\n"
    )


def test_without_errors_there_are_no_confusions():
    text = class_report_text(TRUE, TRUE, ["a", "b", "c"])
    assert text.endswith("The most frequent confusions:\n  none\n")


def test_of_many_classes_only_the_frequent_confusions_are_shown():
    names = [f"class{number}" for number in range(MAX_MATRIX + 20)]
    true = np.arange(len(names)).repeat(2)
    predicted = (true + 1) % len(names)
    predicted[0] = 7  # Then 0 taken for 1 stands once, after all that stand twice.
    text = class_report_text(true, predicted, names)
    assert "Confusion matrix" not in text
    lines = text.split("The most frequent confusions:\n")[1].splitlines()
    assert lines == [f"      2  class{n} taken for class{n + 1}" for n in range(1, 31)]
    assert len(lines) == MAX_CONFUSIONS
    assert "Confusion matrix" in class_report_text(TRUE, PREDICTED, names[:MAX_MATRIX])


def test_report_of_several_labels_is_scikit_learns():
    reference = pytest.importorskip("sklearn.metrics").precision_recall_fscore_support
    draw = np.random.default_rng(1)
    true, predicted = draw.integers(0, 2, (2, 30, 3))
    rows = [line.split() for line in several_report_text(true, predicted, "xyz").splitlines()]
    for name, *scores in zip("xyz", *reference(true, predicted), strict=True):
        assert [name, *(f"{value:.4f}" for value in scores[:3]), str(scores[3])] in rows
    scores = reference(true, predicted, average="micro")[:3]
    assert ["micro", *(f"{value:.4f}" for value in scores), str(true.sum())] in rows


def test_worst_errors_are_sorted_cut_and_on_one_line_each():
    examples = [
        TextExample(
            f"text\t{number}\nhere", "second" if number == 3 else "", label, "0", f"f {number}"
        )
        for number, label in enumerate(["x", "y", None, "x", "y"])
    ]
    losses = np.array([0.5, 9.0, 1.25, 3.0, 0.5])
    is_wrong = np.array([True, False, True, True, True])
    assert worst_errors_text(examples, losses, list("abcde"), is_wrong, 3) == (
        "loss\tlabel\tanswer\tsource\ttext\n"
        "3.0000\tx\td\tf 3\ttext 3 here ||| second\n"
        "1.2500\t\tc\tf 2\ttext 2 here\n"
        "0.5000\tx\ta\tf 0\ttext 0 here\n"
    )
    assert worst_errors_text(examples, losses, list("abcde"), is_wrong, 0).count("\n") == 1


def test_the_reliability_diagram_has_the_bins():
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.4, 0.6]])
    bins = reliability(probabilities, np.array([0, 1, 1, 1]))
    above, below = reliability_figure(bins).axes
    heights = [bar.get_height() for bar in above.patches]
    assert heights[13] == pytest.approx(2 / 3) and heights[8] == 1 and sum(heights) < 1.7
    assert [bar.get_height() for bar in below.patches][13] == 3


def test_the_text_of_calibration():
    bins = reliability(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 1]))
    text = calibration_text(bins, Decisions(1.25, (0.75, 0.25)), ("no", "yes"))
    lines = [line.split() for line in text.splitlines()]
    assert ["0.9000", "0.5000", "2"] in lines
    assert ["0.2500", "yes"] in lines and "1.2500" in text and "0.4000" in text
