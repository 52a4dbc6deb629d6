"""Combines the rankings of a query by several searches, for example by vectors and by words.

A ranking has the scores of the documents that a search found, by the number of the document. It
adds nothing to the score of a document that it does not contain.
"""

from collections.abc import Mapping, Sequence

Ranking = Mapping[int, float]
RANK_CONSTANT = 60  # The higher, the smaller the differences between the first ranks.


def reciprocal_rank_fusion(
    rankings: Sequence[Ranking], weights: Sequence[float]
) -> dict[int, float]:
    """Scores each document by the sum of weight / (RANK_CONSTANT + rank) over the rankings.

    Only ranks count, so scores may be of any scale; equal scores keep their order.

    Example: a document at ranks 1 and 3, with weights of 1, scores 1 / 61 + 1 / 63.

    Reference: Cormack et al. 2009, "Reciprocal rank fusion outperforms Condorcet and individual
    rank learning methods".
    """
    points = []
    for scores in rankings:
        best = sorted(scores, key=lambda document: -scores[document])
        points.append({name: 1 / (RANK_CONSTANT + rank) for rank, name in enumerate(best, 1)})
    return _weighted_sum(points, weights)


def weighted_fusion(
    rankings: Sequence[Ranking], weights: Sequence[float], minima: Sequence[float | None]
) -> dict[int, float]:
    """Scores each document by the weighted sum of its scores, scaled to 0 .. 1.

    The highest score of a ranking becomes 1, and its minimum becomes 0. The minimum is the lowest
    possible score. With the lowest score found instead, the last document of a ranking would get
    the same as a document that the ranking does not contain, however well it matches.

    Args:
      rankings: preferably with the same documents in each.
      weights: one per ranking.
      minima: the lowest possible score of each ranking: 0 for BM25, -1 for cosines. None for
        unbounded scores such as dot products: the lowest score found. A score below the given
        minimum replaces it.

    Reference: Bruch et al. 2023, "An analysis of fusion functions for hybrid retrieval" (TM2C2).
    """
    return _weighted_sum(list(map(_scaled, rankings, minima)), weights)


def _scaled(scores: Ranking, minimum: float | None) -> dict[int, float]:
    if not scores:
        return {}
    lowest = min(scores.values())
    # A score below the stated minimum would become negative.
    if minimum is not None:
        lowest = min(minimum, lowest)
    width = max(scores.values()) - lowest
    if width == 0:  # All scores are equal: each is the highest of an unbounded ranking.
        return dict.fromkeys(scores, 1.0 if minimum is None else 0.0)
    return {name: (score - lowest) / width for name, score in scores.items()}


def _weighted_sum(rankings: Sequence[Ranking], weights: Sequence[float]) -> dict[int, float]:
    fused: dict[int, float] = {}
    for points, weight in zip(rankings, weights, strict=True):
        for document, value in points.items():
            fused[document] = fused.get(document, 0.0) + weight * value
    return fused
