"""Selection of each query's best candidates."""

from collections.abc import Iterable

import numpy as np


def check_k(k: int, count: int) -> None:
    """Raises ValueError unless k is between 1 and the number of documents."""
    if not 1 <= k <= count:
        raise ValueError(f"k is {k}; it must be between 1 and {count}, the document count.")


def best_of_queries(scores: Iterable[np.ndarray], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k best documents of each query, where one query is scored at a time.

    Args:
      scores: of all documents, float32 [N], one array per query: all of them need not fit.
      k: at most N.

    Returns:
      scores float32 [Q, k], descending, and rows int64 [Q, k]; equal scores are ordered by row.
    """
    best_scores = [np.zeros([0, k], np.float32)]
    best_rows = [np.zeros([0, k], int)]
    for query_scores in scores:
        # Sorting all would take longer than scoring them.
        kth = np.partition(query_scores, len(query_scores) - k)[len(query_scores) - k]
        above = np.flatnonzero(query_scores > kth)
        equal = np.flatnonzero(query_scores == kth)[: k - len(above)]
        chosen = np.concatenate([above, equal])
        values, rows = best_candidates(query_scores[chosen][None], chosen[None], k)
        best_scores.append(values)
        best_rows.append(rows)
    return np.concatenate(best_scores), np.concatenate(best_rows)


def best_candidates(scores: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k best of c candidates of each query, and their rows, [Q, k] each.

    Among equal scores [Q, c], the lower row comes first.
    """
    # lexsort sorts by its last key first: by descending score, then by row.
    order = np.lexsort((rows, -scores), axis=1)[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)
