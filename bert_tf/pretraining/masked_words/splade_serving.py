"""Serving functions of SPLADE: a masked language model that gives each text a sparse vector."""

from typing import Any

import tensorflow as tf

from bert_tf.tasks.base.serving.model import Batch, Outputs, Serving


class SpladeServing(Serving):
    """Serving functions of a `BertPretrainer` whose scores are weights of the vocabulary.

    Outputs:
      weights: float32 [B, V], log(1 + max(0, the highest score of each token in the text)).

    Raises:
      ValueError: if the network predicts from a query stream, which SPLADE has not.
    """

    kind = "splade"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.model.config.query_vector:
            raise ValueError("splade needs the scores of the tokens themselves; XLNet has none.")

    def from_ids(self, batch: Batch) -> Outputs:
        ids = batch["input_word_ids"]
        positions = tf.zeros_like(ids) + tf.range(tf.shape(ids)[1])  # [B, T]
        outputs = self.call_model({**batch, "masked_lm_positions": positions})
        is_token = tf.expand_dims(tf.cast(batch["input_mask"], tf.bool), 2)  # [B, T, 1]
        # 0 is the lowest result, so that padding never raises a weight.
        scores = tf.where(is_token, outputs["masked_lm_logits"], 0.0)  # [B, T, V]
        return {"weights": tf.math.log1p(tf.maximum(tf.reduce_max(scores, axis=1), 0.0))}
