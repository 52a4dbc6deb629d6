"""Serving functions for the encoder without a head."""

from bert_tf.tasks.base.serving.model import Batch, Outputs, Serving


class EncoderServing(Serving):
    """Serves the encoder without a head.

    Outputs:
      sequence_output: float32 [B, T, D].
      pooled_output: float32 [B, D], if the model has a pooler.
      input_word_ids, input_mask: int32 [B, T], the tokens that the vectors belong to.
    """

    kind = "encoder"

    def from_ids(self, batch: Batch) -> Outputs:
        encoded = self.call_model(batch)
        outputs = {"sequence_output": encoded["sequence_output"]}
        if "pooled_output" in encoded:
            outputs["pooled_output"] = encoded["pooled_output"]
        outputs["input_word_ids"] = batch["input_word_ids"]
        outputs["input_mask"] = batch["input_mask"]
        return outputs
