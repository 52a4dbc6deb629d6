"""The joint head for questions: the end of an answer given its start, and a class for no answer.

    sequence [B, T, D] -> dense -> start_logits [B, T]
    start's vector and each token's [B, K, T, 2D] -> dense 512, GELU -> dense -> ends [B, K, T]
    [CLS]'s vector and the expected start's [B, 2D] -> dense 512, GELU -> dense -> no answer [B]

In training there is one start, the marked one. Otherwise there are the K best ones, and of each the
K best ends.

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
from bert_tf.type_names import Batch, Shape, Tensor

START, END, NO_ANSWER = "start_logits", "end_logits", "no_answer_logit"
# The original's names: the K best starts [B, K], and the K best ends of each [B, K, K].
BEAM = ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index")
NO_ANSWER_WEIGHT = 0.5  # The original's answerable_weight.
MASKED = 1000.0  # Subtracted where no answer may begin or end; the original's.
NO_SCORE = -1e4  # Of positions in a beam that is wider than the row.


def answer_mask(inputs: dict[str, Any]) -> Any:
    """Returns 1 for [CLS] and the tokens of the second text, its [SEP] included: float32 [B, T]."""
    mask = ops.cast(inputs["input_mask"], "float32") * ops.cast(inputs["input_type_ids"], "float32")
    return mask + ops.one_hot(0, ops.shape(mask)[1], dtype="float32")


def best(logits: Tensor, mask: Tensor, count: int) -> tuple[Any, Any]:
    """Returns the highest log-probabilities and their positions, of equal ones the first.

    Args:
      logits: float32 [..., T].
      mask: float32 [..., T]; where it is 0 the score is `NO_SCORE`, so that no rounding decides
        which of them fill a beam.
      count: K. Where T is less, `NO_SCORE` at positions from T on fills the rest.

    Returns:
      float32 and int32 [..., K].
    """
    scores = tf.where(mask > 0, ops.log_softmax(logits, axis=-1), NO_SCORE)
    missing = tf.maximum(count - tf.shape(scores)[-1], 0)
    paddings = tf.concat([tf.zeros([scores.shape.rank - 1, 2], tf.int32), [[0, missing]]], 0)
    return tuple(tf.math.top_k(tf.pad(scores, paddings, constant_values=NO_SCORE), count))


@keras.saving.register_keras_serializable(package="bert_tf")
class JointSpanHead(ConfiguredLayer):
    """Scores starts, and ends given a start.

    Args:
      config: shape of the network.

    Call arguments:
      inputs: float [B, T, D].
      mask: float32 [B, T], see `answer_mask`.
      start_positions: int32 [B], the marked starts; None if they are unknown.
      beam_size: K, starts to go on from and ends of each; 0: none.

    Returns:
      dict: `start_logits` float32 [B, T]; with starts `end_logits` float32 [B, T]; with a beam
      `start_top_log_probs` float32 [B, K], `start_top_index` int32 [B, K], `end_top_log_probs`
      float32 [B, K, K], `end_top_index` int32 [B, K, K].

    Differs from the original in the order of sums alone: the product with the two vectors side by
    side is that of each with its half of the kernel, so that no [B, K, T, 2D] is made.
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
        hidden = (mask - 1.0) * MASKED  # [B, T]
        starts = ops.cast(self.dense(inputs), "float32")[..., 0] + hidden
        outputs = {START: starts}
        if start_positions is not None:
            ends = self._score_ends(inputs, start_positions[:, None])
            outputs[END] = ends[:, 0] + hidden
        if beam_size:
            scores, positions = best(starts, mask, beam_size)
            # A start beyond the row, which is never an answer, has a vector of zeros.
            ends = self._score_ends(inputs, positions) + hidden[:, None]
            may_follow = tf.cast(scores > NO_SCORE, tf.float32)[..., None] * mask[:, None]
            found = best(ends, may_follow, beam_size)
            outputs |= dict(zip(BEAM, (scores, positions, *found), strict=True))
        return outputs

    def _score_ends(self, inputs: Tensor, starts: Tensor) -> Any:
        """Returns scores of all tokens as ends, float32 [B, K, T], given starts, int32 [B, K]."""
        kernel = ops.cast(self.qa_hidden.kernel, inputs.dtype)
        width = self.config.hidden_size
        of_starts = ops.matmul(gather_positions(inputs, starts), kernel[:width])  # [B, K, S]
        of_ends = ops.matmul(inputs, kernel[width:]) + ops.cast(self.qa_hidden.bias, inputs.dtype)
        joined = gelu_exact(of_starts[:, :, None] + of_ends[:, None])  # [B, K, T, S]
        return ops.cast(self.dense_1(joined), "float32")[..., 0]


@keras.saving.register_keras_serializable(package="bert_tf")
class AnswerableHead(ConfiguredLayer):
    """Scores that a question has no answer in the text.

    Args:
      config: shape of the network.

    Call arguments:
      inputs: float [B, T, D].
      start_logits: float32 [B, T], masked.

    Returns:
      float32 [B], above 0 where no answer is likelier.
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
        shares = ops.cast(ops.softmax(start_logits, axis=-1), inputs.dtype)
        start = ops.matmul(shares[:, None], inputs)[:, 0]  # [B, D]
        hidden = self.dense(ops.concatenate([inputs[:, 0], start], axis=-1))
        return ops.cast(self.dense_1(hidden), "float32")[..., 0]


def _hidden_layer(name: str, dtype: Any) -> keras.layers.Dense:
    # Whatever the encoder computes, the original's heads have GELU with the error function, and
    # their initial weights are those of tf.layers.dense: Keras' own.
    return keras.layers.Dense(JOINT_WIDTH, activation=gelu_exact, name=name, dtype=dtype)


def joint_losses(
    outputs: Batch,
    start_positions: Tensor,
    end_positions: Tensor,
    is_impossible: Tensor | None = None,
) -> Any:
    """Returns each row's loss, float32 [B].

    It is the mean of the cross-entropies of start and end and, if the outputs have a score for no
    answer, `NO_ANSWER_WEIGHT` times its binary cross-entropy.

    Args:
      outputs: of the model, with `end_logits`.
      start_positions, end_positions: int32 [B], 0 for [CLS].
      is_impossible: float32 [B], 1 if the question has no answer. A window without the answer to a
        question that has one counts as 0, as in the original, though its positions are 0.
    """
    start = class_losses(outputs[START], start_positions)
    losses = (start + class_losses(outputs[END], end_positions)) / 2.0
    if NO_ANSWER in outputs:
        logits = outputs[NO_ANSWER]
        cross_entropy = ops.softplus(logits) - logits * ops.cast(is_impossible, "float32")
        losses += NO_ANSWER_WEIGHT * cross_entropy
    return losses
