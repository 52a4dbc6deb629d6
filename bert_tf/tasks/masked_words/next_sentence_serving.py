"""Serving functions for the next-sentence head."""

import tensorflow as tf

from bert_tf.serving.model import Batch, Outputs, Serving


class NextSentenceServing(Serving):
    """The next-sentence head of a `BertPretrainer`.

    Outputs:
      is_next: float32 [B], the probability that the second text follows the first.
    """

    kind = "next_sentence"

    def from_ids(self, batch: Batch) -> Outputs:
        # No masked word is asked for; the first position of each row stands in for them.
        positions = tf.zeros([tf.shape(batch["input_mask"])[0], 1], tf.int32)
        outputs = self.call_model({**batch, "masked_lm_positions": positions})
        return {"is_next": tf.nn.softmax(outputs["next_sentence_logits"])[:, 0]}  # 0: it is next
