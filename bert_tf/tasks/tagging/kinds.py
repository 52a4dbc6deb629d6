"""Registers taggers as a kind of model that can be loaded and exported."""

import typing

from bert_tf.tasks.base.serving.kind import Kind, recorded_labels

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


def has_tags(checkpoint: "Checkpoint", folder: str) -> bool:
    """Returns whether a checkpoint has the head of a tagger."""
    return "tagger" in checkpoint.heads


TAGGER = Kind(
    name="tagger",
    request="text, or words",
    head="tagger",
    methods=("tag", "find_entities"),
    model="bert_tf.tasks.tagging.model.BertTokenClassifier",
    serving="bert_tf.tasks.tagging.serving.TaggingServing",
    is_default=has_tags,
    recorded=recorded_labels,
    reads_windows=True,
)
