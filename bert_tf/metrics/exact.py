"""The k nearest of many vectors, exactly: every document is compared with every query.

Documents are scored in chunks, in place: a memory-mapped array is read page by page and not copied.
Memory holds the scores of one chunk, queries x chunk_rows x 4 bytes.

A matrix product adds the terms of a dot product in an order that depends on the number of queries
and on the position of the document. So the products only choose candidates, those within the
rounding of the k-th best; `dot_products` scores these again, in one order. Equal vectors therefore
have equal scores, whatever they are searched with.
"""

from collections.abc import Callable, Iterator

import numpy as np

from bert_tf.metrics.candidates import best_candidates, check_k

MAX_QUERIES = 256  # Queries that are scored at once.
DTYPES = ("float32", "float16", "int8")
CHUNK_ROWS = 16384
_CONVERTED_BYTES = 1 << 19  # as float32; the conversion is fast where this fits into a cache
# How many candidates of a query are kept at most: documents that are all equal could be millions.
_MOST_TIES = 1024


def top_k(
    queries: np.ndarray, documents: np.ndarray, k: int, chunk_rows: int = CHUNK_ROWS
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k documents of the highest dot product with each query.

    Args:
      queries: float [Q, D].
      documents: float32, float16 or int8 [N, D], an array or a memory-mapped one. Computed as
        float32.
      k: 1 <= k <= N.
      chunk_rows: documents scored at once.

    Returns:
      scores float32 [Q, k], descending, and the documents' rows int64 [Q, k]; of equal scores the
      lower row comes first.

    Raises:
      ValueError: k above the number of documents, dimensions that differ, numbers that are not
        finite.

    Example: queries [[1, 0]], documents [[2, 5], [3, 0], [3, 1]], k 2: scores [[3, 3]], rows
      [[1, 2]].
    """
    _check(queries, documents, k)
    queries = np.ascontiguousarray(queries, np.float32)
    scores = np.empty([len(queries), k], np.float32)
    rows = np.empty([len(queries), k], np.int64)
    for part in query_groups(len(queries)):
        best = BestRows(k, rounding_margin(queries[part], documents))
        for first, products in chunk_products(queries[part], documents, chunk_rows):
            best.add(products, first)
        scores[part], rows[part] = rescore(
            queries[part], best.candidates(), k, lambda chosen: documents[chosen]
        )
    return scores, rows


def query_groups(count: int) -> Iterator[slice]:
    """Yields slices of at most MAX_QUERIES queries."""
    for first in range(0, count, MAX_QUERIES):
        yield slice(first, first + MAX_QUERIES)


def _check(queries: np.ndarray, documents: np.ndarray, k: int) -> None:
    if queries.ndim != 2 or documents.ndim != 2 or queries.shape[1] != documents.shape[1]:
        raise ValueError(
            f"queries are of shape {queries.shape}, documents of {documents.shape}; expected "
            "[Q, D] and [N, D] of one dimension D: both must come from one model."
        )
    if documents.dtype.name not in DTYPES:
        raise ValueError(f"documents are {documents.dtype}; expected one of {', '.join(DTYPES)}.")
    check_k(k, len(documents))
    if not np.isfinite(queries).all():
        bad = int(np.argmin(np.isfinite(queries).all(axis=1)))
        raise ValueError(f"Query {bad} holds numbers that are not finite; was its text embedded?")


def chunk_products(
    queries: np.ndarray, documents: np.ndarray, chunk_rows: int = CHUNK_ROWS
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (first row, dot products float32 [Q, n]) for each chunk of documents [N, D].

    The products are valid until the next chunk.

    Raises:
      ValueError: naming the chunk, if products are not finite.
    """
    documents = np.asarray(documents)  # A slice of np.memmap costs more than one of an array.
    chunk_rows = min(chunk_rows, len(documents))
    block_rows = chunk_rows
    if documents.dtype != np.float32:
        block_rows = max(1, _CONVERTED_BYTES // (4 * documents.shape[1]))
        converted = np.empty([min(block_rows, chunk_rows), documents.shape[1]], np.float32)
    memory = np.empty(len(queries) * chunk_rows, np.float32)
    for first in range(0, len(documents), chunk_rows):
        last = min(first + chunk_rows, len(documents))
        products = memory[: len(queries) * (last - first)].reshape(len(queries), -1)
        for start in range(first, last, block_rows):
            block = documents[start : min(start + block_rows, last)]
            if block.dtype != np.float32:
                block = _as_float32(block, converted[: len(block)])
            place = slice(start - first, start - first + len(block))
            np.matmul(queries, block.T, out=products[:, place])
        # A bad document has bad scores with every query, so one query shows it.
        if not np.isfinite(products[:1]).all():
            raise ValueError(
                f"At least one of the documents {first} to {last - 1} has numbers that are not "
                "finite; embed them again."
            )
        yield first, products


def _as_float32(values: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Writes float16 or int8 values into a float32 array and returns it."""
    if values.dtype != np.float16:
        np.copyto(out, values)
        return out
    # NumPy converts one number at a time. Sign, exponent and mantissa only have to be shifted, and
    # the multiplication corrects the bias of the exponent, 127 instead of 15.
    bits = out.view(np.int32)
    np.left_shift(values.view(np.int16), 13, out=bits, dtype=np.int32)
    bits &= np.int32(-0x70000001)  # The shift copied the sign into three bits of the exponent.
    out *= np.float32(2.0**112)
    if np.abs(out).max(initial=0) >= 65536:  # 65504 is the largest number; these are inf and NaN.
        np.copyto(out, values)
    return out


class BestRows:
    """The best rows of each query, while rows are scored chunk by chunk.

    Args:
      k: rows per query.
      margin: float32 [Q]; rows are kept whose scores are less than this below the k-th best.
    """

    def __init__(self, k: int, margin: np.ndarray) -> None:
        self._k = k
        self._margin = margin
        self._threshold = np.full(len(margin), -np.inf, np.float32)
        # All candidates, of the queries one after another.
        self._queries = np.zeros([0], np.int64)
        self._scores = np.zeros([0], np.float32)
        self._rows = np.zeros([0], np.int64)
        self._sorted = 0  # candidates at the last selection

    def add(self, scores: np.ndarray, first: int) -> None:
        """Adds scores float32 [Q, n] of the rows from `first` on; -inf excludes a row.

        Rows ascend from chunk to chunk.
        """
        lowest = self._threshold
        count = scores.shape[1]
        is_first = bool(np.isneginf(lowest).any())
        if is_first and count > self._k:
            # Without a threshold all scores of the chunk would be candidates.
            kth = np.partition(scores, count - self._k, axis=1)[:, count - self._k]
            lowest = np.maximum(lowest, np.nextafter(kth - self._margin, np.float32(-np.inf)))
        found = np.flatnonzero(scores > lowest[:, None])
        queries = found // count
        self._queries = np.concatenate([self._queries, queries])
        self._scores = np.concatenate([self._scores, scores.reshape(-1)[found]])
        self._rows = np.concatenate([self._rows, found - queries * count + first])
        # Selecting seldom is cheaper: an old threshold only admits a few more candidates.
        if is_first or len(self._rows) > 2 * self._sorted:
            self._select()

    def _select(self) -> None:
        """Drops candidates that later ones have displaced, and raises the threshold."""
        # By query, then by descending score, then by row.
        order = np.lexsort((self._rows, -self._scores, self._queries))
        queries = self._queries[order]
        scores = self._scores[order]
        starts = np.searchsorted(queries, np.arange(len(self._margin)))
        ranks = np.arange(len(queries)) - starts[queries]
        is_kth = ranks == self._k - 1
        self._threshold[queries[is_kth]] = scores[is_kth] - self._margin[queries[is_kth]]
        is_near = (scores > self._threshold[queries]) & (ranks < self._k + _MOST_TIES)
        is_kept = is_near | (ranks < self._k)
        self._queries = queries[is_kept]
        self._scores = scores[is_kept]
        self._rows = self._rows[order][is_kept]
        self._sorted = len(self._rows)

    def candidates(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns scores and rows of each query, k or more with a margin, the best first."""
        self._select()
        ends = np.searchsorted(self._queries, np.arange(1, len(self._margin)))
        scores = np.split(self._scores, ends)
        return list(zip(scores, np.split(self._rows, ends), strict=True))

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores float32 [Q, k] and rows int64 [Q, k]; all queries need k candidates."""
        pairs = self.candidates()
        scores = [scores[: self._k] for scores, _ in pairs]
        rows = [rows[: self._k] for _, rows in pairs]
        return np.stack(scores), np.stack(rows)


def rounding_margin(queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Returns by how much two ways to add a dot product may differ, float32 [Q].

    The lengths of the documents are those of the first ones.
    """
    sample = np.asarray(documents[:CHUNK_ROWS:16], np.float32)
    longest = np.sqrt(np.einsum("nd,nd->n", sample, sample).max(initial=0))
    if not np.isfinite(longest):  # `chunk_products` names them.
        longest = 0
    # The error of a sum grows with the root of its terms; 8 covers the tail.
    error = 8 * np.finfo(np.float32).eps * np.sqrt(queries.shape[1])
    return (error * longest * np.linalg.norm(queries, axis=1)).astype(np.float32)


def rescore(
    queries: np.ndarray,
    candidates: list[tuple[np.ndarray, np.ndarray]],
    k: int,
    vectors_of: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Scores the candidates of each query by `dot_products`; returns the k best.

    Args:
      candidates: scores, which are not used, and rows of at least k documents of each query.
      vectors_of: returns the vectors of rows, [n, D].
    """
    scores = np.empty([len(queries), k], np.float32)
    rows = np.empty([len(queries), k], np.int64)
    for number, (_, chosen) in enumerate(candidates):
        chosen = np.sort(chosen)  # Files are read forwards.
        exact = dot_products(np.asarray(vectors_of(chosen), np.float32), queries[number])
        best = best_candidates(exact[None], chosen[None], k)
        scores[number], rows[number] = best[0][0], best[1][0]
    return scores, rows


def dot_products(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Returns float32 [n] for vectors [n, D]; each depends on its vector and the query alone."""
    return (vectors * query).sum(axis=1)
