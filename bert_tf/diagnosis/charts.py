"""The plots of the report, as SVG without a background, so that they do in light and in dark."""

import io
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_tf.diagnosis.findings import Plot

Draw = Callable[[Any], None]
COLOURS = ("#3b82c4", "#e07b39", "#5aa469", "#b0629f")
GREY = "#888888"  # read on white and on black


def histogram(values: Sequence[float] | np.ndarray, label: str, is_log: bool = False) -> Draw:
    """Returns what draws how often values are met; with `is_log` over a logarithmic axis."""

    def draw(axes: Any) -> None:
        data = np.asarray(values, float)
        edges: Any = 40
        if is_log:
            data = np.maximum(data, 1)
            edges = np.geomspace(1, max(2.0, data.max() * 1.01), 40)
            axes.set_xscale("log")
        axes.hist(data, bins=edges, color=COLOURS[0])
        axes.set(xlabel=label, ylabel="how many")

    return draw


def bars(names: Sequence[str], measured: Sequence[float], nominal: Sequence[float]) -> Draw:
    """Returns what draws measured shares beside nominal ones."""

    def draw(axes: Any) -> None:
        places = np.arange(len(names))
        axes.bar(places - 0.2, measured, 0.4, label="measured", color=COLOURS[0])
        axes.bar(places + 0.2, nominal, 0.4, label="nominal", color=GREY)
        axes.set_xticks(places, names)
        _legend(axes)

    return draw


def lines(
    series: dict[str, Any],
    levels: dict[str, float] | None = None,
    is_log: bool = False,
) -> Draw:
    """Returns what draws values against steps, and levels as dashed lines.

    Args:
      series: by name, steps and values; a few points are drawn as dots.
      levels: by name, a value.
      is_log: whether values are drawn on a logarithmic axis.
    """

    def draw(axes: Any) -> None:
        for number, (name, (steps, values)) in enumerate(series.items()):
            kept = [(x, y) for x, y in zip(steps, values, strict=True) if math.isfinite(y)]
            if not kept:
                continue
            mark = "o" if len(kept) < 20 else ""
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(*zip(*kept, strict=True), marker=mark, markersize=3, lw=1.2, color=colour)
            axes.lines[-1].set_label(name)
        for name, level in (levels or {}).items():
            axes.axhline(level, ls="--", lw=1, color=GREY, label=name)
        if is_log:
            axes.set_yscale("log")
        axes.set_xlabel("optimizer steps")
        _legend(axes)

    return draw


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, labelcolor=GREY, fontsize=8)


def draw_svg(plot: Plot) -> str:
    """Returns a plot as an <svg> element that takes the width it is given."""
    # Imported here: a program that draws nothing need not load it. No display is needed.
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4, 2.6), layout="constrained")
    FigureCanvasSVG(figure)
    figure.patch.set_alpha(0.0)
    axes = figure.subplots()
    axes.patch.set_alpha(0.0)
    axes.grid(alpha=0.25)
    plot.draw(axes)
    for spine in axes.spines.values():
        spine.set_color(GREY)
    axes.tick_params(which="both", colors=GREY, labelsize=8)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(GREY)
    file = io.StringIO()
    # "none" leaves text as text: small, and in the reader's own fonts.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": plot.title}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    # One page holds several drawings: of their ids only those stay that the drawing refers to.
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    return re.sub(r' id="([^"]+)"', lambda match: match[0] if match[1] in used else "", svg)
