"""Selection of each query's best candidates."""

from collections.abc import Iterable

import numpy as np

# How many candidates of a query are kept at most: documents that are all equal could be millions.
_MOST_TIES = 1024


def check_k(k: int, count: int) -> None:
    """Raises ValueError unless k is between 1 and the number of documents."""
    if not 1 <= k <= count:
        raise ValueError(f"k is {k}; it must be between 1 and {count}, the document count.")


class BestRows:
    """The best rows of a query, while rows are scored chunk by chunk.

    Args:
      k: how many rows.
      margin: rows are kept as well whose scores are less than this below the k-th best.

    Attributes:
      scores: float32 [n], descending.
      rows: int64 [n]; equal scores are ordered by row.
    """

    def __init__(self, k: int, margin: float = 0) -> None:
        self.scores = np.zeros([0], np.float32)
        self.rows = np.zeros([0], np.int64)
        self._k = k
        self._margin = np.float32(margin)
        self._threshold = np.float32(-np.inf)

    def add(self, scores: np.ndarray, first: int) -> None:
        """Adds the scores float32 [n] of the rows from `first` on, which ascend from call to call.

        -inf excludes a row.
        """
        found = np.flatnonzero(scores > self._threshold)
        if not len(found):
            return
        chosen = scores[found]
        if len(found) > self._k:
            # Sorting all of them would take longer than scoring them.
            kth = np.partition(chosen, len(chosen) - self._k)[len(chosen) - self._k]
            is_near = chosen >= kth - self._margin
            found = found[is_near]
            chosen = chosen[is_near]
        self.scores = np.concatenate([self.scores, chosen])
        self.rows = np.concatenate([self.rows, found + first])
        # Rows ascend, so a stable sort orders equal scores by row.
        order = np.argsort(-self.scores, kind="stable")[: self._k + _MOST_TIES]
        if len(order) >= self._k:
            self._threshold = self.scores[order[self._k - 1]] - self._margin
            is_kept = self.scores[order] > self._threshold
            is_kept[: self._k] = True
            order = order[is_kept]
        self.scores = self.scores[order]
        self.rows = self.rows[order]


def best_of_queries(scores: Iterable[np.ndarray], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k best documents of each query, where one query is scored at a time.

    Args:
      scores: of all documents, float32 [N], one array per query: all of them need not fit.
      k: at most N.

    Returns:
      scores float32 [Q, k], descending, and rows int64 [Q, k]; equal scores are ordered by row.
    """
    best_scores = [np.zeros([0, k], np.float32)]
    best_rows = [np.zeros([0, k], np.int64)]
    for query_scores in scores:
        best = BestRows(k)
        best.add(query_scores, 0)
        best_scores.append(best.scores[None, :k])
        best_rows.append(best.rows[None, :k])
    return np.concatenate(best_scores), np.concatenate(best_rows)


def best_candidates(scores: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k best of c candidates of each query, and their rows, [..., k] each.

    Among equal scores [..., c], the lower row comes first.
    """
    # lexsort sorts by its last key first: by descending score, then by row.
    order = np.lexsort((rows, -scores), axis=-1)[..., :k]
    return np.take_along_axis(scores, order, axis=-1), np.take_along_axis(rows, order, axis=-1)
