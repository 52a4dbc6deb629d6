"""The k nearest of many vectors, exactly: every document is compared with every query.

Documents are taken in chunks, so that memory holds the scores of one chunk and not of all:
queries x chunk_rows x 4 bytes, and of a memory-mapped array the pages that are being read.

The best documents of a chunk are found in two steps. One fast pass computes the highest score of
each block of 32 documents. The k best documents are in the k blocks with the highest of these
scores, because k documents precede the best one of any other block, so only those are sorted.
"""

import functools

import numpy as np
import tensorflow as tf

from bert_tf.metrics.candidates import check_k

BLOCK = 32
MAX_QUERIES = 256  # Queries that are scored at once.
DTYPES = ("float32", "float16", "int8")


def top_k(
    queries: np.ndarray,
    documents: np.ndarray,
    k: int,
    chunk_rows: int = 16384,
    scales: np.ndarray | None = None,
    shifts: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k documents of the highest dot product with each query.

    Args:
      queries: float [Q, D].
      documents: float32, float16 or int8 [N, D], an array or a memory-mapped one. Computed as
        float32.
      k: 1 <= k <= N.
      chunk_rows: documents scored at once.
      scales: float32 [N], factors of the documents (of int8 vectors); None: 1.
      shifts: float32 [Q], added to all dot products of a query before they are scaled; None: 0.

    Returns:
      scores float32 [Q, k], descending, and the documents' rows int64 [Q, k]; of equal scores the
      lower row comes first.

    Raises:
      ValueError: k above the number of documents, dimensions that differ, numbers that are not
        finite.

    Example: queries [[1, 0]], documents [[2, 5], [3, 0], [3, 1]], k 2: scores [[3, 3]], rows
      [[1, 2]].
    """
    _check(queries, documents, k, scales)
    queries = np.ascontiguousarray(queries, np.float32)
    scores = np.empty([len(queries), k], np.float32)
    rows = np.empty([len(queries), k], np.int64)
    for first in range(0, len(queries), MAX_QUERIES):
        part = slice(first, first + MAX_QUERIES)
        shift = None if shifts is None else np.asarray(shifts[part], np.float32)
        scores[part], rows[part] = _search(queries[part], documents, k, chunk_rows, scales, shift)
    return scores, rows


def _check(queries: np.ndarray, documents: np.ndarray, k: int, scales: np.ndarray | None) -> None:
    if queries.ndim != 2 or documents.ndim != 2 or queries.shape[1] != documents.shape[1]:
        raise ValueError(
            f"queries are of shape {queries.shape}, documents of {documents.shape}; expected "
            "[Q, D] and [N, D] of one dimension D: both must come from one model."
        )
    if documents.dtype.name not in DTYPES:
        raise ValueError(f"documents are {documents.dtype}; expected one of {', '.join(DTYPES)}.")
    check_k(k, len(documents))
    if scales is not None and scales.shape != (len(documents),):
        raise ValueError(f"scales are of shape {scales.shape}; expected ({len(documents)},).")
    if not np.isfinite(queries).all():
        bad = int(np.argmin(np.isfinite(queries).all(axis=1)))
        raise ValueError(f"Query {bad} holds numbers that are not finite; was its text embedded?")


def _search(
    queries: np.ndarray,
    documents: np.ndarray,
    k: int,
    chunk_rows: int,
    scales: np.ndarray | None,
    shifts: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns scores and rows of at most MAX_QUERIES queries."""
    query = tf.constant(queries)
    best = tf.zeros([len(queries), 0]), tf.zeros([len(queries), 0], tf.int64)
    for first in range(0, len(documents), chunk_rows):
        part = slice(first, min(first + chunk_rows, len(documents)))
        factors = None if scales is None else scales[part]
        # This does not copy an array with aligned memory, as in NumPy's files.
        chunk = tf.convert_to_tensor(np.asarray(documents[part]))
        # tf.function traces again for each Python int, but not for each NumPy number.
        *best, is_finite = _better(*best, query, shifts, chunk, factors, np.int64(first), k)
        if not is_finite:
            raise ValueError(
                f"At least one of the documents {part.start} to {part.stop - 1} has numbers that "
                "are not finite; embed them again."
            )
    return best[0].numpy(), best[1].numpy()


@functools.partial(tf.function, autograph=False, reduce_retracing=True)
def _better(
    scores: tf.Tensor,
    rows: tf.Tensor,
    query: tf.Tensor,
    shifts: tf.Tensor | None,
    chunk: tf.Tensor,
    factors: tf.Tensor | None,
    first: tf.Tensor,
    k: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Merges the best results so far, scores and rows [Q, up to k], with those of a chunk [n, D].

    Factors and shifts are those of `score`, `first` is the row of the chunk's first document. Also
    returns whether all numbers were finite.
    """
    chunk_scores = score(query, chunk, factors, shifts)  # [Q, n]
    # A bad document has bad scores with every query, so one query shows it.
    is_finite = tf.reduce_all(tf.math.is_finite(chunk_scores[:1]))
    return *merge_best(scores, rows, chunk_scores, first, k), is_finite


def merge_best(
    scores: tf.Tensor, rows: tf.Tensor, chunk_scores: tf.Tensor, first: tf.Tensor, k: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the k best of scores and rows so far [Q, up to k], and of a chunk's scores [Q, n].

    `first` is the row of the chunk's first document, of the type of `rows`.
    """
    values, indices = best_of(chunk_scores, tf.minimum(k, tf.shape(chunk_scores)[1]))
    # Earlier results come first, because they have the lower rows.
    values = tf.concat([scores, values], axis=1)
    candidates = tf.concat([rows, tf.cast(indices, rows.dtype) + first], axis=1)
    values, order = tf.math.top_k(values, tf.minimum(k, tf.shape(values)[1]))
    return values, tf.gather(candidates, order, batch_dims=1)


def score(
    query: tf.Tensor,
    documents: tf.Tensor,
    factors: tf.Tensor | None = None,
    shifts: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns dot products, float32 [Q, N].

    Args:
      query, documents: float32 [Q, D], and [N, D] of any type.
      factors: float32 [N], of the documents; None: 1. A shape would not do: it is None where it has
        changed.
      shifts: float32 [Q], added before the factors are applied; None: 0.
    """
    products = tf.matmul(query, tf.cast(documents, tf.float32), transpose_b=True)  # [Q, N]
    if shifts is not None:
        products += shifts[:, tf.newaxis]
    return products if factors is None else products * factors


def best_of(scores: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the same as `tf.math.top_k`, faster where k is far below the number of scores.

    For scores float32 [Q, N] and k at most N these are the highest scores, float32 [Q, k], and
    their indices, int32 [Q, k]; of equal scores the lower index comes first.
    """
    count = tf.shape(scores)[1]
    missing = -count % BLOCK
    # -inf is below every score, so padding is chosen last.
    padded = tf.pad(scores, [[0, 0], [0, missing]], constant_values=float("-inf"))
    # [Q, ceil(N / BLOCK), BLOCK]
    blocks = tf.reshape(padded, [tf.shape(scores)[0], -1, BLOCK])
    chosen = tf.math.top_k(
        tf.reduce_max(blocks, axis=2), tf.minimum(k, tf.shape(blocks)[1]), sorted=False
    )[1]
    chosen = tf.sort(chosen, axis=1)  # Equal scores are then in the order of their indices.
    candidates = tf.gather(blocks, chosen, batch_dims=1)  # [Q, blocks, BLOCK]
    values, order = tf.math.top_k(tf.reshape(candidates, [tf.shape(scores)[0], -1]), k)
    # From indices within the candidates to indices within the scores.
    block = tf.gather(chosen, order // BLOCK, batch_dims=1)
    return values, block * BLOCK + order % BLOCK
