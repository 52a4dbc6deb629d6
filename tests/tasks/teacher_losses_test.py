"""What tasks learn from a teacher's scores, against Hinton's formula written out."""

import numpy as np
import tensorflow as tf

from bert_tf.config import TeacherConfig
from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.tasks.base.programs.rows_task import TEACHER_LOGITS
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.tagging.task import TaggingTask
from tests.float_bounds import close_to

DRAW = np.random.default_rng(3)
TEACHER = TeacherConfig(teacher="runs/teacher", teacher_weight=3.0, distillation_temperature=2.0)
DATA = None, None, None, [4], 0


def numbers(*shape: int) -> np.ndarray:
    return DRAW.normal(0, 2, shape).astype(np.float32)


def softened(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores.astype(np.float64) / 2.0)
    return powers / powers.sum()


def divergence(teacher: np.ndarray, student: np.ndarray) -> float:
    """Returns T^2 KL(teacher || student) of one row of scores, T = 2."""
    p, q = softened(teacher), softened(student)
    return 4.0 * float(np.sum(p * np.log(p / q)))


def check(task, batch, outputs, losses, of_labels) -> None:
    """Compares with the losses of the counted places; `of_labels` is the loss without a teacher."""
    sums = task.loss_and_metric_sums(batch, outputs)
    assert float(sums["teacher_loss"].total) == close_to(sum(losses))
    assert float(sums["teacher_loss"].weight) == float(sums["loss"].weight) == len(losses)
    total = float(of_labels.total) + 3.0 * sum(losses)
    assert float(sums["loss"].total) == close_to(total)
    task.teacher = TeacherConfig(teacher="x", teacher_weight=0.5, learn_labels=False)
    assert float(task.loss_and_metric_sums(batch, outputs)["loss"].total) == close_to(
        sum(losses) / 2
    )


def test_tags():
    scores, teacher = numbers(2, 4, 3), numbers(2, 4, 3)
    batch = {"tag_ids": tf.constant([[-1, 2, 0, -1], [-1, 1, -1, -1]])}
    task = TaggingTask(*DATA, labels=("a", "b", "c"), teacher=TEACHER)
    of_labels = task.loss_and_metric_sums(batch, tf.constant(scores))["loss"]
    losses = [divergence(teacher[place], scores[place]) for place in ((0, 1), (0, 2), (1, 1))]
    check(task, {**batch, TEACHER_LOGITS: teacher}, tf.constant(scores), losses, of_labels)


def test_answers():
    """Padding has no part in it, neither of the student nor of the teacher."""
    outputs = {"start_logits": numbers(2, 4), "end_logits": numbers(2, 4)}
    teacher, lengths = numbers(2, 4, 2), (3, 4)
    batch = {
        "input_mask": tf.constant([[1, 1, 1, 0], [1, 1, 1, 1]]),
        "start_positions": tf.constant([1, 0]),
        "end_positions": tf.constant([2, 3]),
        "example_weights": tf.ones([2]),
    }
    task = SquadTask(*DATA, config=SquadConfig(), teacher=TEACHER)
    of_labels = task.loss_and_metric_sums(batch, outputs)["loss"]
    losses = [
        sum(
            divergence(teacher[row, :length, side], outputs[name][row, :length]) / 2
            for side, name in enumerate(outputs)
        )
        for row, length in enumerate(lengths)
    ]
    check(task, {**batch, TEACHER_LOGITS: tf.constant(teacher)}, outputs, losses, of_labels)


def test_choices():
    scores, teacher = numbers(3, 4), numbers(3, 4)
    batch = {"label_ids": tf.constant([1, 0, 0]), "example_weights": tf.constant([1.0, 1.0, 0.0])}
    task = MultipleChoiceTask(*DATA, teacher=TEACHER)
    of_labels = task.loss_and_metric_sums(batch, tf.constant(scores))["loss"]
    losses = [divergence(teacher[row], scores[row]) for row in (0, 1)]
    check(task, {**batch, TEACHER_LOGITS: teacher}, tf.constant(scores), losses, of_labels)
