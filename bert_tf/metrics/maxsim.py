"""MaxSim, the score of late interaction: for each query token, its best document token.

    queries [Tq, D], documents [Td, D] -> products [Tq, Td] -> max over Td -> sum over Tq

Reference: Khattab and Zaharia 2020, "ColBERT", equation 3.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np

MAXSIM = ("maxsim", "meanmaxsim")
# The score of a document without tokens, as in sentence-transformers: below all others.
NO_TOKENS = -1e9
# Products [query tokens, document tokens] in memory at once: 16 MB.
MAX_PRODUCTS = 1 << 22
PART = 1 << 13  # vectors of documents that are decoded and compared at once


class TokenMatrix(NamedTuple):
    """The token vectors of N texts, one after the other.

    Attributes:
      vectors: float or int8 [T, D], the vectors of all texts.
      starts: int64 [N + 1], the first row of each text, and at the end T.
      scales: float32 [T], factors of int8 vectors; None: 1.
      decoded: the columns of each part, if they are kept, see `parts`.
    """

    vectors: np.ndarray
    starts: np.ndarray
    scales: np.ndarray | None = None
    decoded: tuple[np.ndarray, ...] = ()

    @classmethod
    def of(cls, texts: Sequence[np.ndarray]) -> Self:
        """Joins the vectors [t, D] of texts."""
        starts = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        return cls(np.concatenate(texts) if len(texts) else np.zeros([0, 0], np.float32), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def decode(self, start: int, end: int) -> np.ndarray:
        """Returns the vectors of the rows from `start` up to `end`, float32 [end - start, D]."""
        vectors = _as_float32(self.vectors[start:end])
        if self.scales is not None:
            vectors *= self.scales[start:end, None]
        return vectors

    def parts(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yields ranges of texts with their vectors as columns: first, last + 1, float32 [D, t]."""
        for number, (first, last) in enumerate(text_parts(self.starts, PART)):
            if self.decoded:
                yield first, last, self.decoded[number]
            else:
                yield first, last, self.decode(self.starts[first], self.starts[last]).T

    def with_decoded(self) -> "TokenMatrix":
        """Returns a matrix that keeps its vectors in float32, in the order that is fast to compare.

        Products with contiguous columns take two thirds of the time of products with rows.
        """
        decoded = tuple(np.ascontiguousarray(columns) for _, _, columns in self.parts())
        return TokenMatrix(self.vectors, self.starts, self.scales, decoded)


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
    tokens = TokenMatrix.of(queries)
    query_parts = text_parts(tokens.starts, max(1, MAX_PRODUCTS // PART))
    for first, last, columns in documents.parts():
        starts = documents.starts[first : last + 1] - documents.starts[first]
        # `reduceat` returns the next number for an empty range, so that these are left out.
        has_tokens = np.diff(starts) > 0
        if not has_tokens.any():
            continue
        for query, end in query_parts:
            products = tokens.decode(tokens.starts[query], tokens.starts[end]) @ columns  # [t, T]
            best = np.maximum.reduceat(products, starts[:-1][has_tokens], axis=1)
            limits = tokens.starts[query + 1 : end] - tokens.starts[query]
            for row, of_query in enumerate(np.split(best, limits), start=query):
                found[row, first:last][has_tokens] = of_query.sum(axis=0)
    if similarity == MAXSIM[1]:
        for scores, query_tokens in zip(found, queries, strict=True):
            scores /= max(1, len(query_tokens))
    return found


def _as_float32(vectors: np.ndarray) -> np.ndarray:
    """Returns finite numbers as float32; those that are float32 are not copied."""
    if vectors.dtype != np.float16:
        return vectors.astype(np.float32, copy=False)
    # NumPy converts them one by one. The bits of sign, exponent and fraction (10) are shifted to
    # those of a float32, whose exponent is biased by 127 instead of 15.
    bits = vectors.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(0x0FFFE000) | np.iinfo(np.int32).min
    floats = bits.view(np.float32)
    floats *= np.float32(2.0**112)
    return floats


def text_parts(starts: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Returns ranges of texts with at most `most` tokens each; a longer text is alone.

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
