"""Combines the rankings of several searches, for example by vectors and by words.

A run is {query id: {document id: score}}, as in `metrics.ranking`. A run adds nothing to the score
of a document that it did not find.
"""

from collections.abc import Mapping, Sequence

from bert_tf.metrics.ranking import Run, rank

RANK_CONSTANT = 60  # The higher, the smaller the differences between the first ranks.


def reciprocal_rank_fusion(
    runs: Sequence[Run], weights: Sequence[float]
) -> dict[str, dict[str, float]]:
    """Scores each document by the sum of weight / (RANK_CONSTANT + rank) over the runs.

    Only ranks count, so scores may be of any scale; equal scores keep their order.

    Example: a document at ranks 1 and 3, with weights of 1, scores 1 / 61 + 1 / 63.

    Reference: Cormack et al. 2009, "Reciprocal rank fusion outperforms Condorcet and individual
    rank learning methods".
    """
    points = []
    for run in runs:
        points.append({query: _rank_points(scores) for query, scores in run.items()})
    return _weighted_sum(points, weights)


def weighted_fusion(
    runs: Sequence[Run], weights: Sequence[float], minima: Sequence[float | None]
) -> dict[str, dict[str, float]]:
    """Scores each document by the weighted sum of its scores, scaled per query to 0 .. 1.

    A run's highest score for a query becomes 1, and its minimum becomes 0. The minimum is the
    lowest possible score. With the lowest score found instead, the last document of a run would get
    the same as a document that the run does not contain, however well it matches.

    Args:
      runs: preferably with the same documents in each run.
      weights: one per run.
      minima: the lowest possible score of each run: 0 for BM25, -1 for cosines. None for unbounded
        scores such as dot products: the lowest score found for the query. A score below the given
        minimum replaces it.

    Reference: Bruch et al. 2023, "An analysis of fusion functions for hybrid retrieval" (TM2C2).
    """
    points = []
    for run, minimum in zip(runs, minima, strict=True):
        points.append({query: _scaled(scores, minimum) for query, scores in run.items()})
    return _weighted_sum(points, weights)


def _rank_points(scores: Mapping[str, float]) -> dict[str, float]:
    best = rank(scores, ties="given")
    return {name: 1 / (RANK_CONSTANT + position) for position, name in enumerate(best, 1)}


def _scaled(scores: Mapping[str, float], minimum: float | None) -> dict[str, float]:
    if not scores:
        return {}
    lowest = min(scores.values())
    # A score below the stated minimum would become negative.
    if minimum is not None:
        lowest = min(minimum, lowest)
    width = max(scores.values()) - lowest
    if width == 0:  # All scores are equal: each is the highest of an unbounded run.
        return dict.fromkeys(scores, 1.0 if minimum is None else 0.0)
    return {name: (score - lowest) / width for name, score in scores.items()}


def _weighted_sum(runs: Sequence[Run], weights: Sequence[float]) -> dict[str, dict[str, float]]:
    fused: dict[str, dict[str, float]] = {}
    for run, weight in zip(runs, weights, strict=True):
        for query, points in run.items():
            total = fused.setdefault(query, {})
            for name, value in points.items():
                total[name] = total.get(name, 0.0) + weight * value
    return fused
