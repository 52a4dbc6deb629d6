"""The kind of models that answer questions with spans of a context."""

import typing
from typing import Any

from bert_tf.serving.kind import Kind

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint

NUMBERS = ("doc_stride", "max_query_length", "n_best_size", "max_answer_length")


def finds_spans(checkpoint: "Checkpoint", folder: str) -> bool:
    """Returns whether a checkpoint has the plain or the joint head of spans."""
    return "squad" in checkpoint.heads or "joint_squad" in checkpoint.heads


def recorded_windows(checkpoint: "Checkpoint", folder: str) -> dict[str, Any]:
    """Returns how contexts are cut into windows and when a question has no answer."""
    settings = checkpoint.settings
    options: dict[str, Any] = {}
    for name in NUMBERS:
        if value := settings.get(name):
            options[name] = int(value)
    options["version_2"] = settings.get("version_2_with_negative") == "true"
    threshold = settings.get("null_score_diff_threshold")
    options["null_score_diff_threshold"] = float(threshold or 0.0)
    return options


QUESTION_ANSWERING = Kind(
    name="question_answering",
    request="question, context",
    head="squad",
    methods=("answer",),
    model="bert_tf.tasks.question_answering.model.BertSpanLabeler",
    serving="bert_tf.tasks.question_answering.serving.QuestionAnsweringServing",
    is_default=finds_spans,
    recorded=recorded_windows,
    options=("null_score_diff_threshold",),
)
