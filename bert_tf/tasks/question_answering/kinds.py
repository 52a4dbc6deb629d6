"""Registers extractive question answering as a kind of model that can be loaded and exported."""

import typing
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.tasks.base.serving.kind import Kind, has_head

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint
    from bert_tf.config.fine_tuning_config import SquadConfig


def recorded_reading(
    settings: Mapping[str, str], without: Sequence[str] = ()
) -> "SquadConfig | None":
    """Returns the options with which a run split contexts and selected answers, if recorded."""
    from bert_tf.config.fine_tuning_config import SquadConfig

    recorded = {name: value for name, value in settings.items() if name not in without}
    is_recorded = any(map(recorded.get, SquadConfig.names()))
    if is_recorded:
        return SquadConfig.from_texts(recorded)
    return None


def recorded_windows(checkpoint: "Checkpoint", folder: str) -> dict[str, Any]:
    """Returns the recorded options of `QuestionAnsweringServing`."""
    reading = recorded_reading(checkpoint.settings)
    if reading is None:
        return {}
    return {
        "version_2": reading.version_2_with_negative,
        "null_score_diff_threshold": reading.null_score_diff_threshold,
        "doc_stride": reading.doc_stride,
        "max_query_length": reading.max_query_length,
        "n_best_size": reading.n_best_size,
        "max_answer_length": reading.max_answer_length,
    }


QUESTION_ANSWERING = Kind(
    name="question_answering",
    request="question, context",
    head="squad",
    methods=("answer",),
    model="bert_tf.tasks.question_answering.model.BertSpanLabeler",
    serving="bert_tf.tasks.question_answering.serving.QuestionAnsweringServing",
    serving_of_heads={
        "joint_squad": "bert_tf.tasks.question_answering.serving.JointQuestionAnsweringServing"
    },
    is_default=has_head("squad", "joint_squad"),
    recorded=recorded_windows,
    options=("null_score_diff_threshold",),
    inputs=("question", "context"),
    reads_windows=True,
)
