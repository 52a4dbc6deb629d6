"""Joined rankings, worked by hand."""

import pytest

from bert_tf.search.fusion import reciprocal_rank_fusion, weighted_fusion

RUNS = [{"q": {"a": 9.0, "b": 8.0, "c": 1.0}}, {"q": {"c": 0.5, "a": 0.25}, "r": {"a": 3.0}}]


def test_reciprocal_ranks() -> None:
    found = reciprocal_rank_fusion(RUNS)
    assert found["q"] == pytest.approx({"a": 1 / 61 + 1 / 62, "b": 1 / 62, "c": 1 / 63 + 1 / 61})
    assert found["r"] == pytest.approx({"a": 1 / 61})
    found = reciprocal_rank_fusion(RUNS, [0.5, 2.0], constant=0)
    assert found["q"] == pytest.approx({"a": 0.5 + 1, "b": 0.25, "c": 0.5 / 3 + 2})


def test_weighted_scores() -> None:
    found = weighted_fusion(RUNS, [0.25, 0.75])
    a, b, c = 0.25 + 0.75 / 2, 0.25 * 8 / 9, 0.25 / 9 + 0.75
    assert found["q"] == pytest.approx({"a": a, "b": b, "c": c})
    assert found["r"] == pytest.approx({"a": 0.75})
    assert weighted_fusion([{"q": {}}]) == {"q": {}}


def test_the_lowest_document_of_a_run_is_not_worth_nothing() -> None:
    """TM2C2: scaled from the lowest possible score, 0 for BM25 and -1 for cosines."""
    runs = [{"q": {"a": 10.0, "b": 9.9}}, {"q": {"c": 0.9, "d": 0.1}}]
    found = weighted_fusion(runs, minima=[0.0, -1.0])["q"]
    assert found == pytest.approx({"a": 1, "b": 0.99, "c": 1, "d": 1.1 / 1.9})
    assert weighted_fusion(runs)["q"]["b"] == pytest.approx(0.99)
    # Of scores without a limit the lowest one that was found.
    found = weighted_fusion([{"q": {"a": 30.0, "b": 20.0, "c": 22.0}}], minima=[None])["q"]
    assert found == pytest.approx({"a": 1, "b": 0, "c": 0.2})
    assert weighted_fusion([{"q": {"a": 30.0}}], minima=[None]) == {"q": {"a": 1.0}}
    # A score below the stated minimum takes its place, and nothing is shared at the minimum.
    found = weighted_fusion([{"q": {"a": 1.0, "b": -3.0}}], minima=[0.0])["q"]
    assert found == pytest.approx({"a": 1, "b": 0})
    assert weighted_fusion([{"q": {"a": 0.0, "b": 0.0}}]) == {"q": {"a": 0.0, "b": 0.0}}


def test_one_weight_a_run() -> None:
    with pytest.raises(ValueError, match="1 weights .*2 runs"):
        reciprocal_rank_fusion(RUNS, [1.0])
    with pytest.raises(ValueError, match="1 minima .*2 runs"):
        weighted_fusion(RUNS, minima=[0.0])
