"""MaxSim, the score of late interaction: for each query token, its best document token.

    queries [Tq, D], documents [Td, D] -> products [Tq, Td] -> max over Td -> sum over Tq

Reference: Khattab and Zaharia 2020, "ColBERT", equation 3.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

MAXSIM = ("maxsim", "meanmaxsim")
# The score of a document without tokens, as in sentence-transformers: below all others.
NO_TOKENS = -1e9
# Products [query tokens, document tokens] in memory at once: 16 MB.
MAX_PRODUCTS = 1 << 22
PART = 1 << 11  # vectors that are decoded at once, few enough for a processor's cache


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

    def decode(self, start: int, end: int) -> np.ndarray:
        """Returns the vectors of the rows from `start` up to `end`, float32 [end - start, D]."""
        if self.vectors.dtype == np.float32:
            return self.vectors[start:end]
        decoded = np.empty([end - start, self.vectors.shape[1]], np.float32)
        for first in range(start, end, PART):
            rows = slice(first, min(first + PART, end))
            vectors = _as_float32(self.vectors[rows])
            if self.scales is not None:
                vectors *= self.scales[rows, None]
            decoded[first - start : rows.stop - start] = vectors
        return decoded


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
    if not queries:
        return found
    tokens = np.concatenate(queries).astype(np.float32, copy=False)  # [t, D]
    query_starts = np.cumsum([0, *map(len, queries)])
    most = max(1, MAX_PRODUCTS // max(1, len(tokens)))
    for first, last in document_parts(documents.starts, most):
        starts = documents.starts[first : last + 1]
        # `reduceat` returns the next number for an empty range, so that these are left out.
        has_tokens = np.diff(starts) > 0
        if not has_tokens.any():
            continue
        products = tokens @ documents.decode(starts[0], starts[-1]).T  # [t, T]
        best = np.maximum.reduceat(products, starts[:-1][has_tokens] - starts[0], axis=1)
        for index, (start, end) in enumerate(itertools.pairwise(query_starts)):
            found[index, first:last][has_tokens] = best[start:end].sum(axis=0)
    if similarity == MAXSIM[1]:
        for scores, query in zip(found, queries, strict=True):
            scores /= max(1, len(query))
    return found


def _as_float32(vectors: np.ndarray) -> np.ndarray:
    """Returns finite numbers as float32."""
    if vectors.dtype != np.float16:
        return vectors.astype(np.float32)
    # NumPy converts them one by one. The bits of sign, exponent and fraction (10) are shifted to
    # those of a float32, whose exponent is biased by 127 instead of 15.
    bits = vectors.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(0x0FFFE000) | np.iinfo(np.int32).min
    floats = bits.view(np.float32)
    floats *= np.float32(2.0**112)
    return floats


def document_parts(starts: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Returns ranges of documents with at most `most` tokens each; a longer document is alone.

    Args:
      starts: int64 [N + 1], see `TokenMatrix`.
    """
    parts = []
    first = 0
    while first < len(starts) - 1:
        last = int(np.searchsorted(starts, starts[first] + most, side="right")) - 1
        last = max(first + 1, last)
        parts.append((first, last))
        first = last
    return parts
