"""The k nearest of many vectors, exactly: every document is compared with every query.

Documents are scored in chunks, in place: a memory-mapped array is read page by page and not copied.
Memory holds the scores of one chunk: 4 MB, or with more than 64 queries 64 KB for each.

A matrix product adds the terms of a dot product in an order that depends on the number of queries
and on the position of the document. So the products only choose candidates, those within the
rounding of the k-th best; `dot_products` scores these again, in one order. Equal vectors therefore
have equal scores, whatever they are searched with.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from bert_tf.metrics.candidates import BestRows, best_candidates, check_k

MAX_QUERIES = 256  # Queries that are scored at once.
DTYPES = ("float32", "float16", "int8")
CHUNK_ROWS = 16384  # Fewest documents that are scored at once.
# Fewest scores that are computed at once. The threads of a matrix product wait for each other at
# its end; on a machine with other work, many small products take twice the time of a large one.
CHUNK_SCORES = 1 << 20
_CONVERTED_BYTES = 1 << 19  # as float32; the conversion is fast where this fits into a cache


def top_k(queries: np.ndarray, documents: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k documents of the highest dot product with each query.

    Args:
      queries: float [Q, D].
      documents: float32, float16 or int8 [N, D], an array or a memory-mapped one. Computed as
        float32.
      k: 1 <= k <= N.

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
        chunks = chunk_products(queries[part], documents)
        found = best_rows(chunks, k, rounding_margin(queries[part], documents))
        scores[part], rows[part] = rescore(queries[part], found, k, documents.__getitem__)
    return scores, rows


def query_groups(count: int) -> Iterator[slice]:
    """Yields slices of at most MAX_QUERIES queries."""
    for first in range(0, count, MAX_QUERIES):
        yield slice(first, first + MAX_QUERIES)


def _check(queries: np.ndarray, documents: np.ndarray, k: int) -> None:
    if documents.ndim != 2 or documents.dtype.name not in DTYPES:
        raise ValueError(
            f"documents are {documents.dtype} {documents.shape}; expected [N, D] of one of "
            f"{', '.join(DTYPES)}."
        )
    check_queries(queries, documents.shape[1], f"documents of {documents.shape}")
    check_k(k, len(documents))


def check_queries(queries: np.ndarray, dimension: int, searched: str) -> None:
    """Raises ValueError unless queries have this dimension and finite numbers.

    `searched` names the vectors that they are compared with.
    """
    if queries.ndim != 2:
        raise ValueError(
            f"queries have shape {queries.shape}; expected [Q, {dimension}], one row per query."
        )
    if queries.shape[1] != dimension:
        raise ValueError(
            f"queries have shape {queries.shape}, but {searched} have {dimension} dimensions; both "
            "must come from one model."
        )
    if not np.isfinite(queries).all():
        bad = int(np.argmin(np.isfinite(queries).all(axis=1)))
        raise ValueError(
            f"Query {bad} contains numbers that are not finite; was its text embedded?"
        )


def chunk_products(queries: np.ndarray, documents: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (first row, dot products float32 [Q, n]) for each chunk of documents [N, D].

    The products are valid until the next chunk.

    Raises:
      ValueError: naming the chunk, if products are not finite.
    """
    documents = np.asarray(documents)  # A slice of np.memmap costs more than one of an array.
    chunk_rows = max(CHUNK_ROWS, CHUNK_SCORES // len(queries))
    chunk_rows = max(1, min(chunk_rows, len(documents)))
    block_rows = chunk_rows
    if documents.dtype != np.float32:
        # Products with many queries are large, and take longer than the conversion.
        size = _CONVERTED_BYTES * min(len(queries), 16)
        block_rows = max(1, size // (4 * documents.shape[1]))
        converted = np.empty([min(block_rows, chunk_rows), documents.shape[1]], np.float32)
    memory = np.empty(len(queries) * chunk_rows, np.float32)
    for first in range(0, len(documents), chunk_rows):
        last = min(first + chunk_rows, len(documents))
        products = memory[: len(queries) * (last - first)].reshape(len(queries), -1)
        for start in range(first, last, block_rows):
            block = documents[start : min(start + block_rows, last)]
            if block.dtype != np.float32:
                block = _as_float32(block, converted[: len(block)])
            span = slice(start - first, start - first + len(block))
            # Some processors note bad numbers here already; they are named below.
            with np.errstate(invalid="ignore", over="ignore"):
                np.matmul(queries, block.T, out=products[:, span])
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


def best_rows(
    chunks: Iterable[tuple[int, np.ndarray]], k: int, margins: np.ndarray
) -> list[BestRows]:
    """Returns the best rows of each query.

    Args:
      chunks: see `chunk_products`; -inf excludes a row.
      k: how many rows.
      margins: float32 [Q], see `BestRows`.
    """
    found = [BestRows(k, margin) for margin in margins]
    for first, scores in chunks:
        # In parts that fit into a cache; all but the first have few scores above the threshold.
        for start in range(0, scores.shape[1], CHUNK_ROWS):
            part = scores[:, start : start + CHUNK_ROWS]
            for best, query_scores in zip(found, part, strict=True):
                best.add(query_scores, first + start)
    return found


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
    found: Sequence[BestRows],
    k: int,
    vectors_of: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Scores the rows found for each query by `dot_products`; returns the k best.

    `vectors_of` returns the vectors of rows, [n, D].
    """
    scores = np.empty([len(queries), k], np.float32)
    rows = np.empty([len(queries), k], np.int64)
    for number, best in enumerate(found):
        chosen = np.sort(best.rows)  # Files are read forwards.
        exact = dot_products(np.asarray(vectors_of(chosen), np.float32), queries[number])
        scores[number], rows[number] = best_candidates(exact, chosen, k)
    return scores, rows


def dot_products(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Returns float32 [n] for vectors [n, D]; each depends on its vector and the query alone."""
    return (vectors * query).sum(axis=1)
