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
    assert found["q"] == pytest.approx({"a": 0.25, "b": 0.25 * 7 / 8, "c": 0.75})
    assert found["r"] == pytest.approx({"a": 0.75})
    assert weighted_fusion([{"q": {}}]) == {"q": {}}


def test_one_weight_a_run() -> None:
    with pytest.raises(ValueError, match="2 runs, but 1 weights"):
        reciprocal_rank_fusion(RUNS, [1.0])
