"""Search in stages: retrieval by vectors, words or both, then reranking by a cross-encoder."""

import abc
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.metrics.candidates import check_k
from bert_tf.search.bm25 import Bm25
from bert_tf.search.embedding import embedder_of_index, embedder_of_tokens
from bert_tf.search.faiss_index import KINDS, FaissIndex
from bert_tf.search.fusion import reciprocal_rank_fusion, weighted_fusion
from bert_tf.search.index import Index
from bert_tf.search.manifest import Manifest, check_rescoring, check_texts
from bert_tf.search.reranker import read_reranker
from bert_tf.search.token_vectors import TokenIndex
from bert_tf.system.number_arguments import check_numbers
from bert_tf.text.text_counts import counting_texts

MODES = ("vectors", "words", "hybrid")
FUSIONS = ("ranks", "weights")
# The default weight of vectors in hybrid search. Cosines are scaled from -1, but none comes close
# to it, so they vary less and get the larger weight, 0.8, of Bruch et al. 2023.
WEIGHTS = {"ranks": 0.5, "weights": 0.8}
RERANK_BATCH = 32  # pairs computed at once
HYBRID_K = 100  # fewest documents that each half of a hybrid search retrieves


class Hits(NamedTuple):
    """The documents found for a query, the best first."""

    scores: np.ndarray  # float32 [n]
    rows: np.ndarray  # int64 [n]


class StagedSearch(abc.ABC):
    """A search whose first results a reranker may reorder.

    Args:
      index: the documents.
      reranker: folder of a cross-encoder or of late interaction; "": no reranking.
      rerank_k: how many documents the reranker reads; later ones keep their order.
    """

    has_passages = False  # whether documents are split

    def __init__(self, index: Index | TokenIndex, reranker: str, rerank_k: int) -> None:
        check_numbers(1, rerank_k=rerank_k)
        self.index: Any = index
        self._reranker = read_reranker(reranker) if reranker else None
        self._rerank_k = rerank_k

    @abc.abstractmethod
    def _retrieve(self, queries: Sequence[str], k: int) -> list[Hits]:
        """Returns the results of the first stage."""

    def search(self, queries: Sequence[str], k: int) -> list[Hits]:
        """Returns the k best documents of each query; word search may find fewer.

        Scores are those of the last stage: similarities, BM25 scores, fused scores, or the
        reranker's logits. Documents after those that the reranker reads get its lowest logit minus
        1, 2, ...

        Raises:
          ValueError: if k is above the number of documents, or `queries` is a single string.
        """
        if isinstance(queries, str):
            raise ValueError(f"queries is the string {queries!r:.80}, expected a list of strings.")
        check_k(k, len(self.index))
        if self._reranker is None:
            return self._retrieve(queries, k)
        # The reranker reads `rerank_k` documents even if fewer are returned.
        retrieved = self._retrieve(queries, min(len(self.index), max(k, self._rerank_k)))
        results = []
        for query, hits in zip(queries, retrieved, strict=True):
            scores, rows = self._rerank(query, hits)
            results.append(Hits(scores[:k], rows[:k]))
        return results

    def _rerank(self, query: str, hits: Hits) -> Hits:
        first = hits.rows[: self._rerank_k]
        rest = hits.rows[self._rerank_k :]
        if self._reranker is None or not len(first):
            return hits
        texts = list(map(self.index.text, first))
        with counting_texts("rerank", self._reranker):
            logits = self._reranker.pair_logits([query] * len(texts), texts, RERANK_BATCH)
        order = np.argsort(-logits, kind="stable")
        # Below all logits, so that the scores stay in descending order.
        below = logits.min() - 1 - np.arange(len(rest), dtype=np.float32)
        scores = np.concatenate([logits[order], below])
        rows = np.concatenate([first[order], rest])
        return Hits(scores, rows)


