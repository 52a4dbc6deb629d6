"""The reliability diagram of a classifier."""

import typing
from collections.abc import Sequence

from bert_tf.metrics.calibration import ReliabilityBin, calibration_error

if typing.TYPE_CHECKING:
    from matplotlib.figure import Figure


def reliability_figure(bins: Sequence[ReliabilityBin]) -> "Figure":
    """Plots accuracy against confidence, and below it how many decisions each bin has.

    Args:
      bins: of equal width, from 0 to 1.
    """
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
