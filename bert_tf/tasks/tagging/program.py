"""The program of taggers: reads files of words and tags; writes reports and tagged files."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.config.fine_tuning_defaults import LEAST_LENGTH, MOST_LENGTH
from bert_tf.metrics.entities import format_conlleval
from bert_tf.network.losses import label_loss_of
from bert_tf.system.type_names import Outputs, Strategy
from bert_tf.tasks.base.programs.program import (
    Configs,
    Examples,
    Program,
    RowsTaskData,
    read_inputs,
)
from bert_tf.tasks.base.programs.teacher import add_teacher_logits, check_labels, read_known
from bert_tf.tasks.classification.report import class_report_text
from bert_tf.tasks.tagging.features import TaggedExamples, count_odd_words, make_examples
from bert_tf.tasks.tagging.files import column_of, predictions_name, with_known_tags, write_tagged
from bert_tf.tasks.tagging.inputs import TaggedInputs
from bert_tf.tasks.tagging.model import BertTokenClassifier
from bert_tf.tasks.tagging.sentences import TaggedSentence
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.text.tokenization import Tokenizer


class Tagger(Program):
    """See `Program`; `tagged` has the sentences of the files."""

    head = "tagger"
    needs_pooler = False
    default_lengths = LEAST_LENGTH, MOST_LENGTH
    plot_titles = {
        "loss": "loss",
        "teacher_loss": "loss to the teacher",
        "accuracy": "accuracy",
        "f1": "F1 of entities (%)",
    }

    def __init__(self, configs: Configs, files: dict[str, str], tagged: TaggedInputs) -> None:
        super().__init__(configs, files)
        self.tagged = tagged

    def read(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> Examples:
        length = self.configs.data.max_seq_length
        labels = self.tagged.choose_labels(labels)

        def make(use: str, file: str) -> TaggedExamples:
            sentences, is_labelled = self.tagged.sentences(use, labels)
            if is_labelled:
                # Spelled as the head's labels, so that reports compare equal names.
                sentences = with_known_tags(sentences, labels)
            examples = make_examples(sentences, labels, tokenizer, length, is_labelled)
            logging.info(
                "%s: %d sentences, %d words; %d sentences in windows of %d, %d words cut, %d "
                "without a token.",
                use,
                len(sentences),
                sum(len(sentence.words) for sentence in sentences),
                sum(count > 1 for count in np.bincount(examples.owners)),
                length,
                *count_odd_words(sentences, tokenizer, length),
            )
            return examples

        return Examples.of_files(read_inputs(self.files, make, self.text_remedy()), labels)

    def compute_teacher_outputs(
        self, examples: Examples, tokenizer: Tokenizer, strategy: Strategy
    ) -> None:
        """Adds the teacher's logits `TEACHER_LOGITS` of each token, float32 [num_tokens, C]."""
        teacher = read_known(self.configs, tokenizer, self.head)
        # The teacher's head may have the labels in another order.
        order = check_labels(teacher, examples.labels)
        rows = examples.train.rows
        add_teacher_logits(rows, BertTokenClassifier, teacher, self.configs, strategy, order)

    def make_task(self, labels: tuple[str, ...], data: RowsTaskData, **options: Any) -> TaggingTask:
        return TaggingTask(
            BertTokenClassifier(self.configs.model, len(labels), **options),
            *data,
            labels=labels,
            label_loss=label_loss_of(self.configs.task),
            teacher=self.configs.task,
        )

    def report(self, examples: TaggedExamples, outputs: Outputs) -> dict[str, str]:
        """Returns report.txt, in conlleval's format or by tag, and worst_errors.tsv."""
        task = self.task
        tags = task.answers(examples, outputs)
        if task.best_metric == "f1":
            text = format_conlleval(task.entity_report(examples, tags))
        else:
            text = tag_report_text(examples.sentences, tags, task.labels)
        worst = worst_sentences_text(examples.sentences, tags)
        return {"report.txt": text, "worst_errors.tsv": worst}

    def write_predictions(self, name: str, examples: TaggedExamples, outputs: Outputs) -> None:
        """Writes a copy of the input with a tag after each word."""
        file = self.files["predict"]
        given = self.configs.task
        path = self.folder / predictions_name(file)
        tags = self.task.answers(examples, outputs)
        tag_column = column_of(given.tag_column)
        write_tagged(file, path, tags, given.word_column, tag_column, reading=given)
        logging.info("Wrote %s", path)


MAX_SENTENCES = 50


def tag_report_text(
    sentences: Sequence[TaggedSentence], tags: Sequence[Sequence[str]], labels: Sequence[str]
) -> str:
    """Returns the scores of each tag over all words, and a confusion matrix."""
    indices = {label: index for index, label in enumerate(labels)}
    true: list[int] = []
    for sentence in sentences:
        true.extend(indices[tag] for tag in sentence.tags or ())
    predicted: list[int] = []
    for row in tags:
        predicted.extend(indices[tag] for tag in row)
    return class_report_text(np.array(true), np.array(predicted), labels)


def worst_sentences_text(sentences: Sequence[TaggedSentence], tags: Sequence[Sequence[str]]) -> str:
    """Returns a table of the sentences with most wrong words, tab-separated with a header.

    Wrong words are written as word[true>predicted].
    """
    wrong = []  # wrong words of each sentence
    for sentence, row in zip(sentences, tags, strict=True):
        pairs = zip(row, sentence.tags or (), strict=True)
        wrong.append(sum(guess != tag for guess, tag in pairs))
    # Stable, so that equally wrong sentences stay in the order of the file.
    order = np.argsort(-np.array(wrong), kind="stable")[:MAX_SENTENCES]
    lines = ["wrong\tsource\tsentence\n"]
    for index in order:
        if not wrong[index]:
            break
        sentence = sentences[index]
        words = []
        tagged = zip(sentence.words, sentence.tags or (), tags[index], strict=True)
        for word, tag, guess in tagged:
            words.append(word if guess == tag else f"{word}[{tag}>{guess}]")
        lines.append(f"{wrong[index]}\t{sentence.source}\t{' '.join(words)}\n")
    return "".join(lines)
