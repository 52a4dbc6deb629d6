"""The kinds of models that classify or score texts and pairs of texts.

The readers of examples are imported when they are called: exported models need none.
"""

import dataclasses
import typing
from collections.abc import Callable
from typing import Any

from bert_tf.tasks.base.serving.kind import PAIR, SINGLE, Kind, recorded_labels

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint

MODEL = "bert_tf.tasks.classification.model.BertClassifier"
SERVING = "bert_tf.tasks.classification.serving"


def recorded_texts(checkpoint: "Checkpoint", folder: str) -> dict[str, Any]:
    """Returns whether the model reads pairs, and the part of long texts that it reads."""
    from bert_tf.tasks.classification.glue import reads_pairs

    settings = checkpoint.settings
    is_pair = reads_pairs(settings) or checkpoint.is_multiple_choice
    return {
        "texts": PAIR if is_pair else SINGLE,
        "long_texts": settings.get("long_texts") or "head",
    }


def recorded_classes(checkpoint: "Checkpoint", folder: str) -> dict[str, Any]:
    """Returns the labels, temperature and thresholds, and the options of `recorded_texts`."""
    from bert_tf.tasks.classification.decisions import arguments_of

    of_classes = recorded_labels(checkpoint, folder) | arguments_of(checkpoint.settings)
    return of_classes | recorded_texts(checkpoint, folder)


def recorded_inference(checkpoint: "Checkpoint", folder: str) -> dict[str, Any]:
    """Returns the labels, and the part of long texts that a zero-shot classifier reads."""
    # A zero-shot classifier has no windows: it reads the beginning or the end.
    is_tail = checkpoint.settings.get("long_texts") == "tail"
    return recorded_labels(checkpoint, folder) | {"long_texts": "tail" if is_tail else "head"}


def predicts(problem_type: str) -> Callable[["Checkpoint", str], bool]:
    """Returns the function that tells whether a checkpoint's head has labels of a kind."""

    def is_kind(checkpoint: "Checkpoint", folder: str) -> bool:
        # Guessed by their number if unknown.
        guess = "single_label" if checkpoint.num_labels > 1 else "regression"
        found = checkpoint.problem_type or guess
        return "classifier" in checkpoint.heads and found == problem_type

    return is_kind


CLASSIFIER = Kind(
    name="classifier",
    request="text, or text and text_b",
    head="classifier",
    methods=("classify", "probabilities"),
    model=MODEL,
    serving=f"{SERVING}.ClassifierServing",
    is_default=predicts("single_label"),
    recorded=recorded_classes,
    options=("texts",),
    problem_type="single_label",
)
MULTI_LABEL = dataclasses.replace(
    CLASSIFIER,
    name="multi_label",
    serving=f"{SERVING}.MultiLabelServing",
    is_default=predicts("multi_label"),
    problem_type="multi_label",
)
REGRESSION = dataclasses.replace(
    CLASSIFIER,
    name="regression",
    methods=("score", "choose"),
    serving=f"{SERVING}.RegressionServing",
    is_default=predicts("regression"),
    recorded=recorded_texts,
    problem_type="regression",
    has_one_label=True,
)
ZERO_SHOT = Kind(
    name="zero_shot",
    request="text, candidates",
    head="classifier",
    methods=("classify", "probabilities"),
    model=MODEL,
    serving="bert_tf.tasks.classification.zero_shot_serving.ZeroShotServing",
    recorded=recorded_inference,
    options=("template",),
    inputs=("text", "candidates"),
)
