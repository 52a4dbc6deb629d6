"""The task of tagging words, such as named entities or parts of speech (BERT section 5.3)."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.metrics.entities import EntityReport, evaluate_entities
from bert_tf.network.losses import LabelLoss, WeightedSum, right_labels, weigh
from bert_tf.network.soft_losses import soft_class_losses
from bert_tf.system.type_names import Tensor
from bert_tf.tasks.base.programs.rows_task import RowsTask
from bert_tf.tasks.tagging.answers import gather_words
from bert_tf.tasks.tagging.features import NOT_PREDICTED, TaggedExamples
from bert_tf.training.task import Batch

ENTITY_PARTS = ("B-", "I-", "S-", "E-", "U-", "L-")


def are_entities(labels: Sequence[str]) -> bool:
    """Returns whether tags mark spans: O, B-X and I-X; in BIOES and BILOU also S-, E-, U-, L-X."""
    return "O" in labels and all(name == "O" or name[:2] in ENTITY_PARTS for name in labels)


def tag_metrics(
    labels: Sequence[str], true: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Returns the accuracy of words; for tags of entities also scores in percent, as conlleval."""
    if are_entities(labels):
        report = evaluate_entities(true, tags)
        overall = report.overall
        return {
            "precision": overall.precision,
            "recall": overall.recall,
            "f1": overall.f1,
            "accuracy": report.accuracy / 100,  # a fraction, as in training
        }
    is_correct: list[bool] = []
    for guesses, names in zip(tags, true, strict=True):
        is_correct.extend(guess == name for guess, name in zip(guesses, names, strict=True))
    return {"accuracy": float(np.mean(is_correct))}


class TaggingTask(RowsTask):
    """Trains and evaluates a `BertTokenClassifier` on sentences."""

    sum_names = ("loss", "accuracy")

    def __init__(
        self,
        *arguments: Any,
        labels: Sequence[str],
        label_loss: LabelLoss | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        self.labels = tuple(labels)
        self.label_loss = label_loss or LabelLoss()
        self.best_metric = "f1" if are_entities(labels) else "accuracy"

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns the number of labelled words in the batch, float32 []."""
        return {"loss": tf.reduce_sum(_is_word(batch))}

    def loss_and_metric_sums(self, batch: Batch, outputs: Tensor) -> dict[str, WeightedSum]:
        """Returns the weighted sums of the words' losses and of the correct tags."""
        is_word = _is_word(batch)
        losses = self.label_loss.losses("single_label", outputs, batch["tag_ids"])  # [B, T]
        soft = functools.partial(soft_class_losses, outputs)
        return {
            **self.losses_with_teacher(batch, losses, soft, is_word),
            "accuracy": weigh(right_labels(outputs, batch["tag_ids"]), is_word),
        }

    def predictions(self, batch: Batch, outputs: Tensor) -> dict[str, tf.Tensor]:
        """Returns the tag of each token [B, T], and the summed loss of each row's words [B]."""
        is_word = _is_word(batch)
        losses = LabelLoss().losses("single_label", outputs, batch["tag_ids"])  # [B, T]
        return {
            "tag_ids": tf.argmax(outputs, axis=-1, output_type=tf.int32),
            "loss": tf.reduce_sum(losses * is_word, axis=-1),
            "num_words": tf.reduce_sum(is_word, axis=-1),
        }

    def metrics(self, examples: TaggedExamples, outputs: Tensor) -> dict[str, float]:
        """Returns the mean loss and accuracy of words.

        For tags of entities it also returns precision, recall and F1, in percent as conlleval.
        """
        # The mean over words, not over rows, which have different numbers of words.
        loss = float(np.sum(outputs["loss"]) / max(1.0, np.sum(outputs["num_words"])))
        tags = self.answers(examples, outputs)
        true = [sentence.tags or () for sentence in examples.sentences]
        return {"loss": loss, **tag_metrics(self.labels, true, tags)}

    def entity_report(self, examples: TaggedExamples, tags: list[list[str]]) -> EntityReport:
        """Returns conlleval's report, in percent."""
        return evaluate_entities([sentence.tags or () for sentence in examples.sentences], tags)

    def answers(self, examples: TaggedExamples, outputs: Tensor) -> list[list[str]]:
        """Returns the tag of each word of each sentence."""
        tags = []
        # The tags at the first tokens of words: [T] for each row, [W] for each sentence.
        for ids in gather_words(examples.tag_rows, outputs["tag_ids"], examples.sentences):
            tags.append([self.labels[label_id] for label_id in ids])
        return tags


def _is_word(batch: Batch) -> tf.Tensor:
    """Returns 1 at the first tokens of predicted words and 0 elsewhere, float32 [B, T]."""
    return tf.cast(batch["tag_ids"] != NOT_PREDICTED, tf.float32)
