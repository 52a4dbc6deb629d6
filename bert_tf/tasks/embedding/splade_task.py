"""Sparse embeddings: trained as dense ones are, judged by what they find and what they cost."""

from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.tasks.embedding.features import RankingExamples
from bert_tf.tasks.embedding.task import EmbeddingTask
from bert_tf.training.task import Batch
from bert_tf.vectors.sparse import SparseIndex, SparseVectors

MOST_PIECES = 1024  # of a text that are kept in evaluations, the heaviest


class SpladeTask(EmbeddingTask):
    """An `EmbeddingTask` with a `BertSplade`."""

    similarity = "dot"

    def predictions(self, batch: Batch, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns the heaviest pieces of each row, their weights, and how many pieces weigh."""
        most = min(MOST_PIECES, outputs.shape[-1])
        weights, pieces = tf.math.top_k(outputs, most)
        counts = tf.math.count_nonzero(outputs, axis=1, dtype=tf.int32)
        return {"weights": weights, "pieces": pieces, "count": counts}

    def metrics(self, examples: Any, outputs: Any) -> dict[str, float]:
        """Adds how many pieces a text weighs, of queries and documents."""
        counts = np.array(outputs["count"])
        if cut := int((counts > MOST_PIECES).sum()):
            logging.warning(
                "%d texts weigh more than %d pieces: measures look at the heaviest alone; train "
                "longer, or with a larger regularizer.",
                *(cut, MOST_PIECES),
            )
        sides = {"text": np.arange(len(counts))}
        if isinstance(examples, RankingExamples):
            sides = {"query": examples.query_rows, "document": examples.document_rows}
        found = super().metrics(examples, outputs)
        costs = {f"pieces_per_{side}": float(counts[rows].mean()) for side, rows in sides.items()}
        return {**found, **costs}

    def pair_similarities(self, pairs: np.ndarray, outputs: Any) -> np.ndarray:
        """Returns the dot product of each pair of rows."""
        vectors = [dict(zip(*row, strict=True)) for row in zip(*_columns(outputs), strict=True)]
        found = [
            sum(
                weight * vectors[second].get(piece, 0.0) for piece, weight in vectors[first].items()
            )
            for first, second in pairs
        ]
        return np.array(found, np.float64)

    def nearest(
        self, examples: RankingExamples, outputs: Any, depth: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores and documents, both [Q, depth]."""
        pieces, weights = _columns(outputs)
        queries, documents = (
            SparseVectors.from_tokens([(pieces[row], weights[row]) for row in rows])
            for rows in (examples.query_rows, examples.document_rows)
        )
        return SparseIndex(documents).search(queries, depth)


def _columns(outputs: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns pieces, ascending, and weights above 0 of each row."""
    pieces, weights = [], []
    for row, values in zip(outputs["pieces"], outputs["weights"], strict=True):
        order = np.argsort(row, kind="stable")
        order = order[values[order] > 0]
        pieces.append(row[order])
        weights.append(values[order])
    return pieces, weights
