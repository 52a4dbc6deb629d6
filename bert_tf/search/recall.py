"""How many of the nearest documents a search of small vectors finds, measured while they are built.

The queries are documents themselves. The float32 vectors need not be stored for this: each document
is compared with the queries when it is written.
"""

from collections.abc import Callable

import numpy as np

from bert_tf.metrics.candidates import BestRows

RECALL_K = 10
RECALL_QUERIES = 100
_FROM_FIRST = 8192  # documents that queries are taken from


class RecallSample:
    """The nearest vectors of a sample of vectors, by their float32 dot products."""

    def __init__(self) -> None:
        self._held: list[np.ndarray] = []
        self._count = 0
        self._query_rows = np.zeros([0], np.int64)
        self._queries = np.zeros([0, 0], np.float32)
        self._best: list[BestRows] = []

    def add(self, vectors: np.ndarray) -> None:
        """Adds vectors float32 [n, D], prepared for the similarity."""
        self._held.append(vectors)
        if self._best or sum(map(len, self._held)) >= _FROM_FIRST:
            self._compare()

    def _compare(self) -> None:
        held = np.concatenate(self._held)
        self._held = []
        if not self._best:
            sample = np.linspace(0, len(held) - 1, min(RECALL_QUERIES, len(held)))
            self._query_rows = np.unique(sample.astype(int))
            self._queries = held[self._query_rows]
            # The nearest one is the query itself.
            self._best = [BestRows(RECALL_K + 1) for _ in self._queries]
        for best, scores in zip(self._best, self._queries @ held.T, strict=True):
            best.add(scores, self._count)
        self._count += len(held)

    def recall(self, search: Callable[[np.ndarray], np.ndarray]) -> float | None:
        """Returns the share of the ten nearest vectors that a search finds.

        Args:
          search: returns the rows of the `RECALL_K` + 1 nearest vectors, or of all, for vectors.

        Returns:
          None, if there is one vector.
        """
        if self._held:
            self._compare()
        if self._count < 2:
            return None
        hits = 0
        total = 0
        for own, best, rows in zip(
            self._query_rows, self._best, search(self._queries), strict=True
        ):
            nearest = best.rows[: RECALL_K + 1]
            expected = nearest[nearest != own][:RECALL_K]
            hits += len(np.intersect1d(expected, rows[rows != own][:RECALL_K]))
            total += len(expected)
        return hits / total
