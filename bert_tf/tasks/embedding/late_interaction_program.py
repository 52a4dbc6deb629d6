"""The task and program of late interaction: `Retriever` with a vector for each token."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.checkpoints.token_vectors import MAXSIM, SIDES, TokenVectors
from bert_tf.config import ModelConfig
from bert_tf.config.pooled_layers import DenseStep
from bert_tf.metrics.maxsim import TokenMatrix, maxsim
from bert_tf.system.type_names import Model
from bert_tf.tasks.base.programs.program import Examples
from bert_tf.tasks.embedding import losses
from bert_tf.tasks.embedding.features import RankingExamples
from bert_tf.tasks.embedding.late_interaction_model import BertLateInteraction
from bert_tf.tasks.embedding.program import Retriever
from bert_tf.tasks.embedding.sides import embed_sides
from bert_tf.tasks.embedding.task import EmbeddingTask
from bert_tf.text.tokenization import Tokenizer
from bert_tf.training.cached_step import Embeddings
from bert_tf.training.task import Batch


class LateInteractionTask(EmbeddingTask):
    """Trains and evaluates a `BertLateInteraction`."""

    @property
    def similarity(self) -> str:  # type: ignore[override]
        return self.model.similarity

    def embed(self, batch: Batch, dropout_seed: tf.Tensor) -> Embeddings:
        """Returns the vectors of the queries' tokens, float32 [b, Tq, D], and the documents'.

        Those are [b, M, Td, D]; both are 0 for tokens that do not score.
        """

        def of_side(side: str) -> Callable[[dict[str, Any], Any], Any]:
            return lambda inputs, seed: self.model.token_vectors(inputs, True, seed, side)[0]

        return embed_sides({side: of_side(side) for side in SIDES}, batch, dropout_seed)

    def sizes(self, batch: Batch) -> Batch:
        """Returns the numbers of texts and tokens; see `EmbeddingTask`."""
        sizes = dict(super().sizes(batch))
        tokens = self.model.tokens
        # Queries have the tokens that expand them as well.
        mask = tf.cast(batch["query/input_mask"], tf.int32)  # [B, T]
        num_tokens = tf.reduce_sum(mask, axis=1)
        if tokens.fills_padding or not self.model.bert.unpad:
            num_tokens = tf.fill(tf.shape(num_tokens), tf.shape(mask)[1])
        num_tokens = tf.maximum(num_tokens, tokens.expansion_length)
        sizes["query/before"] = tf.stack([tf.ones_like(num_tokens), num_tokens], axis=1)
        return sizes

    def predictions(self, batch: Batch, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns the vectors of each row's tokens, in half of the memory."""
        return {"vectors": tf.cast(outputs, tf.float16)}

    def pair_similarities(self, pairs: np.ndarray, outputs: Any) -> np.ndarray:
        """Returns the score of the second text of each pair with the first as query."""
        vectors = [_scoring(one) for one in outputs["vectors"]]
        scores = []
        for first, second in pairs:
            scores.append(self._scores([vectors[first]], [vectors[second]])[0, 0])
        return np.array(scores, np.float64)

    def nearest(
        self, examples: RankingExamples, outputs: Any, depth: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the scores and indices of the nearest documents, both [Q, depth]."""
        vectors = outputs["vectors"]
        queries = [_scoring(vectors[row]) for row in examples.query_rows]
        documents = [_scoring(vectors[row]) for row in examples.document_rows]
        scores = self._scores(queries, documents)
        rows = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
        return np.take_along_axis(scores, rows, axis=1), rows

    def _scores(self, queries: list[np.ndarray], documents: list[np.ndarray]) -> np.ndarray:
        return maxsim(queries, TokenMatrix.of(documents), self.similarity == MAXSIM[1])


def _scoring(vectors: np.ndarray) -> np.ndarray:
    """Returns the vectors [t, D] of the tokens that score, of [T, D]."""
    return vectors[vectors.any(axis=-1)]


class LateInteractionRetriever(Retriever):
    """See `Program`."""

    task_class = LateInteractionTask
    default_scale = 1.0  # A score is a sum over tokens, which needs no factor.
    refused_losses = ("cosent", "cosine", "triplet")

    def choose_layers(self, stated: EmbeddingConfig | None) -> EmbeddingConfig:
        """Returns the embedding of the weights, that of a dense embedder with token vectors.

        These are its vectors before the pooling, projected to `token_dimension` numbers.
        """
        task = self.configs.task
        config = self.configs.model
        if stated and stated.tokens:
            return stated
        length = min(self.configs.data.max_seq_length, config.longest_row)
        stated = stated or EmbeddingConfig(max_seq_length=length)
        # Dense layers of several concatenated poolings do not fit a token's vector.
        dense = stated.dense if len(stated.pooling) == 1 else ()
        width = EmbeddingConfig(dense=dense).dimension(config.hidden_size)
        projection = DenseStep(width, task.token_dimension, use_bias=False, activation="linear")
        query_length = min(task.query_length, config.longest_row)
        return dataclasses.replace(
            stated,
            pooling=("mean",),
            dense=(*dense, projection),
            normalize=True,
            include_prompt=True,
            similarity=MAXSIM[0],
            tokens=TokenVectors(query_length=query_length, expansion_length=query_length),
        )

    def read(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> Examples:
        """Tokenizes the texts."""
        self.vocab = tokenizer.vocab
        return super().read(tokenizer, labels)

    def make_model(self, config: ModelConfig, **options: Any) -> Any:
        """Creates the model."""
        return BertLateInteraction(config, self.embedding, self.vocab, **options)

    def make_loss(self, model: Model) -> losses.Loss:
        """Returns the training loss."""
        return losses.make_losses(self.configs.task, model.similarity)[self.loss_name]
