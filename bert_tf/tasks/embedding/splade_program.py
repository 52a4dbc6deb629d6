"""The task and program of SPLADE: `Retriever` with sparse vectors, also judged by cost."""

import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.checkpoints.hub import record_of
from bert_tf.checkpoints.run_record import recorded
from bert_tf.checkpoints.sentence_transformers import splade_length
from bert_tf.config import DataConfig, ModelConfig, config_flags
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.metrics.sparse import SparseIndex, SparseVectors
from bert_tf.tasks.embedding import losses
from bert_tf.tasks.embedding.features import Collections, RankingExamples
from bert_tf.tasks.embedding.program import Retriever
from bert_tf.tasks.embedding.splade_model import BertSplade, check_head
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


class SparseRetriever(Retriever):
    """See `Program`."""

    task_class = SpladeTask
    head = "masked_lm"
    default_scale = 1.0  # Dot products need no factor.
    refused_losses = ("cosent", "cosine")
    plot_titles = Retriever.plot_titles | {
        "pieces_per_query": "weighted tokens per query",
        "pieces_per_document": "weighted tokens per document",
    }

    def receive_weights(self, weights: Checkpoint | None) -> None:
        """Checks that there is an MLM head, and sets the maximum length of texts."""
        data = self.configs.data
        longest = self.configs.model.longest_row
        if weights is None:
            # A resumed run.
            stated = int(recorded(self.configs.training.output_dir, "max_seq_length") or 0)
        else:
            check_head(weights)
            stated = splade_length(record_of(weights.source), longest)
        is_given = "max_seq_length" in config_flags.given(DataConfig)
        length = min(data.max_seq_length if is_given or not stated else stated, longest)
        self.embedding = EmbeddingConfig(max_seq_length=length, similarity="dot")
        self.set_length(length)
        logging.info(
            "SPLADE: weights of %s tokens, texts up to %d tokens, compared by dot products.",
            f"{self.configs.model.vocab_size:,}",
            length,
        )

    def write_record(self, folder: pathlib.Path) -> None:
        """Writes nothing: the checkpoint is that of a model with an MLM head."""

    def make_model(self, config: ModelConfig, **options: Any) -> Any:
        """Creates the model."""
        return BertSplade(config, **options)

    def make_loss(self, model: Any) -> losses.Loss:
        """Returns the loss with the regularizers, which make the weights sparse."""
        task: RetrieverConfig = self.configs.task
        loss = losses.make_losses(task, "dot")[self.loss_name]
        return losses.sparse(loss, task.query_regularizer, task.document_regularizer)
