"""The loss of start and end positions, for Keras' `fit` and for the trainer."""

from typing import Any

from bert_tf.network.losses import mask_scores, span_losses
from bert_tf.network.soft_losses import soft_class_losses
from bert_tf.system.type_names import Batch, Tensor
from bert_tf.tasks.question_answering.answers import END, START


def position_losses(outputs: Batch, input_mask: Tensor, positions: Batch) -> dict[str, Tensor]:
    """Returns the cross-entropies of start and end, by name of the output, float32 [B] each.

    Args:
      positions: int32 [B], by name of the output.
    """
    losses = {}
    for name in (START, END):
        losses[name] = span_losses(outputs[name], input_mask, positions[name])
    return losses


def soft_span_losses(
    outputs: Batch, teacher: Tensor, input_mask: Tensor, temperature: float
) -> Any:
    """Returns the mean of the distillation losses of start and end, float32 [B].

    Args:
      teacher: the teacher's scores of starts and ends, float32 [B, T, 2].
      input_mask: int32 [B, T].
    """
    losses = []
    for index, name in enumerate((START, END)):
        # A distribution over the positions of the row; padding is masked.
        scores = mask_scores(outputs[name], input_mask)
        teacher_scores = mask_scores(teacher[..., index], input_mask)
        losses.append(soft_class_losses(scores, teacher_scores, temperature))
    return sum(losses) / 2.0
