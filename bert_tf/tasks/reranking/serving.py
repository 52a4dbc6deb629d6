"""Serving functions of rerankers: scores and ranks candidate documents in the graph."""

from typing import Any

import tensorflow as tf

from bert_tf.tasks.base.serving.model import Batch, Outputs, Serving

NO_SCORE = -1e9  # score of "": below all others; JSON has no -infinity


class RerankingServing(Serving):
    """Serving functions of a cross-encoder, which reads a query with each of its documents.

    Args:
      activation: `sigmoid` or `identity`: the function from a logit to a score.

    Inputs:
      query: string [B].
      documents: string [B, N]; "" pads the list of a query with fewer documents.

    Outputs:
      scores: float32 [B, N], in the order of the documents; NO_SCORE for "".
      order: int32 [B, N], the indices of the documents, the best first and padding last.

    With ids as inputs, a row is a pair, and `scores` are float32 [B].
    """

    kind = "reranker"
    lists = ("documents",)
    as_tokenizers = True

    def __init__(self, *arguments: Any, activation: str = "sigmoid", **options: Any) -> None:
        super().__init__(*arguments, **{**options, "texts": ("query", "documents")})
        self.activation = activation

    def row_scores(self, batch: Batch) -> Outputs:
        """Returns the logits [B, 1] and scores [B] of pairs, without parts of a large batch."""
        logits = self.call_model(batch)
        return {"logits": logits, "scores": self.activate(logits[:, 0])}

    def from_ids(self, batch: Batch) -> Outputs:
        return {"scores": self.activate(self.call_in_parts(batch, tf.float32)[:, 0])}

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        query, documents = texts
        logits = self.logits(query, documents)
        is_document = documents != ""  # [B, N]
        scores = tf.where(is_document, self.activate(logits), NO_SCORE)
        # By logits: probabilities close to 1 are rounded to equal numbers.
        order = tf.argsort(tf.where(is_document, -logits, float("inf")), axis=1, stable=True)
        return {"scores": scores, "order": order}

    def logits(self, query: tf.Tensor, documents: tf.Tensor) -> tf.Tensor:
        """Returns unnormalised scores, float32 [B, N]; 0 for padding."""
        # The model computes only the R pairs that exist.
        indices = tf.where(documents != "")  # [R, 2]: query, document
        queries = tf.gather(query, indices[:, 0])  # [R]
        batch = self.pack(queries, tf.gather_nd(documents, indices))
        logits = self.call_in_parts(batch, tf.float32)[:, 0]  # [R]
        return tf.scatter_nd(indices, logits, tf.shape(documents, tf.int64))

    def sample_ids(self, *texts: tf.Tensor) -> list[tf.Tensor]:
        query, documents = texts
        return super().sample_ids(query, documents[:, 0])

    def card(self) -> dict[str, Any]:
        return {**super().card(), "lists": list(self.lists), "activation": self.activation}

    def activate(self, logits: tf.Tensor) -> tf.Tensor:
        """Converts logits to scores, float32 of the same shape."""
        if self.activation == "sigmoid":
            return tf.sigmoid(logits)
        return logits
