"""Curves: a picture with a panel for each metric that has values."""

import math
import struct

import pytest

from bert_tf.training.curves import draw_curves, make_figure

PANELS = {"loss": "Loss", "f1": "F1", "accuracy": "Accuracy"}


def height(path):
    """Returns the height that a PNG states; a row of plot_titles has 374 pixels."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) > 5000
    return struct.unpack(">I", content[20:24])[0]


@pytest.mark.parametrize(
    ("training", "evaluation", "rows"),
    [
        pytest.param(
            [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0, "accuracy": 0.5}],
            [],
            1,
            marks=pytest.mark.slow,
        ),
        ([], [{"step": 2, "f1": 0.5}, {"step": 4, "f1": 0.6}], 1),
        # A panel with the one dot of f1 would show nothing.
        (
            [{"step": 1, "loss": 2.0}],
            [
                {"step": 2, "accuracy": 0.1, "other": 1.0},
                {"step": 4, "accuracy": 0.2, "f1": 0.5},
            ],
            1,
        ),
    ],
)
def test_a_panel_for_each_metric_with_values(tmp_path, training, evaluation, rows):
    path = tmp_path / "curves.png"
    draw_curves(path, PANELS, training, evaluation, {"loss": 3.0})
    assert height(path) == rows * 374
    plain = path.read_bytes()
    draw_curves(path, PANELS, training, evaluation, {})
    has_loss = any("loss" in line for line in training)
    assert (path.read_bytes() != plain) == has_loss  # the baseline's line


def test_nothing_without_values(tmp_path):
    evaluation = [{"step": 1, "other": 2.0, "f1": 0.5}]
    draw_curves(tmp_path / "curves.png", PANELS, [], evaluation, {"loss": 1.0})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("metrics", [("loss",), ("loss", "f1"), ("loss", "f1", "accuracy")])
def test_every_panel_has_data_that_can_be_seen(metrics):
    """Also the curve of a run with a single line."""
    line = {"step": 1, **dict.fromkeys(metrics, 0.5)}
    nothing = {"accuracy": math.nan} if "accuracy" not in metrics else {}
    figure = make_figure(PANELS, [{**line, **nothing}], [], {})
    assert [axes.get_title() for axes in figure.axes] == [PANELS[name] for name in metrics]
    for axes in figure.axes:
        (curve,) = axes.get_lines()
        assert curve.get_marker() == "."
    figure = make_figure(PANELS, [line, {**line, "step": 2}], [], {})
    assert all(axes.get_lines()[0].get_marker() == "" for axes in figure.axes)