class Searcher(StagedSearch):
    """Searches an index with texts.

    Args:
      folder: the index.
      model: path of the model that embeds queries; "": the path recorded when the index was built.
      mode: `vectors`, `words` or `hybrid`.
      faiss: kind of the FAISS index to use; "": exact search.
      rescore: copies that score the best of int8 and binary vectors again; see `Index.search`.
      fusion: how hybrid search combines both rankings: `ranks` (reciprocal) or `weights`.
      vector_weight: weight of vectors in hybrid search, 0 to 1; words have the rest. None: see
        `WEIGHTS`.
      reranker, rerank_k: see `StagedSearch`.
      max_seq_length: tokens per query; 0: the model's default.

    Raises:
      ValueError: if the index is damaged, belongs to another model or lacks the required texts, or
        an argument is not one of these values.
    """

    def __init__(
        self,
        folder: str,
        *,
        model: str = "",
        mode: str = "vectors",
        faiss: str = "",
        rescore: str = "",
        fusion: str = "ranks",
        vector_weight: float | None = None,
        reranker: str = "",
        rerank_k: int = 100,
        max_seq_length: int = 0,
    ) -> None:
        _check_choice("mode", mode, MODES)
        _check_choice("fusion", fusion, FUSIONS)
        _check_choice("faiss", faiss, ("", *KINDS))
        if vector_weight is None:
            vector_weight = WEIGHTS[fusion]
        if not 0 <= vector_weight <= 1:
            raise ValueError(f"vector_weight is {vector_weight}, expected 0 to 1.")
        manifest = Manifest.read(pathlib.Path(folder))
        if mode != "vectors":
            manifest.check_token_rule(folder)
        # Word search needs no model; "" skips the comparison of fingerprints.
        fingerprint = ""
        if mode != "words":
            self._embedder = embedder_of_index(folder, model, max_seq_length)
            fingerprint = self._embedder.fingerprint
        index = Index(folder, fingerprint)
        if mode != "vectors" or reranker:
            check_texts(folder, manifest.has_texts)
        check_rescoring(manifest, rescore)
        super().__init__(index, reranker, rerank_k)
        self.has_passages = bool(manifest.passages)
        self._rescore = rescore
        self._faiss = FaissIndex(self.index, faiss) if faiss else None
        if mode != "vectors":
            texts = list(map(self.index.text, range(len(self.index))))
            self._words = Bm25(texts, language=self.index.manifest.language)
        self._mode = mode
        self._fusion = fusion
        self._weights = [vector_weight, 1.0 - vector_weight]

    def _retrieve(self, queries: Sequence[str], k: int) -> list[Hits]:
        if self._mode == "words":
            return self._search_words(queries, k)
        vectors = self._embedder.queries(queries)
        if self._mode == "vectors":
            return self._search_vectors(vectors, k)
        # Deeper than k: the best fused document may be further down in both rankings.
        depth = min(len(self.index), max(k, HYBRID_K))
        by_vectors = self._search_vectors(vectors, depth)
        by_words = self._search_words(queries, depth)
        pairs = list(zip(by_vectors, by_words, strict=True))
        if self._fusion == "weights":
            candidates = [np.union1d(first.rows, second.rows) for first, second in pairs]
            fused = self._fuse_by_weights(queries, vectors, candidates)
        else:
            fused = []
            for pair in pairs:
                rankings = [_ranking(*hits) for hits in pair]
                fused.append(reciprocal_rank_fusion(rankings, self._weights))
        return [_best(scores, k) for scores in fused]

    def _fuse_by_weights(
        self, queries: Sequence[str], vectors: np.ndarray, candidates: list[np.ndarray]
    ) -> list[dict[int, float]]:
        """Returns the weighted sum of both scores for the candidates of each query."""
        word_scores = self._words.score(queries, candidates)
        # The lowest possible cosine; dot products have no lower bound.
        lowest = -1.0 if self.index.manifest.similarity == "cosine" else None
        fused = []
        for query, rows, scores in zip(
            self.index.as_queries(vectors), candidates, word_scores, strict=True
        ):
            similarities = self.index.vectors(rows) @ query  # [candidates]
            rankings = [_ranking(similarities, rows), _ranking(scores, rows)]
            fused.append(weighted_fusion(rankings, self._weights, [lowest, 0.0]))
        return fused

    def _search_words(self, queries: Sequence[str], k: int) -> list[Hits]:
        hits = []
        # BM25 is 0 without a common word; such documents only fill up to k.
        for scores, rows in zip(*self._words.search(queries, k), strict=True):
            hits.append(Hits(scores[scores > 0], rows[scores > 0]))
        return hits

    def _search_vectors(self, vectors: np.ndarray, k: int) -> list[Hits]:
        if self._faiss is None:
            scores, rows = self.index.search(vectors, k, rescore_with=self._rescore)
        else:
            scores, rows = self._faiss.search(vectors, k)
        if (rows < 0).any():
            raise ValueError(
                f"The lists that FAISS searches hold fewer than {k} documents for a query; ask for "
                "fewer documents, or leave --faiss out."
            )
        return list(map(Hits, scores, rows))


def _best(scores: dict[int, float], k: int) -> Hits:
    """Returns the k best documents; equal scores are ordered by row."""
    rows = sorted(scores, key=lambda row: (-scores[row], row))[:k]
    return Hits(np.array([scores[row] for row in rows], np.float32), np.array(rows, np.int64))


def _ranking(scores: np.ndarray, rows: np.ndarray) -> dict[int, float]:
    """Returns the scores of documents by their rows."""
    return dict(zip(rows.tolist(), scores.tolist(), strict=True))


def _check_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(filter(None, known))}.")


class TokenSearcher(StagedSearch):
    """Compares each query with all documents of a `TokenIndex` by MaxSim.

    Args:
      path: the file.
      model: path of the model that embeds queries; "": the path recorded when the file was built.
      reranker, rerank_k: see `StagedSearch`.

    Raises:
      ValueError: if the file is damaged, belongs to another model or lacks the texts to rerank.
    """

    def __init__(
        self, path: str, *, model: str = "", reranker: str = "", rerank_k: int = 100
    ) -> None:
        index = TokenIndex.load(path)
        if reranker:
            check_texts(path, bool(index.texts))
        self._embedder, _ = embedder_of_tokens(path, index.origin, model)
        super().__init__(index, reranker, rerank_k)

    def _retrieve(self, queries: Sequence[str], k: int) -> list[Hits]:
        vectors = self._embedder.encode_queries(queries)
        scores, rows = self.index.search(vectors, k, self._embedder.similarity)
        return list(map(Hits, scores, rows))
