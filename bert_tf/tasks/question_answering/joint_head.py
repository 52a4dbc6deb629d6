"""The joint head for questions: scores of ends given the start, and a class for no answer.

    sequence [B, T, D] -> dense -> start_logits [B, T]
    vectors of a start and of each token [B, K, T, 2D] -> dense 512, GELU -> dense -> ends [B, K, T]
    vectors of [CLS] and of the expected start [B, 2D] -> dense 512, GELU -> dense -> no answer [B]

In training there is one start, the annotated one. Otherwise there are the K best starts, and the K
best ends of each.

Reference: google-research/electra, finetune/qa/qa_tasks.py, get_prediction_module.
"""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from bert_tf.checkpoints.checkpoint import JOINT_WIDTH
from bert_tf.config import ModelConfig
from bert_tf.network.activations import gelu_exact
from bert_tf.network.configured import ConfiguredLayer
from bert_tf.network.heads import gather_positions
from bert_tf.network.losses import class_losses
from bert_tf.system.type_names import Batch, Shape, Tensor

START = "start_logits"
END = "end_logits"
NO_ANSWER = "no_answer_logit"
# The original's names: the K best starts [B, K], and the K best ends of each [B, K, K].
BEAM = START_SCORES, STARTS, END_SCORES, ENDS = (
    "start_top_log_probs",
    "start_top_index",
    "end_top_log_probs",
    "end_top_index",
)
NO_ANSWER_WEIGHT = 0.5  # the original's answerable_weight
MASKED = 1000.0  # subtracted at positions outside the context, as in the original
NO_SCORE = -1e4  # score of positions in a beam that is wider than the row


def answer_mask(inputs: dict[str, Any]) -> Any:
    """Returns 1 for [CLS] and the tokens of the second text with its [SEP], float32 [B, T]."""
    mask = ops.cast(inputs["input_mask"], "float32") * ops.cast(inputs["input_type_ids"], "float32")
    return mask + ops.one_hot(0, ops.shape(mask)[1], dtype="float32")


def best(logits: Tensor, mask: Tensor, count: int) -> tuple[Any, Any]:
    """Returns the K highest log-probabilities and their positions; of equal ones, the first.

    Positions whose mask is 0 get the score `NO_SCORE`, so that it does not depend on rounding which
    of them fill a beam. If T is less than K, positions from T on do.

    Args:
      logits, mask: float32 [..., T].
    """
    scores = tf.where(mask > 0, ops.log_softmax(logits, axis=-1), NO_SCORE)
    missing = tf.maximum(count - tf.shape(scores)[-1], 0)
    # Only the last axis is padded, at its end, so that positions stay valid.
    paddings = tf.concat([tf.zeros([scores.shape.rank - 1, 2], tf.int32), [[0, missing]]], 0)
    return tuple(tf.math.top_k(tf.pad(scores, paddings, constant_values=NO_SCORE), count))


