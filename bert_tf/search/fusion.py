"""Joins the rankings of several searches, vectors and words say, into one.

A run is {query id: {document id: score}}, as in `metrics.ranking`. A document that a run did not
find gets nothing from it.
"""

from collections.abc import Callable, Mapping, Sequence

from bert_tf.metrics.ranking import Run, rank

RANK_CONSTANT = 60
Points = Callable[[Mapping[str, float]], dict[str, float]]


def reciprocal_rank_fusion(
    runs: Sequence[Run], weights: Sequence[float] = (), constant: int = RANK_CONSTANT
) -> dict[str, dict[str, float]]:
    """Scores each document by the sum of weight / (constant + rank) over the runs.

    Args:
      runs: of any scores: only ranks count; of equal scores the one that stands first is better.
      weights: one a run; () for 1 each.
      constant: the higher, the less the first places differ.

    Raises:
      ValueError: if there is not one weight a run.

    Example: found at ranks 1 and 3 with constant 60: 1 / 61 + 1 / 63.

    Reference: Cormack et al. 2009, "Reciprocal rank fusion outperforms Condorcet and individual
    rank learning methods".
    """

    def points(scores: Mapping[str, float]) -> dict[str, float]:
        best = rank(scores, ties="given")
        return {name: 1 / (constant + place) for place, name in enumerate(best, 1)}

    return _weighted(runs, weights, points)


def weighted_fusion(runs: Sequence[Run], weights: Sequence[float] = ()) -> dict:
    """Scores each document by the weighted sum of its scores, scaled in each query to 0 .. 1.

    Args:
      runs: a run's lowest score of a query becomes 0, its highest 1; equal ones all become 1.
      weights: one a run; () for 1 each.

    Raises:
      ValueError: if there is not one weight a run.
    """

    def points(scores: Mapping[str, float]) -> dict[str, float]:
        low, high = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
        width = high - low
        return {name: (s - low) / width if width else 1.0 for name, s in scores.items()}

    return _weighted(runs, weights, points)


def _weighted(runs: Sequence[Run], weights: Sequence[float], points: Points) -> dict:
    weights = weights or [1.0] * len(runs)
    if len(weights) != len(runs):
        raise ValueError(f"There are {len(runs)} runs, but {len(weights)} weights; give one each.")
    joined: dict[str, dict[str, float]] = {}
    for run, weight in zip(runs, weights, strict=True):
        for query, scores in run.items():
            total = joined.setdefault(query, {})
            for name, value in points(scores).items():
                total[name] = total.get(name, 0.0) + weight * value
    return joined
