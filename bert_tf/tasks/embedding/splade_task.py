"""The task of sparse embeddings: trained as dense ones, evaluated by retrieval and by cost."""

from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.metrics.sparse import SparseIndex, SparseVectors
from bert_tf.tasks.embedding.features import Collections, RankingExamples
from bert_tf.tasks.embedding.task import EmbeddingTask
from bert_tf.training.task import Batch

MAX_TOKENS = 1024  # evaluations keep the largest weights of each text


class SpladeTask(EmbeddingTask):
    """Trains and evaluates a `BertSplade`."""

    similarity = "dot"

    def predictions(self, batch: Batch, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns the largest weights of each row, their tokens, and the number of weights."""
        # [B, V] for a whole evaluation would not fit in memory.
        most = min(MAX_TOKENS, outputs.shape[-1])
        weights, token_ids = tf.math.top_k(outputs, most)  # [B, most]
        counts = tf.math.count_nonzero(outputs, axis=1, dtype=tf.int32)  # [B]
        return {"weights": weights, "token_ids": token_ids, "count": counts}

    def metrics(self, examples: Any, outputs: Any) -> dict[str, float]:
        """Adds the mean number of tokens with a weight, for queries and for documents."""
        counts = np.array(outputs["count"])
        if cut := int((counts > MAX_TOKENS).sum()):
            logging.warning(
                "%d texts have weights for more than %d tokens, and measures use only the largest; "
                "train longer, or with a larger regularizer.",
                cut,
                MAX_TOKENS,
            )
        sides = {"text": np.arange(len(counts))}
        if isinstance(examples, Collections):
            parts = examples.parts.values()
            sides = {
                "query": np.concatenate([part.query_rows for part in parts]),
                "document": np.concatenate([part.document_rows for part in parts]),
            }
        metrics = super().metrics(examples, outputs)
        for side, rows in sides.items():
            metrics[f"pieces_per_{side}"] = float(counts[rows].mean())
        return metrics

    def pair_similarities(self, pairs: np.ndarray, outputs: Any) -> np.ndarray:
        """Returns the dot product of each pair of rows."""
        vectors = []  # of each row a dict from token to weight
        for token_ids, weights in zip(*_sparse_rows(outputs), strict=True):
            vectors.append(dict(zip(token_ids, weights, strict=True)))
        products = []
        for first, second in pairs:
            other = vectors[second]
            weighted = vectors[first].items()
            products.append(sum(weight * other.get(token, 0.0) for token, weight in weighted))
        return np.array(products, np.float64)

    def nearest(
        self, examples: RankingExamples, outputs: Any, depth: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the scores and indices of the nearest documents, both [Q, depth]."""
        token_ids, weights = _sparse_rows(outputs)

        def vectors(rows: np.ndarray) -> SparseVectors:
            return SparseVectors.from_tokens([(token_ids[row], weights[row]) for row in rows])

        index = SparseIndex(vectors(examples.document_rows))
        return index.search(vectors(examples.query_rows), depth)


def _sparse_rows(outputs: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns the token ids, ascending, and the positive weights of each row."""
    all_token_ids = []
    all_weights = []
    for token_ids, weights in zip(outputs["token_ids"], outputs["weights"], strict=True):
        order = np.argsort(token_ids, kind="stable")
        # If a text has fewer weights than are kept, the rest are zeros.
        order = order[weights[order] > 0]
        all_token_ids.append(token_ids[order])
        all_weights.append(weights[order])
    return all_token_ids, all_weights
