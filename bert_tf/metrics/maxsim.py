"""MaxSim, the score of late interaction: for each query token, its best document token.

    queries [Tq, D], documents [Td, D] -> products [Tq, Td] -> max over Td -> sum over Tq

Reference: Khattab and Zaharia 2020, "ColBERT", equation 3.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

MAXSIM = ("maxsim", "meanmaxsim")
# The score of a document without tokens, as in sentence-transformers: below all others.
NO_TOKENS = -1e9
# Document tokens whose vectors are float32 at once, few enough for a processor's cache.
PART = 1 << 12


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
    def of(cls, texts: Sequence[np.ndarray]) -> Self:
        """Joins the vectors [t, D] of texts."""
        starts = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        return cls(np.concatenate(texts) if len(texts) else np.zeros([0, 0], np.float32), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1


def maxsim(
    queries: Sequence[np.ndarray], documents: TokenMatrix, similarity: str = MAXSIM[0]
) -> np.ndarray:
    """Scores every query with every document, in float32.

    Args:
      queries: float [t, D] for each query.
      documents: the vectors of N documents.
      similarity: maxsim, or meanmaxsim: divided by the number of a query's tokens.

    Returns:
      float32 [Q, N]. A query without tokens scores 0, a document without tokens `NO_TOKENS`.
    """
    found = np.full([len(queries), len(documents)], NO_TOKENS, np.float32)
    for first, last in _parts(documents.starts):
        starts = documents.starts[first : last + 1]
        rows = slice(starts[0], starts[-1])
        # `reduceat` returns the next number for an empty range, so that these are left out.
        has_tokens = np.diff(starts) > 0
        if not has_tokens.any():
            continue
        vectors = documents.vectors[rows].astype(np.float32, copy=False)  # [T, D]
        for index, query in enumerate(queries):
            products = query.astype(np.float32, copy=False) @ vectors.T  # [t, T]
            if documents.scales is not None:
                products *= documents.scales[rows]
            best = np.maximum.reduceat(products, starts[:-1][has_tokens] - starts[0], axis=1)
            found[index, first:last][has_tokens] = best.sum(axis=0)
    if similarity == MAXSIM[1]:
        for scores, query in zip(found, queries, strict=True):
            scores /= max(1, len(query))
    return found


def _parts(starts: np.ndarray) -> list[tuple[int, int]]:
    """Returns ranges of documents with at most `PART` tokens each; a longer one is alone."""
    parts = []
    first = 0
    while first < len(starts) - 1:
        last = int(np.searchsorted(starts, starts[first] + PART, side="right")) - 1
        last = max(first + 1, last)
        parts.append((first, last))
        first = last
    return parts
