"""Serving functions of the next-sentence head."""

import tensorflow as tf

from bert_tf.tasks.base.serving.model import Batch, Outputs, Serving


class NextSentenceServing(Serving):
    """Serving functions of a `BertPretrainer` with a next-sentence head.

    Outputs:
      is_next: float32 [B], the probability that the second text follows the first.
    """

    kind = "next_sentence"

    def from_ids(self, batch: Batch) -> Outputs:
        # The model needs positions of masked words: the first position of each row is passed.
        positions = tf.zeros([tf.shape(batch["input_mask"])[0], 1], tf.int32)
        outputs = self.call_model({**batch, "masked_lm_positions": positions})
        # Class 0 means that the second text follows.
        return {"is_next": tf.nn.softmax(outputs["next_sentence_logits"])[:, 0]}
