"""Search in stages: vectors, words or both find documents, a cross-encoder orders the best anew."""

import pathlib
from collections.abc import Sequence

import numpy as np

from bert_tf.search.bm25 import Bm25
from bert_tf.search.embedding import SearchEmbedder
from bert_tf.search.faiss_index import FaissIndex
from bert_tf.search.fusion import reciprocal_rank_fusion, weighted_fusion
from bert_tf.search.index import Index, Manifest
from bert_tf.search.reranker import Reranker

HYBRID_K = 100  # documents that each part of a hybrid search finds, if fewer are asked for


class Searcher:
    """Searches an index with texts.

    Args:
      folder: the index.
      model: that embeds queries; "": the one that the index was made with, where it lay then.
      mode: `vectors`, `words` or `hybrid`.
      faiss: kind of the FAISS index to use; "": exact search.
      fusion: `ranks` (reciprocal) or `weights`, how hybrid joins both.
      vector_weight: weight of vectors in hybrid, 0 to 1; words have the rest.
      reranker: folder of a cross-encoder; "": none.
      rerank_k: how many documents it reads.
      max_seq_length: pieces of a query; 0: what the model says.

    Raises:
      ValueError: if the index is of another model or damaged, or lacks the texts that are needed.
    """

    def __init__(
        self,
        folder: str,
        *,
        model: str = "",
        mode: str = "vectors",
        faiss: str = "",
        fusion: str = "ranks",
        vector_weight: float = 0.5,
        reranker: str = "",
        rerank_k: int = 100,
        max_seq_length: int = 0,
    ) -> None:
        manifest = Manifest.read(pathlib.Path(folder))
        fingerprint = ""
        if mode != "words":
            source = model or manifest.source
            self._embedder = SearchEmbedder(source, manifest.pooling, max_seq_length)
            fingerprint = self._embedder.fingerprint
        self.index = Index(folder, fingerprint)
        if (mode != "vectors" or reranker) and not manifest.has_texts:
            raise ValueError(
                f"{folder} keeps no texts, which words and rerankers read; build it with texts."
            )
        self._vectors = FaissIndex(self.index, faiss) if faiss else self.index
        if mode != "vectors":
            self._words = Bm25([self.index.text(row) for row in range(len(self.index))])
        self._reranker = Reranker.from_pretrained(reranker) if reranker else None
        self._mode, self._rerank_k = mode, rerank_k
        self._join = reciprocal_rank_fusion if fusion == "ranks" else weighted_fusion
        self._weights = [vector_weight, 1.0 - vector_weight]

    def search(self, queries: Sequence[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k best documents of each query: scores float32 [Q, k], rows int64 [Q, k].

        Scores are those of the last stage: similarities, BM25's, fused ones, or the reranker's
        logits.

        Raises:
          ValueError: k above the number of documents.
        """
        self.index.check_k(k)
        if self._reranker is None:
            return self._find(queries, k)
        wanted = min(len(self.index), max(k, self._rerank_k))
        _, rows = self._find(queries, wanted)
        scores = np.empty([len(queries), k], np.float32)
        kept = np.empty([len(queries), k], np.int64)
        for i, (query, found) in enumerate(zip(queries, rows, strict=True)):
            own = self._reranker.logits([(query, self.index.text(row)) for row in found])
            order = np.argsort(-own, kind="stable")[:k]
            scores[i], kept[i] = own[order], found[order]
        return scores, kept

    def _find(self, queries: Sequence[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns what the first stage finds."""
        if self._mode == "words":
            return self._words.search(queries, k)
        vectors = self._embedder.queries(queries)
        if self._mode == "vectors":
            return self._search_vectors(vectors, k)
        wanted = min(len(self.index), max(k, HYBRID_K))
        runs = [
            _run(*self._search_vectors(vectors, wanted)),
            _run(*self._words.search(queries, wanted), least=0.0),
        ]
        joined = self._join(runs, self._weights)
        scores, rows = np.empty([len(queries), k], np.float32), np.empty([len(queries), k], int)
        for i in range(len(queries)):
            found = joined[str(i)]
            order = sorted(found, key=lambda name: (-found[name], int(name)))[:k]
            scores[i], rows[i] = [found[name] for name in order], [int(name) for name in order]
        return scores, rows

    def _search_vectors(self, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        scores, rows = self._vectors.search(vectors, k)
        if (rows < 0).any():
            raise ValueError(
                f"The lists that FAISS looks at hold fewer than {k} documents for a query; ask for "
                "fewer, or leave --faiss out."
            )
        return scores, rows


def _run(
    scores: np.ndarray, rows: np.ndarray, least: float = -np.inf
) -> dict[str, dict[str, float]]:
    """Returns a run whose ids are numbers, of what scores above `least`."""
    return {
        str(i): {str(row): float(score) for score, row in zip(*found, strict=True) if score > least}
        for i, found in enumerate(zip(scores, rows, strict=True))
    }
