"""Joins the rankings of several searches, vectors and words say, into one.

A run is {query id: {document id: score}}, as in `metrics.ranking`. A document that a run did not
find gets nothing from it.
"""

from collections.abc import Callable, Mapping, Sequence

from bert_tf.metrics.ranking import Run, rank

RANK_CONSTANT = 60
Points = Callable[[Mapping[str, float], int], dict[str, float]]  # of a query in the run of a number


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

    def points(scores: Mapping[str, float], _: int) -> dict[str, float]:
        best = rank(scores, ties="given")
        return {name: 1 / (constant + place) for place, name in enumerate(best, 1)}

    return _weighted(runs, weights, points)


def weighted_fusion(
    runs: Sequence[Run], weights: Sequence[float] = (), minima: Sequence[float | None] = ()
) -> dict[str, dict[str, float]]:
    """Scores each document by the weighted sum of its scores, scaled in each query to 0 .. 1.

    A run's highest score of a query becomes 1, and its minimum 0. The minimum is the lowest score
    that is possible: were it the lowest that was found, the last document of a run would get as
    little as one that the run does not hold, however well it fits.

    Args:
      runs: best with the same documents in each: a run adds nothing to documents that it lacks.
      weights: one a run; () for 1 each.
      minima: the lowest possible score of each run: 0 for BM25, -1 for cosines. None for scores
        without a limit, as dot products: the lowest one found for the query. () for 0 each. A
        score below a minimum takes its place.

    Raises:
      ValueError: if there is not one weight and one minimum a run.

    Example: scores 10 and 9.9 with minimum 0 become 1 and 0.99.

    Reference: Bruch et al. 2023, "An analysis of fusion functions for hybrid retrieval" (TM2C2).
    """
    minima = minima or [0.0] * len(runs)
    if len(minima) != len(runs):
        raise ValueError(f"There are {len(runs)} runs, but {len(minima)} minima; give one each.")

    def points(scores: Mapping[str, float], number: int) -> dict[str, float]:
        if not scores:
            return {}
        minimum = minima[number]
        least = min(scores.values())
        if minimum is not None:
            least = min(minimum, least)
        width = max(scores.values()) - least
        if width == 0:  # Equal scores of a run without a limit are all the highest.
            return dict.fromkeys(scores, 1.0 if minimum is None else 0.0)
        return {name: (score - least) / width for name, score in scores.items()}

    return _weighted(runs, weights, points)


def _weighted(runs: Sequence[Run], weights: Sequence[float], points: Points) -> dict:
    weights = weights or [1.0] * len(runs)
    if len(weights) != len(runs):
        raise ValueError(f"There are {len(runs)} runs, but {len(weights)} weights; give one each.")
    joined: dict[str, dict[str, float]] = {}
    for number, (run, weight) in enumerate(zip(runs, weights, strict=True)):
        for query, scores in run.items():
            total = joined.setdefault(query, {})
            for name, value in points(scores, number).items():
                total[name] = total.get(name, 0.0) + weight * value
    return joined
