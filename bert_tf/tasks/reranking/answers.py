"""The answers of a reranker: scores of pairs, and documents in order. Loads no TensorFlow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.system.type_names import Column, Texts
from bert_tf.tasks.base.examples.columns import is_empty, read_pairs, read_texts
from bert_tf.text.text_counts import counts_texts


class RerankerAnswers:
    """`score` and `rank`, for anything that computes the logits of pairs.

    A subclass defines `pair_logits`, or the methods that call it: `score_pairs`, `rank_texts`.
    """

    activation: str  # `sigmoid` or `identity`: the function from a logit to a score

    def pair_logits(
        self, queries: Sequence[str], documents: Sequence[str], batch_size: int
    ) -> np.ndarray:
        """Returns the unnormalised score of each query with its document, float32 [N]."""
        raise NotImplementedError

    @counts_texts
    def score(self, pairs: Texts, batch_size: int = 32) -> list[float]:
        """Scores pairs of a query and a document.

        Args:
          pairs: a list of tuples (query, document), or a tuple of two columns.
          batch_size: pairs per batch.

        Returns:
          A score for each pair: the probability that the document is relevant if the model was
          trained with bce, otherwise the unnormalised score.

        Raises:
          ValueError: if these are not pairs of texts.
        """
        return self.score_pairs(*read_query_pairs(pairs), batch_size)

    def score_pairs(
        self, queries: Sequence[str], documents: Sequence[str], batch_size: int
    ) -> list[float]:
        """Returns the scores of `score`."""
        return activate(self.pair_logits(queries, documents, batch_size), self.activation).tolist()

    @counts_texts
    def rank(self, query: str, documents: Column, batch_size: int = 32) -> list[dict[str, Any]]:
        """Ranks documents for a query.

        Args:
          query: a text.
          documents: texts.
          batch_size: documents per batch.

        Returns:
          A dict for each document, the best first: {"index": 2, "score": 0.98, "document": "..."},
          the index being that in `documents`, and the score that of `score`. Documents with equal
          scores keep their order.

        Raises:
          ValueError: if the query is not a text, or the documents are not a list of texts.
        """
        texts = read_candidates(query, documents)
        order, scores = self.rank_texts(query, texts, batch_size)
        answers = []
        for index in order:
            score = float(scores[index])
            answers.append({"index": int(index), "score": score, "document": texts[index]})
        return answers

    def rank_texts(
        self, query: str, texts: Sequence[str], batch_size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the indices of N documents, the best first, and their scores, float [N]."""
        logits = self.pair_logits([query] * len(texts), texts, batch_size)
        # By logits: probabilities close to 1 are rounded to equal numbers.
        return np.argsort(-logits, kind="stable"), activate(logits, self.activation)


def activate(logits: np.ndarray, activation: str) -> np.ndarray:
    """Converts logits to scores, float32 [N]."""
    if activation == "sigmoid":
        return 1 / (1 + np.exp(-logits))
    return logits


def read_query_pairs(pairs: Texts) -> tuple[list[str], list[str]]:
    """Returns the queries and the documents of pairs."""
    if is_empty(pairs):
        return [], []
    queries, documents = read_pairs(pairs)
    if documents is None:
        raise ValueError("pairs contains single texts; expected tuples (query, document).")
    return queries, documents


def read_candidates(query: object, documents: Column) -> list[str]:
    """Returns the documents of a query."""
    if not isinstance(query, str):
        raise ValueError(f"query is {query!r:.80}, expected a text.")
    # `read_texts` rejects an empty column, but a query may have no candidates.
    if is_empty(documents):
        return []
    return read_texts(documents, "documents")
