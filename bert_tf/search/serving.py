"""Serving functions for search: the nearest documents of a query, with or without a reranker."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.metrics.maxsim import MAXSIM, NO_TOKENS, text_parts
from bert_tf.metrics.quantization import Ranges, vector_lengths
from bert_tf.search.open_index import RESCORED
from bert_tf.search.token_vectors import TokenIndex
from bert_tf.tasks.base.serving.graph_tokens import replace_malformed
from bert_tf.tasks.base.serving.model import Outputs, Serving, Signatures
from bert_tf.tasks.embedding.serving import EmbeddingServing
from bert_tf.tasks.reranking.serving import RerankingServing

CHUNK_ROWS = 16384  # vectors that are compared at once
BLOCK = 32  # scores of which one pass finds the highest


class VectorStore(tf.Module):
    """Vectors in variables, searched exhaustively.

    int8 stores two bytes per number: the number rounded as `metrics.quantization` describes, and
    the remainder in 254ths of a step. A search reads the first byte, and the best `RESCORED` x k
    documents are rescored with both, to 16 bits.

    Args:
      vectors: float32 [N, D].
      dtype: float32, float16 or int8.
    """

    def __init__(self, vectors: np.ndarray, dtype: str) -> None:
        super().__init__()
        self.count, self.dimension = vectors.shape
        self.dtype = dtype
        arrays = {"vectors": vectors.astype(np.float16 if dtype == "float16" else np.float32)}
        if dtype == "int8":
            lengths = vector_lengths(vectors)
            unit = vectors / lengths[:, None]  # [N, D]
            ranges = Ranges.of(unit)
            codes = ranges.codes(unit)
            # The middle of a step: the rest is at most half a step.
            offsets = ranges.offsets + ranges.steps / 2
            rest = (unit - offsets) / ranges.steps - codes
            arrays = {
                "vectors": codes,  # [N, D]
                "rest": np.rint(rest * 254).clip(-127, 127).astype(np.int8),  # [N, D]
                "scales": lengths,  # [N]
                "offsets": offsets,  # [D]
                "steps": ranges.steps,  # [D]
            }
        self.parts = {}
        for name, values in arrays.items():
            self.parts[name] = tf.Variable(values, trainable=False, name=name)

    def queries_of(self, outputs: Outputs) -> tf.Tensor:
        """Returns the queries to search, from the outputs of the embedder."""
        return self.shorten(outputs["embedding"])

    def shorten(self, queries: tf.Tensor) -> tf.Tensor:
        """Returns the first D numbers of queries [B, model's size], as `segments.prepared` does."""
        if self.dimension == queries.shape[1]:
            return queries
        lengths = tf.norm(queries, axis=1, keepdims=True)
        return tf.math.l2_normalize(queries[:, : self.dimension], axis=1) * lengths

    def search(self, queries: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns scores float32 [B, k], descending, and rows int32 for queries float32 [B, D]."""
        wanted = tf.minimum(self.count, RESCORED * k) if self.dtype == "int8" else k
        scores, rows = self._scan(queries, wanted)
        if self.dtype != "int8":
            return scores, rows
        coarse = tf.gather(self.parts["vectors"], rows)  # [B, C, D], C candidates
        fine = tf.gather(self.parts["rest"], rows)  # [B, C, D]
        scales = tf.gather(self.parts["scales"], rows)  # [B, C]
        # Restores the vectors but for their length; see `metrics.quantization`.
        exact = tf.cast(coarse, tf.float32) + tf.cast(fine, tf.float32) / 254.0
        exact = exact * self.parts["steps"] + self.parts["offsets"]
        scores = tf.einsum("bd,bcd->bc", queries, exact) * scales
        # top_k keeps the order of equal scores, so sort by row first.
        order = tf.argsort(rows, axis=1)
        rows = tf.gather(rows, order, batch_dims=1)
        scores = tf.gather(scores, order, batch_dims=1)
        scores, order = tf.math.top_k(scores, k)
        return scores, tf.gather(rows, order, batch_dims=1)

    def _scan(self, queries: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Scores all stored vectors; returns the k best scores and rows."""
        vectors = self.parts["vectors"]
        if self.dtype == "int8":
            # As in `Segment.scores`: only the products with int8 values remain for the scan.
            shifts = tf.linalg.matvec(queries, self.parts["offsets"])[:, tf.newaxis]  # [B, 1]
            queries = queries * self.parts["steps"]

        def score(first: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
            chunk = tf.cast(vectors[first:last], tf.float32)  # [n, D]
            scores = tf.matmul(queries, chunk, transpose_b=True)  # [B, n]
            if self.dtype == "int8":
                scores = (scores + shifts) * self.parts["scales"][first:last]
            return scores

        limits = [*range(0, self.count, CHUNK_ROWS), self.count]
        return best_of_parts(score, limits, tf.shape(queries)[0], k)


class TokenStore(tf.Module):
    """Token vectors of documents in variables, all of which are compared by MaxSim.

    Args:
      index: the vectors of N documents, float16 or int8.
      similarity: see `maxsim`.
    """

    def __init__(self, index: TokenIndex, similarity: str = MAXSIM[0]) -> None:
        super().__init__()
        self.count = len(index)
        self.dtype = index.vectors.dtype.name
        self.similarity = similarity
        arrays = {"vectors": index.vectors, "scales": index.scales, "starts": index.starts}
        self.parts = {}
        for name, values in arrays.items():
            self.parts[name] = tf.Variable(values, trainable=False, name=name)
        self._limits = [0, *(last for _, last in text_parts(index.starts, CHUNK_ROWS))]

    def queries_of(self, outputs: Outputs) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the queries to search, from the outputs of the embedder."""
        return outputs["vectors"], outputs["scored"]

    def search(
        self, queries: tuple[tf.Tensor, tf.Tensor], k: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the k best documents; see `TokenIndex.search`.

        Args:
          queries: float32 [B, T, D], a vector for each token, 0 for those that do not score; and
            which of them score, [B, T].

        Returns:
          scores float32 [B, k], descending, and rows int32 [B, k].
        """
        vectors, scored = queries
        size, length, dimension = tf.unstack(tf.shape(vectors))
        flat = tf.reshape(vectors, [size * length, dimension])
        starts = self.parts["starts"]

        def score(first: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
            tokens = slice(starts[first], starts[last])
            chunk = tf.cast(self.parts["vectors"][tokens], tf.float32)  # [t, D]
            chunk *= self.parts["scales"][tokens, tf.newaxis]
            products = tf.matmul(chunk, flat, transpose_b=True)  # [t, B * T]
            lengths = starts[first + 1 : last + 1] - starts[first:last]  # [n]
            documents = tf.repeat(tf.range(last - first), lengths)  # [t]
            best = tf.math.unsorted_segment_max(products, documents, last - first)
            # A vector of zeros, of a token that does not score, adds 0.
            sums = tf.reduce_sum(tf.reshape(best, [last - first, size, length]), axis=2)  # [n, B]
            # The maximum over no tokens is the lowest number.
            return tf.transpose(tf.where(lengths[:, tf.newaxis] > 0, sums, NO_TOKENS))

        scores, rows = best_of_parts(score, self._limits, size, k)
        if self.similarity == MAXSIM[1]:
            counts = tf.reduce_sum(tf.cast(scored, tf.float32), axis=1, keepdims=True)  # [B, 1]
            scores /= tf.maximum(counts, 1.0)
        return scores, rows


def best_of_parts(
    score: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    limits: Sequence[int],
    num_queries: tf.Tensor,
    k: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Scores documents part by part, and keeps the k best after each part.

    Args:
      score: returns the scores of B queries with the documents of rows first to last, float32
        [B, last - first].
      limits: the first row of each part, ascending, and at the end the number of documents.

    Returns:
      scores float32 [B, k], descending, and rows int32 [B, k]; equal scores are ordered by row.
    """
    bounds = tf.constant(limits)

    def step(
        part: tf.Tensor, scores: tf.Tensor, rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        first = bounds[part]
        last = bounds[part + 1]
        values, indices = best_of(score(first, last), tf.minimum(k, last - first))
        # Earlier results come first, because they have the lower rows.
        values = tf.concat([scores, values], axis=1)
        candidates = tf.concat([rows, indices + first], axis=1)
        values, order = tf.math.top_k(values, tf.minimum(k, tf.shape(values)[1]))
        return part + 1, values, tf.gather(candidates, order, batch_dims=1)

    # The scores and rows grow from [B, 0] to [B, k].
    start = (tf.constant(0), tf.zeros([num_queries, 0]), tf.zeros([num_queries, 0], tf.int32))
    grown = tf.TensorShape([None, None])
    _, scores, rows = tf.while_loop(
        lambda part, *_: part < len(limits) - 1,
        step,
        start,
        shape_invariants=(tf.TensorShape([]), grown, grown),
        parallel_iterations=1,  # Parts are there to bound the memory of the scores.
    )
    return scores, rows


class SearchServing(Serving):
    """A search in one graph: text -> vectors -> nearest documents -> optional cross-encoder.

    Args:
      embedder: embeds queries; with a `TokenStore` by late interaction.
      ids: ids of the documents.
      texts: texts of the documents; () if they are not stored.
      reranker: reorders the first documents; None: no reranking.
      rerank_k: how many documents it reads; later ones keep their order.

    Inputs:
      query: string [B].
      k: int32 [], number of documents to return.

    Outputs:
      ids: string [B, k], the best first.
      scores: float32 [B, k], dot products, MaxSim, or the reranker's scores; documents after those
        that the reranker reads get its lowest score minus 1, 2, ...
      rows: int32 [B, k], the documents' numbers.
      texts: string [B, k], if the model stores texts.

    Raises:
      InvalidArgumentError: at run time, if k is below 1 or above the number of documents.
    """

    kind = "search"

    def __init__(
        self,
        embedder: EmbeddingServing,
        store: VectorStore | TokenStore,
        ids: Sequence[str],
        texts: Sequence[str] = (),
        reranker: RerankingServing | None = None,
        rerank_k: int = 50,
    ) -> None:
        super().__init__(
            embedder.model,
            embedder.vocab,
            embedder.do_lower_case,
            embedder.max_seq_length,
            texts=("query",),
        )
        self.embedder = embedder
        self.store = store
        self.reranker = reranker
        self.rerank_k = rerank_k
        self.numbers = {"k": min(10, store.count)}
        # Strings are kept in variables because a graph holds at most 2 GiB of constants.
        self.ids = tf.Variable(list(ids), trainable=False, name="ids")
        self.document_texts = None
        if texts:
            self.document_texts = tf.Variable(list(texts), trainable=False, name="texts")

    def parts(self) -> list[Serving]:
        if self.reranker:
            return [self.embedder, self.reranker]
        return [self.embedder]

    def sample_ids(self, *texts: tf.Tensor) -> list[tf.Tensor]:
        return self.embedder.sample_ids(*texts)

    def share_model(self) -> None:
        """Does nothing, because there is only one function."""

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Returns the outputs for queries and k."""
        return self.search(*texts)

    def search(self, query: tf.Tensor, k: tf.Tensor) -> Outputs:
        count = self.store.count
        message = f"k must be between 1 and {count}, the number of documents"
        check_k = tf.debugging.Assert((k >= 1) & (k <= count), [message, k], name="check_k")
        # The results depend on the check, so that the graph cannot skip it.
        with tf.control_dependencies([check_k]):
            k = tf.identity(k)
        vectors = self.store.queries_of(self.embedder.from_texts(query))
        if self.reranker:
            depth = tf.minimum(tf.maximum(k, self.rerank_k), count)
            _, rows = self.store.search(vectors, depth)
            scores, rows = self._rerank(self.reranker, query, rows)
            scores = scores[:, :k]
            rows = rows[:, :k]
        else:
            scores, rows = self.store.search(vectors, k)
        outputs = {"ids": tf.gather(self.ids, rows), "scores": scores, "rows": rows}
        if self.document_texts is not None:
            outputs["texts"] = tf.gather(self.document_texts, rows)
        return outputs

    def _rerank(
        self, reranker: RerankingServing, query: tf.Tensor, rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Reorders the first `rerank_k` of rows [B, n]; the others follow in their order."""
        first = rows[:, : self.rerank_k]
        rest = rows[:, self.rerank_k :]
        texts = tf.gather(self.document_texts, first)
        texts = tf.where(texts == "", " ", texts)  # The reranker treats "" as padding.
        reranked = reranker.from_texts(query, texts)
        scores = tf.gather(reranked["scores"], reranked["order"], batch_dims=1)
        first = tf.gather(first, reranked["order"], batch_dims=1)
        # Below the lowest reranked score, so that the scores stay in descending order.
        below = scores[:, -1:] - 1.0 - tf.range(tf.shape(rest)[1], dtype=tf.float32)
        return tf.concat([scores, below], axis=1), tf.concat([first, rest], axis=1)

    def text_signatures(self) -> Signatures:
        specs = [tf.TensorSpec([None], tf.string, "query"), tf.TensorSpec([], tf.int32, "k")]

        @tf.function(input_signature=specs, autograph=False)
        def serving_default(query: tf.Tensor, k: tf.Tensor) -> Outputs:
            return self.search(replace_malformed(query), k)

        return {"serving_default": serving_default}

    def id_signatures(self) -> Signatures:
        """Returns no signatures; an export of kind `embeddings` serves token ids."""
        return {}

    def card(self) -> dict[str, Any]:
        return {
            **super().card(),
            "numbers": self.numbers,
            "documents": self.store.count,
            "store": self.store.dtype,
            "rerank_k": self.rerank_k if self.reranker else 0,
        }


def best_of(scores: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the same as `tf.math.top_k`, faster where k is far below the number of scores.

    For scores float32 [Q, N] and k at most N these are the highest scores, float32 [Q, k], and
    their indices, int32 [Q, k]; of equal scores the lower index comes first.

    One fast pass computes the highest score of each block of 32. The k best are in the k blocks
    with the highest of these scores, because k scores precede the best one of any other block.
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
