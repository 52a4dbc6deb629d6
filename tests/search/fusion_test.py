"""Joined rankings, worked by hand."""

import pytest

from bert_tf.search.fusion import reciprocal_rank_fusion, weighted_fusion

RUNS = [{"q": {"a": 9.0, "b": 8.0, "c": 1.0}}, {"q": {"c": 0.5, "a": 0.25}, "r": {"a": 3.0}}]


def test_reciprocal_ranks() -> None:
    found = reciprocal_rank_fusion(RUNS, [0.5, 2.0])
    a, b, c = 0.5 / 61 + 2 / 62, 0.5 / 62, 0.5 / 63 + 2 / 61
    assert found["q"] == pytest.approx({"a": a, "b": b, "c": c})
    assert found["r"] == pytest.approx({"a": 2 / 61})


def test_weighted_scores() -> None:
    found = weighted_fusion(RUNS, [0.25, 0.75], [0.0, 0.0])
    a, b, c = 0.25 + 0.75 / 2, 0.25 * 8 / 9, 0.25 / 9 + 0.75
    assert found["q"] == pytest.approx({"a": a, "b": b, "c": c})
    assert found["r"] == pytest.approx({"a": 0.75})


def test_scores_are_scaled_from_the_lowest_possible() -> None:
    """TM2C2: 0 for BM25 and -1 for cosines, so the lowest document is not worth nothing."""
    runs = [{"q": {"a": 10.0, "b": 9.9}}, {"q": {"c": 0.9, "d": 0.1}}]
    found = weighted_fusion(runs, [1.0, 1.0], [0.0, -1.0])["q"]
    assert found == pytest.approx({"a": 1, "b": 0.99, "c": 1, "d": 1.1 / 1.9})


@pytest.mark.parametrize(
    ("scores", "minimum", "expected"),
    [
        # Of scores without a limit the lowest one that was found.
        ({"a": 30.0, "b": 20.0, "c": 22.0}, None, {"a": 1, "b": 0, "c": 0.2}),
        ({"a": 30.0}, None, {"a": 1.0}),
        # A score below the stated minimum takes its place, and nothing is shared at the minimum.
        ({"a": 1.0, "b": -3.0}, 0.0, {"a": 1, "b": 0}),
        ({"a": 0.0, "b": 0.0}, 0.0, {"a": 0.0, "b": 0.0}),
        ({}, 0.0, {}),
    ],
)
def test_minima_of_one_run(scores, minimum, expected) -> None:
    assert weighted_fusion([{"q": scores}], [1.0], [minimum])["q"] == pytest.approx(expected)
