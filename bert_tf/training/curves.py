"""The learning curves of a run as a PNG."""

import io
import math
import pathlib
import typing
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.system.files import atomic_write

Numbers = Sequence[float] | np.ndarray

if typing.TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_curves(
    path: pathlib.Path,
    plot_titles: dict[str, str],
    training: list[dict[str, Any]],
    evaluation: list[dict[str, Any]],
    baseline: dict[str, float],
) -> None:
    """Plots metrics against steps; writes no file if there are no values.

    Args:
      plot_titles: title of each metric; metrics without finite values are left out.
      training: lines of metrics.jsonl.
      evaluation: lines of eval_metrics.jsonl, drawn as dots.
      baseline: baseline values by metric name, drawn as dashed lines.
    """
    figure = make_figure(plot_titles, training, evaluation, baseline)
    if figure is not None:
        write_figure(path, figure)


def write_figure(path: pathlib.Path, figure: "Figure") -> None:
    """Writes a figure as a PNG."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=110)
    with atomic_write(path, "wb") as file:
        file.write(image.getvalue())


def make_figure(
    plot_titles: dict[str, str],
    training: list[dict[str, Any]],
    evaluation: list[dict[str, Any]],
    baseline: dict[str, float],
) -> "Figure | None":
    """Returns the figure of `draw_curves`, with a panel for each metric that has finite values."""
    # Imported here, so that programs without plots do not load it. This backend needs no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Metrics without finite values get no panel.
    curves = {}
    for name in plot_titles:
        trained = _points(training, name)
        evaluated = _points(evaluation, name)
        # A single evaluation alone is no curve.
        if trained[0] or len(evaluated[0]) > 1:
            curves[name] = (trained, evaluated)
    if not curves:
        return None
    rows = math.ceil(len(curves) / 2)
    figure = Figure(figsize=(10, 3.4 * rows), layout="constrained")
    # It attaches itself to the figure.
    FigureCanvasAgg(figure)
    cells = list(figure.subplots(rows, 2).flat)
    for unused in cells[len(curves) :]:
        unused.remove()
    for axes, (name, (trained, evaluated)) in zip(cells, curves.items(), strict=False):
        if trained[0]:
            plot_line(axes, *trained, label="training", linewidth=1.2)
        if evaluated[0]:
            axes.plot(*evaluated, "o", label="evaluation", markersize=4)
        if name in baseline:
            axes.axhline(baseline[name], color="gray", linestyle="--", label="baseline")
        axes.set(title=plot_titles[name], xlabel="optimizer steps")
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def plot_line(axes: "Axes", steps: Numbers, values: Numbers, **style: Any) -> None:
    """Plots a curve; a single point is drawn as a dot."""
    axes.plot(steps, values, marker="." if len(steps) == 1 else "", **style)


def _points(lines: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Returns the steps and the finite values of a metric."""
    steps = []
    values = []
    for line in lines:
        if name in line and math.isfinite(line[name]):
            steps.append(line["step"])
            values.append(line[name])
    return steps, values
