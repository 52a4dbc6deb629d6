"""Serving functions of late interaction, which return a vector for each token of a text."""

from typing import Any

import tensorflow as tf

from bert_tf.checkpoints.token_vectors import SIDES
from bert_tf.tasks.base.serving.model import Batch, Outputs
from bert_tf.tasks.embedding.serving import EmbeddingServing

QUERY, DOCUMENT = SIDES


class LateInteractionServing(EmbeddingServing):
    """Serving functions of a `BertLateInteraction`, for the texts of one side.

    Args:
      arguments, options: see `EmbeddingServing`.
      side: query or document.

    Outputs:
      vectors: float32 [B, T, D], 0 for tokens that do not score.
      scored: int32 [B, T], 1 for tokens that score.
    """

    kind = "late_interaction"

    def __init__(self, *arguments: Any, side: str = DOCUMENT, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.lower:
            raise ValueError(
                "The model lower-cases texts between special tokens, which a graph cannot do; use "
                "it by bert_tf.load."
            )
        self.side = side
        self.similarity = self.model.similarity
        if side == QUERY:
            self.max_seq_length = self.model.embedding.length(QUERY)

    def card(self) -> dict[str, Any]:
        """Adds the side of the texts, and how vectors are compared."""
        return {**super().card(), "side": self.side, "similarity": self.similarity}

    def from_ids(self, batch: Batch) -> Outputs:
        if self.side == QUERY:
            size = tf.shape(batch["input_mask"])[0]
            batch = {**batch, "is_query": tf.ones([size], tf.int32)}
        vectors = self.call_model(batch)  # [B, T, D]
        scored = tf.reduce_any(vectors != 0.0, axis=-1)
        return {"vectors": vectors, "scored": tf.cast(scored, tf.int32)}
