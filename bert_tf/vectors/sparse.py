"""Sparse vectors, and exact search over them."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from bert_tf.vectors.candidates import best_candidates


@dataclasses.dataclass(frozen=True)
class SparseVectors:
    """Rows of which only numbers above 0 are kept.

    Row i holds weights[starts[i]:starts[i + 1]] at pieces[starts[i]:starts[i + 1]], ascending.
    """

    starts: np.ndarray  # int64 [N + 1]
    pieces: np.ndarray  # int32
    weights: np.ndarray  # float32

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def from_rows(cls, rows: Iterable[np.ndarray]) -> "SparseVectors":
        """Makes them of dense rows, float32 [V] each."""
        return cls.from_pieces(list(map(sparse_row, rows)))

    @classmethod
    def from_pieces(cls, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> "SparseVectors":
        """Makes them of the pieces, ascending, and the weights of each row."""
        starts = np.cumsum([0, *(len(pieces) for pieces, _ in rows)], dtype=np.int64)
        pieces = np.concatenate([np.zeros([0], np.int32), *(pieces for pieces, _ in rows)])
        weights = np.concatenate([np.zeros([0], np.float32), *(weights for _, weights in rows)])
        return cls(starts, pieces, weights)

    def row(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns pieces int32 [n] and weights float32 [n] of a row."""
        part = slice(self.starts[index], self.starts[index + 1])
        return self.pieces[part], self.weights[part]


def sparse_row(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns pieces int32 [n] and weights float32 [n] of a dense row [V], which may then go."""
    pieces = np.flatnonzero(row > 0).astype(np.int32)
    return pieces, row[pieces].astype(np.float32)


class SparseIndex:
    """Finds the documents with the highest dot products, by lists of the documents of each piece.

    Args:
      documents: their vectors.

    Raises:
      ValueError: if there is none.
    """

    def __init__(self, documents: SparseVectors) -> None:
        if not len(documents):
            raise ValueError("There is no document to search in; the corpus is empty.")
        self._count = len(documents)
        rows = np.repeat(np.arange(self._count, dtype=np.int64), np.diff(documents.starts))
        order = np.argsort(documents.pieces, kind="stable")
        self._rows, self._weights = rows[order], documents.weights[order]
        self._pieces = documents.pieces[order]

    def search(self, queries: SparseVectors, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores float32 [Q, k], descending, and rows int64 [Q, k]; see `top_k`.

        Raises:
          ValueError: k above the number of documents.
        """
        if not 1 <= k <= self._count:
            raise ValueError(f"k is {k}, but there are {self._count} documents; give 1 to as many.")
        scores, places = np.empty([len(queries), k], np.float32), np.empty([len(queries), k], int)
        rows = np.arange(self._count)[None]
        for index in range(len(queries)):  # One after the other: all need [Q, N] numbers.
            total = np.zeros(self._count)
            for piece, weight in zip(*queries.row(index), strict=True):
                first, last = np.searchsorted(self._pieces, [piece, piece + 1])
                total[self._rows[first:last]] += weight * self._weights[first:last]
            found = best_candidates(total[None].astype(np.float32), rows, k)
            scores[index], places[index] = (column[0] for column in found)
        return scores, places
