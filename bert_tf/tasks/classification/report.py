"""Report of an evaluation: scores of each class, confusions, calibration, the worst errors."""

import typing
from collections.abc import Sequence

import numpy as np

from bert_tf.metrics.calibration import ReliabilityBin, calibration_error
from bert_tf.metrics.classification import (
    class_report,
    confusion_matrix,
    format_report,
    multilabel_report,
)
from bert_tf.tasks.base.programs.results import table_text
from bert_tf.tasks.classification.decisions import Decisions
from bert_tf.tasks.classification.examples import TextExample

if typing.TYPE_CHECKING:
    from matplotlib.figure import Figure


MAX_MATRIX = 20
MAX_CONFUSIONS = 30


def class_report_text(true: np.ndarray, predicted: np.ndarray, labels: Sequence[str]) -> str:
    """Returns scores of each class and the confusions of classes, int [E].

    With more than `MAX_MATRIX` labels, only the most frequent confusions are shown.
    """
    matrix = confusion_matrix(true, predicted, len(labels))
    parts = [format_report(class_report(true, predicted, labels))]
    if len(labels) <= MAX_MATRIX:
        parts.append(_matrix_text(matrix, labels))
    # Without the diagonal, which counts the right answers. [C, C]
    confused = matrix - np.diag(np.diag(matrix))
    order = np.argsort(-confused, axis=None, kind="stable")[:MAX_CONFUSIONS]
    # From positions in the flattened matrix to (true class, predicted class).
    pairs = [np.unravel_index(index, matrix.shape) for index in order]
    lines = [
        f"{confused[pair]:7d}  {labels[pair[0]]} taken for {labels[pair[1]]}"
        for pair in pairs
        if confused[pair]
    ]
    parts.append("\n".join(["The most frequent confusions:", *(lines or ["  none"])]))
    return "\n\n".join(parts) + "\n"


def several_report_text(true: np.ndarray, predicted: np.ndarray, labels: Sequence[str]) -> str:
    """Returns scores of each class where an example has several; int [E, C], 0 or 1."""
    return format_report(multilabel_report(true, predicted, labels)) + "\n"


def calibration_text(
    bins: Sequence[ReliabilityBin], decisions: Decisions, labels: Sequence[str]
) -> str:
    """Returns the calibration error, temperature, thresholds, and the bins that are not empty."""
    error = calibration_error(bins)
    lines = [
        f"Expected calibration error {error:.4f} ({len(bins)} bins), "
        f"temperature {decisions.temperature:.4f}",
        "  confidence  accuracy  decisions",
    ]
    for one in bins:
        if one.num_decisions:
            lines.append(f"  {one.confidence:10.4f}  {one.accuracy:8.4f}  {one.num_decisions:9d}")
    if decisions.thresholds:
        lines += ["", "Thresholds:"]
        for label, threshold in decisions.by_label(labels).items():
            lines.append(f"  {threshold:.4f}  {label}")
    return "\n".join(lines) + "\n"


def predictions_texts(
    examples: Sequence[TextExample], answers: Sequence[str], probabilities: np.ndarray
) -> dict[str, str]:
    """Returns predictions.tsv, and google-research/bert's test_results.tsv, [E, C] in all lines."""
    has_pairs = any(example.text_b for example in examples)
    rows = []
    for example, answer, row in zip(examples, answers, probabilities, strict=True):
        texts = (example.text_a, example.text_b) if has_pairs else (example.text_a,)
        rows.append((example.id, answer, f"{row.max():.6f}", *texts))
    lines = ["\t".join(map(str, row)) + "\n" for row in probabilities]
    table = table_text("id answer score text" + " text_b" * has_pairs, rows)
    return {"predictions.tsv": table, "test_results.tsv": "".join(lines)}


def _matrix_text(matrix: np.ndarray, labels: Sequence[str]) -> str:
    width = max(7, *(len(label) + 2 for label in labels))
    lines = ["Confusion matrix (rows: true classes, columns: predicted classes):"]
    lines.append(" " * width + "".join(label.rjust(width) for label in labels))
    for label, row in zip(labels, matrix, strict=True):
        lines.append(label.rjust(width) + "".join(str(count).rjust(width) for count in row))
    return "\n".join(lines)


def worst_errors_text(
    examples: Sequence[TextExample],
    losses: np.ndarray,
    answers: Sequence[str],
    is_wrong: np.ndarray,
    most: int,
) -> str:
    """Returns a table of the wrong answers with the highest losses, tab-separated with a header.

    Each sequence has an entry per example; `most` is the number of lines.
    """
    wrong = np.flatnonzero(is_wrong)
    order = wrong[np.argsort(-losses[wrong], kind="stable")][:most]
    lines = ["loss\tlabel\tanswer\tsource\ttext\n"]
    for index in order:
        example = examples[index]
        texts = " ||| ".join(filter(None, (example.text_a, example.text_b)))
        cells = (f"{losses[index]:.4f}", example.label or "", answers[index], example.source, texts)
        # Tabs and line ends inside cells become spaces.
        lines.append("\t".join(" ".join(cell.split()) for cell in cells) + "\n")
    return "".join(lines)


def reliability_figure(bins: Sequence[ReliabilityBin]) -> "Figure":
    """Plots accuracy against confidence, and below it how many decisions each bin has."""
    # Imported here, as in `training.curves`.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = 1 / len(bins)
    starts = [index * width for index in range(len(bins))]
    figure = Figure(figsize=(5, 6), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, height_ratios=(3, 1), sharex=True)
    above.bar(
        starts,
        [one.accuracy if one.num_decisions else 0.0 for one in bins],
        width,
        align="edge",
        edgecolor="white",
        label="accuracy",
    )
    filled = [one for one in bins if one.num_decisions]
    above.plot(
        [one.confidence for one in filled],
        [one.accuracy for one in filled],
        "o",
        color="black",
        markersize=4,
        label="at the mean confidence",
    )
    above.plot([0, 1], [0, 1], "--", color="gray", label="calibrated")
    above.set(
        title=f"expected calibration error {calibration_error(bins):.4f}",
        ylabel="accuracy",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    above.legend(loc="upper left")
    below.bar(starts, [one.num_decisions for one in bins], width, align="edge", edgecolor="white")
    below.set(xlabel="confidence", ylabel="decisions")
    return figure
