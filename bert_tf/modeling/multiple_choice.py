"""Multiple choice: one score for each way to go on (BERT section 4.4, SWAG)."""

import typing
from typing import Any

import keras
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.modeling.models import FineTuned

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint

ENCODER_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMultipleChoice(FineTuned):
    """The encoder with one score for each choice: the product of a vector and the pooled output.

    A choice is a row of its own, the question as first text and the choice as second one. The
    scores of the choices of one question are the logits of a softmax, so the class is the number
    of the right one: `compile(loss=SparseCategoricalCrossentropy(from_logits=True))`.

    google-research/bert has no program for it. Weights are those of Hugging Face's
    BertForMultipleChoice: a classifier of one label, with a bias that moves all choices alike.

    Args:
      config: shape of the network.
      recompute, unpad: see `BertEncoder`.

    Call arguments:
      inputs: dict of int32 [B, C, T], C choices each: `input_word_ids`, `input_mask`,
        `input_type_ids`; other keys are ignored.
      training: see `BertEncoder`.
      dropout_seed: see `BertEncoder`.

    Returns:
      float32 [B, C], unnormalised.

    Raises:
      ValueError: if the inputs have no axis of choices.
    """

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        kwargs = {"name": "bert_multiple_choice", **kwargs, "num_labels": 1}
        kwargs["use_pooler"] = config.classifier_pooling == "pooler"
        super().__init__(config, head="classifier", **kwargs)

    def call(self, inputs: dict[str, Any], training: bool = False, dropout_seed: Any = None) -> Any:
        shape = inputs["input_word_ids"].shape
        if len(shape) != 3:
            raise ValueError(
                f"input_word_ids have shape {tuple(shape)}, expected [B, C, T]: a row for each "
                "choice of each question."
            )
        _, num_choices, length = ops.shape(inputs["input_word_ids"])
        rows = {name: ops.reshape(inputs[name], (-1, length)) for name in ENCODER_INPUTS}
        if "packed_places" in inputs:  # Of texts already.
            starts = ops.reshape(inputs["packed_starts"], (-1,))
            rows |= {"packed_places": inputs["packed_places"], "packed_starts": starts}
        scores = self.score_texts(rows, training, dropout_seed)  # [B*C, 1]
        return ops.reshape(scores, (-1, num_choices))

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        return {}
