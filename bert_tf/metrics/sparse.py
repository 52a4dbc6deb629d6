"""Sparse vectors, and exact search over them."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.metrics.candidates import best_of_queries, check_k


@dataclasses.dataclass(frozen=True)
class SparseVectors:
    """Rows of weights by token id, of which only those above 0 are stored.

    Row i has weights[starts[i]:starts[i + 1]] for token_ids[starts[i]:starts[i + 1]], ascending.
    """

    starts: np.ndarray  # int64 [N + 1]
    token_ids: np.ndarray  # int32 [starts[N]]
    weights: np.ndarray  # float32 [starts[N]]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def from_tokens(cls, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> "SparseVectors":
        """Concatenates the token ids, ascending, and the weights of each row."""
        # The empty arrays give the dtype where there are no rows.
        all_ids = [np.zeros([0], np.int32)]
        all_weights = [np.zeros([0], np.float32)]
        sizes = [0]
        for token_ids, weights in rows:
            all_ids.append(token_ids)
            all_weights.append(weights)
            sizes.append(len(token_ids))
        starts = np.cumsum(sizes, dtype=np.int64)
        return cls(starts, np.concatenate(all_ids), np.concatenate(all_weights))

    def row(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the token ids int32 [n] and weights float32 [n] of a row."""
        part = slice(self.starts[index], self.starts[index + 1])
        return self.token_ids[part], self.weights[part]


def sparse_row(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the token ids int32 [n] and weights float32 [n] of a dense row [V], as copies."""
    token_ids = np.flatnonzero(row > 0).astype(np.int32)
    return token_ids, row[token_ids].astype(np.float32)


class SparseIndex:
    """Finds the documents with the highest dot products, with an inverted index of the tokens.

    Raises:
      ValueError: if there are no documents.
    """

    def __init__(self, documents: SparseVectors) -> None:
        if not len(documents):
            raise ValueError("There is no document to search in; the corpus is empty.")
        self._count = len(documents)
        rows = np.repeat(np.arange(self._count, dtype=np.int64), np.diff(documents.starts))
        # The inverted index: all documents of a token are consecutive.
        order = np.argsort(documents.token_ids, kind="stable")
        self._rows = rows[order]
        self._weights = documents.weights[order]
        self._token_ids = documents.token_ids[order]

    def search(self, queries: SparseVectors, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores float32 [Q, k], descending, and rows int64 [Q, k]; see `top_k`.

        Raises:
          ValueError: k above the number of documents.
        """
        check_k(k, self._count)
        return best_of_queries(self._scores(queries), k)

    def _scores(self, queries: SparseVectors) -> Iterator[np.ndarray]:
        """Yields the scores of all documents for each query, float32 [N]."""
        for index in range(len(queries)):
            total = np.zeros(self._count)
            for token_id, weight in zip(*queries.row(index), strict=True):
                # Token ids are sorted: the documents of a token are the range from first to last.
                first, last = np.searchsorted(self._token_ids, [token_id, token_id + 1])
                # A document has a token at most once, so the rows differ and += adds to each.
                total[self._rows[first:last]] += weight * self._weights[first:last]
            yield total.astype(np.float32)
