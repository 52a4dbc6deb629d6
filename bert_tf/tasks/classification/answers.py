"""The answers of classifiers: labels, probabilities and numbers of texts or pairs of texts.

    texts or pairs --text_examples, make_examples--> rows --compute_rows--> logits of rows
        --mean_of_rows--> logits of texts [E, C] --> labels, probabilities or numbers

The Keras model, LiteRT files and the program's predictions all take these steps. The serving graph
in `serving.py` takes the same steps in TensorFlow.
"""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.examples.columns import is_empty, read_pairs
from bert_tf.examples.rows import TokenizedDataset
from bert_tf.metrics.classification import check_threshold, labels_above
from bert_tf.tasks.classification.decisions import Decisions
from bert_tf.tasks.classification.examples import TextExample
from bert_tf.tasks.classification.features import make_examples
from bert_tf.tasks.classification.zero_shot import (
    candidate_labels,
    candidate_probabilities,
    check_no_candidates,
)
from bert_tf.text.tokenization import Tokenizer
from bert_tf.type_names import TextColumn, Texts

BATCH_SIZE = 32


class ClassifierAnswers(abc.ABC):
    """Gives `classify`, `probabilities` and `score` to anything that computes logits of rows.

    A subclass defines `compute_rows` and has these attributes:

      problem_type: `single_label`, `regression` or `multi_label`.
      num_labels: C.
      known_labels: names of the classes, or their numbers if they have no names.
      tokenizer: of the model.
      max_seq_length: maximum number of tokens of a row.
      long_texts: `head`, `tail` or `windows`.
      decisions: the temperature and the thresholds.
      has_logits: whether the logits of rows are the model's, or only their differences are.
    """

    problem_type: str
    num_labels: int
    known_labels: Any
    tokenizer: Tokenizer
    max_seq_length: int
    long_texts: str
    decisions = Decisions()
    has_logits = True

    @abc.abstractmethod
    def compute_rows(self, rows: TokenizedDataset, batch_size: int) -> Sequence[np.ndarray]:
        """Returns the logits of each row, float32 [C]."""

    def classify(
        self,
        texts: Texts,
        batch_size: int = BATCH_SIZE,
        threshold: float | None = None,
        candidates: TextColumn | None = None,
        template: str | None = None,
        several: bool = False,
    ) -> list[dict[str, Any]]:
        """Returns the label of each text, or of each pair.

        Args:
          texts: raw texts, as for `fit`.
          batch_size: texts per batch.
          threshold: with several labels per text, the probability above which a text has a label;
            None: the model's own thresholds, or 0.5.
          candidates: labels to choose from instead of the model's, by a model of natural language
            inference that reads each text with a sentence about each candidate.
          template: the sentence, with {} for the candidate; None: "This example is {}."
          several: whether a text may have several candidates, or none.

        Returns:
          A dict per text: `label` and `score`, its probability. With several labels per text,
            `labels` and `scores` of those above the threshold, the likeliest first. The label is
            the likeliest one, unless a model of two classes has a threshold.

        Raises:
          ValueError: if the texts are wrong, the model predicts a number, or there is a threshold
            for a model of one label per text.
        """
        if candidates is not None:
            rows = self.probabilities(texts, batch_size, candidates, template, several)
            return candidate_labels(rows, several, threshold)
        check_no_candidates(template, several)
        least = check_threshold(threshold, self.problem_type == "multi_label")
        class_rows = self._class_probabilities(texts, batch_size)
        names = self.known_labels
        if self.problem_type == "multi_label":
            own = self.decisions.by_label(names) if threshold is None else {}
            return [
                labels_above(dict(zip(names, row, strict=True)), least, own) for row in class_rows
            ]
        best = self.decisions.choose(class_rows)  # [E]
        return [
            {"label": names[index], "score": float(row[index])}
            for index, row in zip(best, class_rows, strict=True)
        ]

    def probabilities(
        self,
        texts: Texts,
        batch_size: int = BATCH_SIZE,
        candidates: TextColumn | None = None,
        template: str | None = None,
        several: bool = False,
    ) -> list[dict[str, float]]:
        """Returns for each text the probability of every class or candidate, by label.

        Arguments and errors are those of `classify`.
        """
        if candidates is not None:
            return candidate_probabilities(self, texts, candidates, template, several, batch_size)
        check_no_candidates(template, several)
        rows = self._class_probabilities(texts, batch_size).tolist()
        return [dict(zip(self.known_labels, row, strict=True)) for row in rows]

    def score(self, texts: Texts, batch_size: int = BATCH_SIZE) -> list[float]:
        """Returns the predicted number for each text, or each pair.

        Raises:
          ValueError: if the texts are wrong, or the model predicts classes.
        """
        if self.problem_type != "regression":
            raise ValueError("The model predicts classes, not a number: call classify(texts).")
        return self.compute_logits(texts, batch_size)[:, 0].tolist()

    def _class_probabilities(self, texts: Texts, batch_size: int) -> np.ndarray:
        """Returns the probabilities of the classes, float [E, C]."""
        if self.problem_type == "regression":
            raise ValueError("The model predicts a number, not a class: call score(texts).")
        return self.decisions.probabilities(
            self.compute_logits(texts, batch_size), self.problem_type
        )

    def compute_logits(self, texts: Texts, batch_size: int = BATCH_SIZE) -> np.ndarray:
        """Returns the unnormalised scores of texts or pairs, float32 [E, C], as computed."""
        if is_empty(texts):
            return np.zeros([0, self.num_labels], np.float32)
        examples = text_examples(texts)
        made = make_examples(
            examples,
            np.zeros(len(examples)),
            self.problem_type,
            self.tokenizer,
            self.max_seq_length,
            self.long_texts,
        )
        return mean_of_rows(self.compute_rows(made.rows, batch_size), made.owners, len(examples))


def text_examples(texts: Texts) -> list[TextExample]:
    """Returns texts or pairs in any form that `read_pairs` takes as examples without labels."""
    firsts, seconds = read_pairs(texts)
    return [
        TextExample(
            text_a=first,
            text_b=seconds[index] if seconds else "",
            label=None,
            id=str(index),
            source="",
        )
        for index, first in enumerate(firsts)
    ]


def mean_of_rows(rows: Sequence[np.ndarray], owners: np.ndarray, count: int) -> np.ndarray:
    """Returns the mean of the logits over the windows of each text.

    Args:
      rows: logits of R rows, float [C] each.
      owners: the text of each row, int [R].
      count: number of texts, E.

    Returns:
      float32 [E, C].
    """
    logits = np.stack(rows)
    sums = np.zeros([count, logits.shape[1]], np.float64)
    np.add.at(sums, owners, logits)
    num_rows = np.bincount(owners, minlength=count)
    return (sums / num_rows[:, None]).astype(np.float32)


def to_logits(probabilities: np.ndarray, problem_type: str) -> np.ndarray:
    """Returns logits whose softmax or sigmoid are the given probabilities, float64 [..., C].

    Logits of one label per text are determined up to a constant for each row, which their mean over
    rows and the softmax of that do not depend on.
    """
    if problem_type == "regression":
        return probabilities
    smallest = np.finfo(np.float32).tiny
    values = np.clip(probabilities.astype(np.float64), smallest, 1.0)
    if problem_type == "single_label":
        return np.log(values)
    # Above 1 - 2^-24, float32 has no number below 1.
    return np.log(values) - np.log1p(-np.minimum(values, 1.0 - 2.0**-25))
