"""Registers taggers as a kind of model that can be loaded and exported."""

from bert_tf.tasks.base.serving.kind import Kind, has_head, recorded_labels

TAGGER = Kind(
    name="tagger",
    request="text, or words",
    head="tagger",
    methods=("tag", "find_entities"),
    model="bert_tf.tasks.tagging.model.BertTokenClassifier",
    serving="bert_tf.tasks.tagging.serving.TaggingServing",
    is_default=has_head("tagger"),
    recorded=recorded_labels,
    reads_windows=True,
)
