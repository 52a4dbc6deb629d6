"""Combines the rankings of several searches, for example by vectors and by words.

A run is {query id: {document id: score}}, as in `metrics.ranking`. A run adds nothing to the score
of a document that it did not find.
"""

from collections.abc import Callable, Mapping, Sequence

from bert_tf.metrics.ranking import Run, rank

RANK_CONSTANT = 60
Points = Callable[[Mapping[str, float], int], dict[str, float]]  # (scores of a query, run number)


def reciprocal_rank_fusion(
    runs: Sequence[Run], weights: Sequence[float] = (), constant: int = RANK_CONSTANT
) -> dict[str, dict[str, float]]:
    """Scores each document by the sum of weight / (constant + rank) over the runs.

    Args:
      runs: runs with scores of any scale, as only ranks count; equal scores keep their order.
      weights: one per run; () for 1 each.
      constant: the higher, the smaller the differences between the first ranks.

    Raises:
      ValueError: if the number of weights is not the number of runs.

    Example: a document at ranks 1 and 3, with constant 60, scores 1 / 61 + 1 / 63.

    Reference: Cormack et al. 2009, "Reciprocal rank fusion outperforms Condorcet and individual
    rank learning methods".
    """

    def points(scores: Mapping[str, float], _: int) -> dict[str, float]:
        best = rank(scores, ties="given")
        return {name: 1 / (constant + position) for position, name in enumerate(best, 1)}

    return _weighted(runs, weights, points)


def weighted_fusion(
    runs: Sequence[Run], weights: Sequence[float] = (), minima: Sequence[float | None] = ()
) -> dict[str, dict[str, float]]:
    """Scores each document by the weighted sum of its scores, scaled per query to 0 .. 1.

    A run's highest score for a query becomes 1, and its minimum becomes 0. The minimum is the
    lowest possible score. With the lowest score found instead, the last document of a run would get
    the same as a document that the run does not contain, however well it matches.

    Args:
      runs: preferably with the same documents in each run.
      weights: one per run; () for 1 each.
      minima: the lowest possible score of each run: 0 for BM25, -1 for cosines. None for unbounded
        scores such as dot products: the lowest score found for the query. () for 0 each. A score
        below the given minimum replaces it.

    Raises:
      ValueError: if the number of weights or minima is not the number of runs.

    Example: scores 10 and 9.9 with minimum 0 become 1 and 0.99.

    Reference: Bruch et al. 2023, "An analysis of fusion functions for hybrid retrieval" (TM2C2).
    """
    minima = minima or [0.0] * len(runs)
    if len(minima) != len(runs):
        raise ValueError(f"Got {len(minima)} minima for {len(runs)} runs; give one per run.")

    def points(scores: Mapping[str, float], number: int) -> dict[str, float]:
        if not scores:
            return {}
        minimum = minima[number]
        lowest = min(scores.values())
        # A score below the stated minimum would become negative.
        if minimum is not None:
            lowest = min(minimum, lowest)
        width = max(scores.values()) - lowest
        if width == 0:  # All scores are equal: each is the highest of an unbounded run.
            return dict.fromkeys(scores, 1.0 if minimum is None else 0.0)
        return {name: (score - lowest) / width for name, score in scores.items()}

    return _weighted(runs, weights, points)


def _weighted(runs: Sequence[Run], weights: Sequence[float], points: Points) -> dict:
    weights = weights or [1.0] * len(runs)
    if len(weights) != len(runs):
        raise ValueError(f"Got {len(weights)} weights for {len(runs)} runs; give one per run.")
    fused: dict[str, dict[str, float]] = {}
    for number, (run, weight) in enumerate(zip(runs, weights, strict=True)):
        for query, scores in run.items():
            total = fused.setdefault(query, {})
            for name, value in points(scores, number).items():
                total[name] = total.get(name, 0.0) + weight * value
    return fused
