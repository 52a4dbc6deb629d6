"""The learning curves of a run as a PNG."""

import io
import math
import pathlib
from typing import Any

from bert_tf.files import atomic_write


def draw_curves(
    path: pathlib.Path,
    panels: dict[str, str],
    training: list[dict[str, Any]],
    evaluation: list[dict[str, Any]],
    baseline: dict[str, float],
) -> None:
    """Plots metrics against steps; does nothing if there are no lines.

    Args:
      path: the PNG written.
      panels: title of each metric; those without a value are left out.
      training: lines of metrics.jsonl.
      evaluation: the same of evaluations; drawn as dots.
      baseline: value of a metric's baseline by metric name; drawn as a dashed line.
    """
    # Imported here: a program that draws nothing need not load it. No display is needed.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = [*training, *evaluation]
    present = {name: panels[name] for name in panels if any(name in line for line in lines)}
    if not present:
        return
    rows = math.ceil(len(present) / 2)
    figure = Figure(figsize=(10, 3.4 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, title) in zip(figure.subplots(rows, 2).flat, present.items(), strict=False):
        points = [(line["step"], line[name]) for line in training if name in line]
        if points:
            axes.plot(*zip(*points, strict=True), label="training", linewidth=1.2)
        points = [(line["step"], line[name]) for line in evaluation if name in line]
        if points:
            axes.plot(*zip(*points, strict=True), "o", label="evaluation", markersize=4)
        if name in baseline:
            axes.axhline(baseline[name], color="gray", linestyle="--", label="baseline")
        axes.set(title=title, xlabel="optimizer steps")
        axes.grid(alpha=0.3)
        axes.legend()
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=110)
    with atomic_write(path, "wb") as file:
        file.write(image.getvalue())
