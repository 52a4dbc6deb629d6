"""The learning curves of a run as a PNG."""

import io
import math
import pathlib
import typing
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.files import atomic_write

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
    """Plots metrics against steps; does nothing if there are no values.

    Args:
      path: the PNG written.
      plot_titles: title of each metric; those without a finite value are left out.
      training: lines of metrics.jsonl.
      evaluation: the same of evaluations; drawn as dots.
      baseline: value of a metric's baseline by metric name; drawn as a dashed line.
    """
    figure = make_figure(plot_titles, training, evaluation, baseline)
    if figure is None:
        return
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
    # Imported here: a program that draws nothing need not load it. No display is needed.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    curves = {name: (_points(training, name), _points(evaluation, name)) for name in plot_titles}
    drawn = [name for name, (trained, evaluated) in curves.items() if trained or evaluated]
    if not drawn:
        return None
    rows = math.ceil(len(drawn) / 2)
    figure = Figure(figsize=(10, 3.4 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    cells = list(figure.subplots(rows, 2).flat)
    for unused in cells[len(drawn) :]:
        unused.remove()
    for axes, name in zip(cells, drawn, strict=False):
        trained, evaluated = curves[name]
        if trained:
            plot_line(axes, *zip(*trained, strict=True), label="training", linewidth=1.2)
        if evaluated:
            axes.plot(*zip(*evaluated, strict=True), "o", label="evaluation", markersize=4)
        if name in baseline:
            axes.axhline(baseline[name], color="gray", linestyle="--", label="baseline")
        axes.set(title=plot_titles[name], xlabel="optimizer steps")
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def plot_line(axes: "Axes", steps: Numbers, values: Numbers, **style: Any) -> None:
    """Plots a curve; a single point, which no line goes through, is drawn as a dot."""
    axes.plot(steps, values, marker="." if len(steps) == 1 else "", **style)


def _points(lines: list[dict[str, Any]], name: str) -> list[tuple[int, float]]:
    """Returns steps and finite values of a metric."""
    return [
        (line["step"], line[name]) for line in lines if name in line and math.isfinite(line[name])
    ]