@keras.saving.register_keras_serializable(package="bert_tf")
class JointSpanHead(ConfiguredLayer):
    """Scores starts, and ends given a start.

    Call arguments:
      inputs: float [B, T, D].
      mask: float32 [B, T], see `answer_mask`.
      start_positions: int32 [B], the annotated starts; None if they are unknown.
      beam_size: the number K of starts, and of ends of each start; 0: no beam.

    Returns:
      dict: `start_logits` float32 [B, T]; with start_positions `end_logits` float32 [B, T]; with a
      beam `start_top_log_probs` float32 [B, K], `start_top_index` int32 [B, K],
      `end_top_log_probs` float32 [B, K, K], `end_top_index` int32 [B, K, K].

    Differs from the original only in the order of sums: instead of concatenating two vectors, each
    is multiplied by its half of the kernel, so that no tensor [B, K, T, 2D] is needed.
    """

    def __init__(self, config: ModelConfig | dict[str, Any], **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.autocast = False  # Scores and masks stay float32.
        self.dense = keras.layers.Dense(1, name="dense", dtype=self.dtype_policy)
        self.qa_hidden = _hidden_layer("qa_hidden", self.dtype_policy)
        self.dense_1 = keras.layers.Dense(1, name="dense_1", dtype=self.dtype_policy)

    def build(self, input_shape: Shape | None = None) -> None:
        width = self.config.hidden_size
        self.dense.build((None, width))
        self.qa_hidden.build((None, 2 * width))
        self.dense_1.build((None, JOINT_WIDTH))

    def call(
        self,
        inputs: Tensor,
        mask: Tensor,
        start_positions: Tensor | None = None,
        beam_size: int = 0,
    ) -> dict[str, Any]:
        bias = (mask - 1.0) * MASKED  # [B, T], 0 where an answer may begin or end
        start_logits = ops.cast(self.dense(inputs), "float32")[..., 0] + bias
        outputs = {START: start_logits}
        if start_positions is not None:
            end_logits = self._score_ends(inputs, start_positions[:, None])  # [B, 1, T]
            outputs[END] = end_logits[:, 0] + bias
        if beam_size:
            start_scores, starts = best(start_logits, mask, beam_size)  # [B, K]
            # A start beyond the row, which is never an answer, has a vector of zeros.
            end_logits = self._score_ends(inputs, starts) + bias[:, None]  # [B, K, T]
            is_start = tf.cast(start_scores > NO_SCORE, tf.float32)  # [B, K]
            end_mask = is_start[..., None] * mask[:, None]  # [B, K, T]
            end_scores, ends = best(end_logits, end_mask, beam_size)  # [B, K, K]
            outputs |= dict(zip(BEAM, (start_scores, starts, end_scores, ends), strict=True))
        return outputs

    def _score_ends(self, inputs: Tensor, starts: Tensor) -> Any:
        """Returns scores of all tokens as ends, float32 [B, K, T], given starts, int32 [B, K]."""
        # The first half of the kernel [2D, 512] is for the start, the second for the end.
        kernel = ops.cast(self.qa_hidden.kernel, inputs.dtype)
        bias = ops.cast(self.qa_hidden.bias, inputs.dtype)
        width = self.config.hidden_size
        start_part = ops.matmul(gather_positions(inputs, starts), kernel[:width])  # [B, K, 512]
        end_part = ops.matmul(inputs, kernel[width:]) + bias  # [B, T, 512]
        hidden = gelu_exact(start_part[:, :, None] + end_part[:, None])  # [B, K, T, 512]
        return ops.cast(self.dense_1(hidden), "float32")[..., 0]


@keras.saving.register_keras_serializable(package="bert_tf")
class AnswerableHead(ConfiguredLayer):
    """Scores that a question has no answer in the text.

    Call arguments:
      inputs: float [B, T, D].
      start_logits: float32 [B, T], masked.

    Returns:
      float32 [B], positive if no answer is likelier than an answer.
    """

    def __init__(self, config: ModelConfig | dict[str, Any], **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.autocast = False  # Scores and masks stay float32.
        self.dense = _hidden_layer("dense", self.dtype_policy)
        self.dense_1 = keras.layers.Dense(1, name="dense_1", dtype=self.dtype_policy)

    def build(self, input_shape: Shape | None = None) -> None:
        self.dense.build((None, 2 * self.config.hidden_size))
        self.dense_1.build((None, JOINT_WIDTH))

    def call(self, inputs: Tensor, start_logits: Tensor) -> Any:
        # The expected start: the mean of the tokens' vectors, weighted by their probabilities.
        probabilities = ops.cast(ops.softmax(start_logits, axis=-1), inputs.dtype)  # [B, T]
        start = ops.matmul(probabilities[:, None], inputs)[:, 0]  # [B, D]
        hidden = self.dense(ops.concatenate([inputs[:, 0], start], axis=-1))
        return ops.cast(self.dense_1(hidden), "float32")[..., 0]


def _hidden_layer(name: str, dtype: Any) -> keras.layers.Dense:
    # Independent of the encoder's settings, the original's heads use GELU with the error function,
    # and the initial weights of tf.layers.dense, which are Keras' defaults.
    return keras.layers.Dense(JOINT_WIDTH, activation=gelu_exact, name=name, dtype=dtype)


def joint_losses(
    outputs: Batch,
    start_positions: Tensor,
    end_positions: Tensor,
    is_impossible: Tensor | None = None,
) -> Any:
    """Returns the loss of each row, float32 [B].

    It is the mean of the cross-entropies of start and end and, if the outputs have a score for no
    answer, plus `NO_ANSWER_WEIGHT` times its binary cross-entropy.

    Args:
      outputs: the model's outputs, with `end_logits`.
      start_positions, end_positions: int32 [B], 0 for [CLS].
      is_impossible: float32 [B], 1 if the question has no answer. As in the original, it is 0 for a
        window that does not contain the answer to an answerable question, whose positions are 0.
    """
    start = class_losses(outputs[START], start_positions)
    losses = (start + class_losses(outputs[END], end_positions)) / 2.0
    if NO_ANSWER in outputs:
        logits = outputs[NO_ANSWER]
        cross_entropy = ops.softplus(logits) - logits * ops.cast(is_impossible, "float32")
        losses += NO_ANSWER_WEIGHT * cross_entropy
    return losses
