"""Registers multiple choice as a kind of model; its exports are of the kind `regression`."""

from bert_tf.tasks.base.serving.kind import PAIR, Kind

MULTIPLE_CHOICE = Kind(
    name="multiple_choice",
    request="context, choices",
    head="classifier",
    methods=("choose", "score"),
    model="bert_tf.tasks.multiple_choice.model.BertMultipleChoice",
    serving="bert_tf.tasks.classification.serving.RegressionServing",
    recorded=lambda checkpoint, folder: {"texts": PAIR},
    has_one_label=True,
)
