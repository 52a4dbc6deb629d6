"""Serving functions for the encoder without a head."""

from bert_tf.serving.model import Batch, Outputs, Serving


class EncoderServing(Serving):
    """The encoder alone.

    Outputs:
      sequence_output: float32 [B, T, D].
      pooled_output: float32 [B, D], if the model has a pooler.
      input_word_ids, input_mask: int32 [B, T], the pieces that the vectors are of.
    """

    kind = "encoder"

    def from_ids(self, batch: Batch) -> Outputs:
        encoded = self.call_model(batch)
        kept = [name for name in ("sequence_output", "pooled_output") if name in encoded]
        pieces = {name: batch[name] for name in ("input_word_ids", "input_mask")}
        return {**{name: encoded[name] for name in kept}, **pieces}
