"""Selection of each query's best candidates."""

import numpy as np


def best_candidates(scores: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k best scores of each query and their rows, [Q, k] each.

    Among equal scores, the lower row comes first.

    Args:
      scores: scores of the candidates, [Q, c].
      rows: rows of the candidates, [Q, c].
      k: at most c.
    """
    # lexsort sorts by its last key first: by descending score, then by row.
    order = np.lexsort((rows, -scores), axis=1)[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)
