"""MaxSim, the score of late interaction: for each query token, its best document token.

    queries [Tq, D], documents [Td, D] -> products [Tq, Td] -> max over Td -> sum over Tq

Reference: Khattab and Zaharia 2020, "ColBERT", equation 3.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

# The score of a document without tokens, as in sentence-transformers: below all others.
NO_TOKENS = -1e9
# Products [query tokens, document tokens] in memory at once: 16 MB.
MAX_PRODUCTS = 1 << 22


class TokenMatrix(NamedTuple):
    """The token vectors of N texts, one after the other.

    Attributes:
      vectors: float or int8 [T, D], the vectors of all texts.
      starts: int64 [N + 1], the first row of each text, and at the end T.
      scales: float32 [T], factors of int8 vectors; None: 1.
    """

    vectors: np.ndarray
    starts: np.ndarray
    scales: np.ndarray | None = None

    @classmethod
    def of(cls, texts: Sequence[np.ndarray], dimension: int = 0) -> Self:
        """Joins the vectors [t, D] of texts; `dimension` is D where there may be no text."""
        lengths = [len(vectors) for vectors in texts]
        starts = np.cumsum([0, *lengths], dtype=np.int64)
        if not texts:
            return cls(np.zeros([0, dimension], np.float32), starts)
        return cls(np.concatenate(list(texts)), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def decode(self, first: int, last: int) -> np.ndarray:
        """Returns the vectors of the texts from `first` up to `last`, float32 [t, D]."""
        rows = slice(self.starts[first], self.starts[last])
        vectors = self.vectors[rows].astype(np.float32, copy=False)
        return vectors if self.scales is None else vectors * self.scales[rows, None]


def maxsim(queries: Sequence[np.ndarray], documents: TokenMatrix, mean: bool = False) -> np.ndarray:
    """Scores every query with every document.

    Args:
      queries: float [t, D] for each query.
      documents: the vectors of N documents.
      mean: whether scores are divided by the number of a query's tokens.

    Returns:
      float32 [Q, N]. A query without tokens scores 0, a document without tokens `NO_TOKENS`.
    """
    lengths = [len(query) for query in queries]
    found = np.zeros([len(queries), len(documents)], np.float32)
    if not len(queries) or not len(documents):
        return found
    query_tokens = np.concatenate(list(queries)).astype(np.float32, copy=False)
    query_starts = np.cumsum([0, *lengths])
    for first, last in _parts(documents.starts, len(query_tokens)):
        starts = documents.starts[first : last + 1] - documents.starts[first]
        best = _best(query_tokens, documents.decode(first, last), starts)  # [tokens, n]
        for index, (start, end) in enumerate(zip(query_starts, query_starts[1:], strict=False)):
            found[index, first:last] = best[start:end].sum(axis=0)
    if mean:
        found /= np.maximum(lengths, 1)[:, None]
    empty = np.diff(documents.starts) == 0
    found[:, empty] = NO_TOKENS / np.maximum(lengths, 1)[:, None] if mean else NO_TOKENS
    return found


def _parts(starts: np.ndarray, num_query_tokens: int) -> list[tuple[int, int]]:
    """Returns ranges of documents with at most `MAX_PRODUCTS` products each, if they are short."""
    most = max(1, MAX_PRODUCTS // max(1, num_query_tokens))
    parts = []
    first = 0
    while first < len(starts) - 1:
        last = int(np.searchsorted(starts, starts[first] + most, side="right")) - 1
        last = max(first + 1, last)
        parts.append((first, last))
        first = last
    return parts


def _best(queries: np.ndarray, vectors: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Returns the highest product of each query token in each document, float32 [t, n].

    It is 0 for documents without tokens.
    """
    best = np.zeros([len(queries), len(starts) - 1], np.float32)
    # `reduceat` returns the next number for an empty range, so that these are left out.
    has_tokens = np.diff(starts) > 0
    if len(queries) and has_tokens.any():
        products = queries @ vectors.T  # [t, tokens of the documents]
        best[:, has_tokens] = np.maximum.reduceat(products, starts[:-1][has_tokens], axis=1)
    return best
