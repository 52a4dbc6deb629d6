"""Serving functions for search: the nearest documents of a query, with or without a reranker."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.serving.graph_tokens import check_utf8
from bert_tf.serving.model import Outputs, Serving, Signatures
from bert_tf.tasks.embedding.serving import EmbeddingServing
from bert_tf.tasks.reranking.serving import RerankingServing
from bert_tf.vectors.exact import best_of, score
from bert_tf.vectors.quantization import quantize

CHUNK_ROWS = 16384
RESCORED = 4


class VectorStore(tf.Module):
    """Vectors in variables, searched exactly.

    float32 and float16 are stored as they are. int8 stores two bytes a number: the first is rounded
    as `search.quantization` says, the second is the rest in 254ths of a step. A search reads the
    first, and the best `RESCORED` x k are scored again by both, to 16 bits.

    Args:
      vectors: float32 [N, D].
      dtype: float32, float16 or int8.
    """

    def __init__(self, vectors: np.ndarray, dtype: str) -> None:
        super().__init__()
        self.count, self.dtype = len(vectors), dtype
        parts = {"vectors": vectors.astype(np.float16 if dtype == "float16" else np.float32)}
        if dtype == "int8":
            rounded = quantize(vectors)
            parts = {
                "vectors": rounded.values,
                "rest": np.rint(rounded.rest * 254).clip(-127, 127).astype(np.int8),
                "scales": rounded.lengths,
                "offsets": rounded.offsets,
                "steps": rounded.steps,
            }
        self.parts = {
            name: tf.Variable(value, trainable=False, name=name) for name, value in parts.items()
        }

    def search(self, queries: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the k nearest: scores float32 [B, k], descending, and rows int32 [B, k].

        Args:
          queries: float32 [B, D].
          k: int32 [], at most N.
        """
        wanted = tf.minimum(self.count, RESCORED * k) if self.dtype == "int8" else k
        scores, rows = self._scan(queries, wanted)
        if self.dtype != "int8":
            return scores, rows
        coarse, fine, scales = (
            tf.gather(self.parts[name], rows) for name in ("vectors", "rest", "scales")
        )
        exact = tf.cast(coarse, tf.float32) + tf.cast(fine, tf.float32) / 254.0
        exact = exact * self.parts["steps"] + self.parts["offsets"]
        found = tf.einsum("bd,bcd->bc", queries, exact) * scales
        # Of equal scores the lower row stands first.
        order = tf.argsort(rows, axis=1)
        rows, found = (tf.gather(part, order, batch_dims=1) for part in (rows, found))
        scores, order = tf.math.top_k(found, k)
        return scores, tf.gather(rows, order, batch_dims=1)

    def _scan(self, queries: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        vectors, scales = self.parts["vectors"], self.parts.get("scales")
        shifts = None
        if self.dtype == "int8":
            shifts = tf.linalg.matvec(queries, self.parts["offsets"])  # [B]
            queries = queries * self.parts["steps"]

        def step(first: tf.Tensor, scores: tf.Tensor, rows: tf.Tensor) -> tuple[Any, ...]:
            last = tf.minimum(first + CHUNK_ROWS, self.count)
            factors = None if scales is None else scales[first:last]
            found = score(queries, vectors[first:last], factors, shifts)
            values, places = best_of(found, tf.minimum(k, last - first))
            values = tf.concat([scores, values], axis=1)
            places = tf.concat([rows, places + first], axis=1)
            values, order = tf.math.top_k(values, tf.minimum(k, tf.shape(values)[1]))
            return last, values, tf.gather(places, order, batch_dims=1)

        size = tf.shape(queries)[0]
        start = tf.constant(0), tf.zeros([size, 0]), tf.zeros([size, 0], tf.int32)
        shapes = tf.TensorShape([]), tf.TensorShape([None, None]), tf.TensorShape([None, None])
        _, scores, rows = tf.while_loop(
            lambda first, *_: first < self.count, step, start, shape_invariants=shapes
        )
        return scores, rows


class SearchServing(Serving):
    """A search in one model: text -> vector -> nearest vectors -> perhaps a cross-encoder.

    Args:
      embedder: makes the vector of a query.
      store: the documents' vectors.
      ids: of the documents.
      texts: of the documents; () for none.
      reranker: orders the first anew; None for none.
      rerank_k: how many of them; those behind keep their order.

    Inputs:
      query: string [B].
      k: int32 [], documents wanted.

    Outputs:
      ids: string [B, k], the best first.
      scores: float32 [B, k], dot products, of a reranker its scores; documents behind those that
        it reads have its lowest score less 1, 2, ...
      rows: int32 [B, k], the documents' numbers.
      texts: string [B, k], if the model has them.

    Raises:
      InvalidArgumentError: when it runs, if k is below 1 or above the number of documents.
    """

    kind = "search"

    def __init__(
        self,
        embedder: EmbeddingServing,
        store: VectorStore,
        ids: Sequence[str],
        texts: Sequence[str] = (),
        reranker: RerankingServing | None = None,
        rerank_k: int = 50,
    ) -> None:
        sizes = embedder.do_lower_case, embedder.max_seq_length
        super().__init__(embedder.model, embedder.vocab, *sizes, texts=("query",))
        self.embedder, self.store = embedder, store
        self.reranker, self.rerank_k = reranker, rerank_k
        self.numbers = {"k": min(10, store.count)}
        # Strings in variables: a graph may hold two gibibytes of constants at most.
        self.ids = tf.Variable(list(ids), trainable=False, name="ids")
        self.document_texts = (
            tf.Variable(list(texts), trainable=False, name="texts") if texts else None
        )

    def parts(self) -> list[Serving]:
        return [self.embedder, *([self.reranker] if self.reranker else [])]

    def sample_ids(self, *texts: tf.Tensor) -> list[tf.Tensor]:
        return self.embedder.sample_ids(*texts)

    def share_model(self) -> None:
        """Nothing: there is one function."""

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Takes queries and k."""
        return self.search(*texts)

    def search(self, query: tf.Tensor, k: tf.Tensor) -> Outputs:
        count = self.store.count
        message = f"k must lie in 1 .. {count}, the number of documents"
        with tf.control_dependencies(
            [tf.debugging.Assert((k >= 1) & (k <= count), [message, k], name="check_k")]
        ):
            k = tf.identity(k)
        query = check_utf8(query)
        vectors = self.embedder.from_texts(query)["embedding"]
        wanted = tf.minimum(tf.maximum(k, self.rerank_k), count) if self.reranker else k
        scores, rows = self.store.search(vectors, wanted)
        if self.reranker:
            scores, rows = (part[:, :k] for part in self._rerank(self.reranker, query, rows))
        outputs = {"ids": tf.gather(self.ids, rows), "scores": scores, "rows": rows}
        if self.document_texts is not None:
            outputs["texts"] = tf.gather(self.document_texts, rows)
        return outputs

    def _rerank(
        self, reranker: RerankingServing, query: tf.Tensor, rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Orders the first `rerank_k` of rows [B, n] anew; the others keep their order below."""
        first, rest = rows[:, : self.rerank_k], rows[:, self.rerank_k :]
        texts = tf.gather(self.document_texts, first)
        texts = tf.where(texts == "", " ", texts)  # A stored text of nothing is a document.
        found = reranker.from_texts(query, texts)
        scores, first = (
            tf.gather(part, found["order"], batch_dims=1) for part in (found["scores"], first)
        )
        below = scores[:, -1:] - 1.0 - tf.range(tf.shape(rest)[1], dtype=tf.float32)
        return tf.concat([scores, below], axis=1), tf.concat([first, rest], axis=1)

    def text_signatures(self) -> Signatures:
        specs = [tf.TensorSpec([None], tf.string, "query"), tf.TensorSpec([], tf.int32, "k")]

        @tf.function(input_signature=specs, autograph=False)
        def serving_default(query: tf.Tensor, k: tf.Tensor) -> Outputs:
            return self.search(query, k)

        return {"serving_default": serving_default}

    def id_signatures(self) -> Signatures:
        """None: what a model of ids would answer with, `embeddings` has."""
        return {}

    def card(self) -> dict[str, Any]:
        return {
            **super().card(),
            "numbers": self.numbers,
            "documents": self.store.count,
            "store": self.store.dtype,
            "rerank_k": self.rerank_k if self.reranker else 0,
        }
