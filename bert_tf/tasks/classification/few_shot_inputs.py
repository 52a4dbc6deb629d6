"""Checks the examples of `run_classifier --few_shot`, without TensorFlow."""

from bert_tf.tasks.base.programs.program import Configs
from bert_tf.tasks.classification.inputs import LabelledTexts
from bert_tf.tasks.classification.label_arrays import label_ids, label_rows
from bert_tf.tasks.classification.pairs import check_counts
from bert_tf.tasks.embedding.examples import EmbeddingExample, read_embedding_examples


def check_few_shot_labels(texts: LabelledTexts) -> None:
    """Raises ValueError if there are no pairs to learn from; see `check_counts`."""
    examples = texts.splits["train"]
    names = texts.choose_labels(())
    read = label_rows if texts.kind == "multi_label" else label_ids
    check_counts(read(examples, names), names)


def read_unlabelled(configs: Configs) -> list[EmbeddingExample]:
    """Returns the texts of --unlabelled_file, whose labels do not count; none without it."""
    file = configs.task.unlabelled_file
    if not file:
        return []
    task = configs.task
    column = task.text_column
    return read_embedding_examples(file, "--unlabelled_file", reading=task, text_column=column)
