"""Joined rankings, worked by hand."""

import pytest

from bert_tf.search.fusion import reciprocal_rank_fusion, weighted_fusion

A, B, C, D = range(4)
RANKINGS = [{A: 9.0, B: 8.0, C: 1.0}, {C: 0.5, A: 0.25}]


def test_reciprocal_ranks() -> None:
    found = reciprocal_rank_fusion(RANKINGS, [0.5, 2.0])
    a, b, c = 0.5 / 61 + 2 / 62, 0.5 / 62, 0.5 / 63 + 2 / 61
    assert found == pytest.approx({A: a, B: b, C: c})


def test_weighted_scores() -> None:
    found = weighted_fusion(RANKINGS, [0.25, 0.75], [0.0, 0.0])
    a, b, c = 0.25 + 0.75 / 2, 0.25 * 8 / 9, 0.25 / 9 + 0.75
    assert found == pytest.approx({A: a, B: b, C: c})


def test_scores_are_scaled_from_the_lowest_possible() -> None:
    """TM2C2: 0 for BM25 and -1 for cosines, so the lowest document is not worth nothing."""
    found = weighted_fusion([{A: 10.0, B: 9.9}, {C: 0.9, D: 0.1}], [1.0, 1.0], [0.0, -1.0])
    assert found == pytest.approx({A: 1, B: 0.99, C: 1, D: 1.1 / 1.9})


@pytest.mark.parametrize(
    ("scores", "minimum", "expected"),
    [
        # Of scores without a limit the lowest one that was found.
        ({A: 30.0, B: 20.0, C: 22.0}, None, {A: 1, B: 0, C: 0.2}),
        ({A: 30.0}, None, {A: 1.0}),
        # A score below the stated minimum takes its place, and nothing is shared at the minimum.
        ({A: 1.0, B: -3.0}, 0.0, {A: 1, B: 0}),
        ({A: 0.0, B: 0.0}, 0.0, {A: 0.0, B: 0.0}),
        ({}, 0.0, {}),
    ],
)
def test_minima_of_one_run(scores, minimum, expected) -> None:
    assert weighted_fusion([scores], [1.0], [minimum]) == pytest.approx(expected)
