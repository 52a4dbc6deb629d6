"""Search in stages: vectors, words or both find documents, a cross-encoder orders the best anew."""

import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.search.bm25 import Bm25
from bert_tf.search.embedding import embedder_of_index
from bert_tf.search.faiss_index import KINDS, FaissIndex
from bert_tf.search.fusion import reciprocal_rank_fusion, weighted_fusion
from bert_tf.search.index import Index
from bert_tf.search.manifest import Manifest
from bert_tf.search.reranker import Reranker

MODES, FUSIONS = ("vectors", "words", "hybrid"), ("ranks", "weights")
# Of vectors in hybrid search. Cosines are scaled from -1, which none of them comes near, so their
# share is larger; 0.8 is that of Bruch et al. 2023.
WEIGHTS = {"ranks": 0.5, "weights": 0.8}
HYBRID_K = 100  # documents that each part of a hybrid search finds, if fewer are asked for


class Found(NamedTuple):
    """The documents found for a query, the best first."""

    scores: np.ndarray  # float32 [n]
    rows: np.ndarray  # int64 [n]


class Searcher:
    """Searches an index with texts.

    Args:
      folder: the index.
      model: that embeds queries; "": the one that the index was made with, where it lay then.
      mode: `vectors`, `words` or `hybrid`.
      faiss: kind of the FAISS index to use; "": exact search.
      fusion: `ranks` (reciprocal) or `weights`, how hybrid joins both.
      vector_weight: weight of vectors in hybrid, 0 to 1; words have the rest. None: see `WEIGHTS`.
      reranker: folder of a cross-encoder; "": none.
      rerank_k: how many documents it reads; those behind them keep their order.
      max_seq_length: pieces of a query; 0: what the model says.

    Raises:
      ValueError: if the index is of another model or damaged, or lacks the texts that are needed;
        or an argument is none of these.
    """

    def __init__(
        self,
        folder: str,
        *,
        model: str = "",
        mode: str = "vectors",
        faiss: str = "",
        fusion: str = "ranks",
        vector_weight: float | None = None,
        reranker: str = "",
        rerank_k: int = 100,
        max_seq_length: int = 0,
    ) -> None:
        given = {"mode": (mode, MODES), "fusion": (fusion, FUSIONS), "faiss": (faiss, ("", *KINDS))}
        for name, (value, known) in given.items():
            if value not in known:
                raise ValueError(f"{name} is {value!r}, expected one of {', '.join(known)}.")
        if vector_weight is None:
            vector_weight = WEIGHTS[fusion]
        if not 0 <= vector_weight <= 1 or rerank_k < 1:
            raise ValueError(
                f"vector_weight is {vector_weight} and rerank_k {rerank_k}; expected 0 to 1, and 1 "
                "or more."
            )
        manifest = Manifest.read(pathlib.Path(folder))
        fingerprint = ""
        if mode != "words":
            self._embedder = embedder_of_index(folder, model, max_seq_length)
            fingerprint = self._embedder.fingerprint
        self.index = Index(folder, fingerprint)
        if (mode != "vectors" or reranker) and not manifest.has_texts:
            raise ValueError(
                f"{folder} keeps no texts, which words and rerankers read; build it with texts."
            )
        self._vectors = FaissIndex(self.index, faiss) if faiss else self.index
        if mode != "vectors":
            texts = [self.index.text(row) for row in range(len(self.index))]
            self._words = Bm25(texts, token_rule=manifest.token_rule)
        self._reranker = Reranker.from_pretrained(reranker) if reranker else None
        self._mode, self._rerank_k = mode, rerank_k
        self._fusion = fusion
        self._weights = [vector_weight, 1.0 - vector_weight]

    def search(self, queries: Sequence[str], k: int) -> list[Found]:
        """Returns the k best documents of each query; fewer where fewer share a word with it.

        Scores are those of the last stage: similarities, BM25's, fused ones, or the reranker's
        logits. Documents behind those that the reranker reads have its lowest logit less 1, 2, ...

        Raises:
          ValueError: k above the number of documents, or a single string.
        """
        if isinstance(queries, str):
            raise ValueError(f"queries is the string {queries!r:.80}, expected a list of them.")
        self.index.check_k(k)
        if self._reranker is None:
            return self._find(queries, k)
        found = self._find(queries, min(len(self.index), max(k, self._rerank_k)))
        found = [self._rerank(*one) for one in zip(queries, found, strict=True)]
        return [Found(scores[:k], rows[:k]) for scores, rows in found]

    def _rerank(self, query: str, found: Found) -> Found:
        first, rest = found.rows[: self._rerank_k], found.rows[self._rerank_k :]
        if self._reranker is None or not len(first):
            return found
        logits = self._reranker.logits([(query, self.index.text(row)) for row in first])
        order = np.argsort(-logits, kind="stable")
        below = logits.min() - 1 - np.arange(len(rest), dtype=np.float32)
        return Found(np.concatenate([logits[order], below]), np.concatenate([first[order], rest]))

    def _find(self, queries: Sequence[str], k: int) -> list[Found]:
        """Returns what the first stage finds."""
        if self._mode == "words":
            pairs = zip(*self._words.search(queries, k), strict=True)
            return [Found(scores[scores > 0], rows[scores > 0]) for scores, rows in pairs]
        vectors = self._embedder.queries(queries)
        if self._mode == "vectors":
            return [Found(*pair) for pair in zip(*self._search_vectors(vectors, k), strict=True)]
        wanted = min(len(self.index), max(k, HYBRID_K))
        by_vectors = self._search_vectors(vectors, wanted)
        by_words = self._words.search(queries, wanted)
        if self._fusion == "weights":
            joined = self._join_scores(queries, vectors, by_vectors[1], by_words)
        else:
            runs = [_run(*by_vectors), _run(*by_words, least=0.0)]
            joined = reciprocal_rank_fusion(runs, self._weights)
        return [_best(joined[str(i)], k) for i in range(len(queries))]

    def _join_scores(
        self,
        queries: Sequence[str],
        vectors: np.ndarray,
        vector_rows: np.ndarray,
        by_words: tuple[np.ndarray, np.ndarray],
    ) -> dict[str, dict[str, float]]:
        """Joins by weighted scores; every document that either found has both scores."""
        candidates = [
            np.union1d(rows, word_rows[scores > 0])
            for rows, scores, word_rows in zip(vector_rows, *by_words, strict=True)
        ]
        prepared = self.index.as_queries(vectors)
        similarities = [
            self.index.vectors(rows) @ query
            for query, rows in zip(prepared, candidates, strict=True)
        ]
        word_scores = self._words.score(queries, candidates)
        runs = [_run(similarities, candidates), _run(word_scores, candidates)]
        lowest = -1.0 if self.index.manifest.similarity == "cosine" else None
        return weighted_fusion(runs, self._weights, [lowest, 0.0])

    def _search_vectors(self, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        scores, rows = self._vectors.search(vectors, k)
        if (rows < 0).any():
            raise ValueError(
                f"The lists that FAISS looks at hold fewer than {k} documents for a query; ask for "
                "fewer, or leave --faiss out."
            )
        return scores, rows


def _best(scores: dict[str, float], k: int) -> Found:
    """Returns the k best of documents by number; of equal scores the lower row first."""
    order = sorted(scores, key=lambda name: (-scores[name], int(name)))[:k]
    rows = np.array([int(name) for name in order], np.int64)
    return Found(np.array([scores[name] for name in order], np.float32), rows)


def _run(
    scores: Iterable[np.ndarray], rows: Iterable[np.ndarray], least: float = -np.inf
) -> dict[str, dict[str, float]]:
    """Returns a run whose ids are numbers, of what scores above `least`."""
    return {
        str(i): {str(row): float(score) for score, row in zip(*found, strict=True) if score > least}
        for i, found in enumerate(zip(scores, rows, strict=True))
    }
