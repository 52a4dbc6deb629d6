"""Searches a file of token vectors with texts, by late interaction."""

from collections.abc import Sequence

from bert_tf.search.embedding import read_embedder
from bert_tf.search.manifest import check_fingerprint, check_texts, model_of_index
from bert_tf.search.searcher import Hits, StagedSearch
from bert_tf.search.token_vectors import TokenIndex
from bert_tf.tasks.embedding.late_interaction_model import BertLateInteraction


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
        source = model_of_index(path, model or index.source)
        self._embedder, fingerprint = read_embedder(BertLateInteraction, source)
        if index.model:
            check_fingerprint(path, index.model, index.source, fingerprint)
        super().__init__(index, reranker, rerank_k)

    def _retrieve(self, queries: Sequence[str], k: int) -> list[Hits]:
        vectors = self._embedder.encode_queries(queries)
        scores, rows = self.index.search(vectors, k, self._embedder.similarity)
        return list(map(Hits, scores, rows))
