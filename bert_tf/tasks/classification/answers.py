"""Answers of classifiers: labels, probabilities and numbers of texts or pairs of texts.

    texts or pairs --text_examples, make_examples--> rows --predict_rows--> logits of rows
        --mean_of_rows--> logits of texts [E, C] --> labels, probabilities or numbers

The Keras model, LiteRT files and the program all use these functions. The serving graph in
`tasks.base.serving.py` computes the same in TensorFlow.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.metrics.classification import check_threshold, labels_above
from bert_tf.system.type_names import TextColumn, Texts
from bert_tf.tasks.base.examples.columns import is_empty, read_pairs
from bert_tf.tasks.classification.decisions import Decisions
from bert_tf.tasks.classification.examples import TextExample
from bert_tf.tasks.classification.features import make_examples
from bert_tf.tasks.classification.zero_shot import (
    candidate_labels,
    candidate_probabilities,
    check_no_candidates,
)
from bert_tf.text.text_counts import counts_texts
from bert_tf.text.tokenization import Tokenizer

BATCH_SIZE = 32


class ClassifierAnswers:
    """`classify`, `probabilities` and `score`, for anything that computes the logits of rows.

    A subclass defines `predict_rows`, or the methods that call it: `compute_logits`,
    `compute_probabilities`, `compute_candidates`, `choose_labels`.
    """

    problem_type: str
    num_labels: int  # number of classes C
    known_labels: Any  # names of the classes, or their indices if they have no names
    tokenizer: Tokenizer
    max_seq_length: int
    long_texts: str  # `head`, `tail` or `windows`
    decisions = Decisions()
    has_logits = True  # Otherwise only the differences of a row's logits are known.
    predict_rows: Any  # from rows and a batch size to the logits of each row, float32 [C]

    @counts_texts
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
            None: the model's thresholds, or 0.5.
          candidates: labels that replace the model's labels, if the model was trained on natural
            language inference: it reads each text with a sentence about each candidate.
          template: the sentence, with {} for the candidate; None: "This example is {}.", or the
            template of the export.
          several: whether a text may have several candidates, or none, each with its own
            probability.

        Returns:
          For each text the likeliest class and its probability, {"label": "good", "score": 0.98};
            a model of two classes may have a threshold instead. With several labels per text
            {"labels": ["news", "sport"], "scores": [0.9, 0.7]}, all above the threshold, the
            likeliest first.

        Raises:
          ValueError: if these are not texts, the model predicts a number, a threshold is given for
            a model of one label per text, or candidates for a model that was not trained on natural
            language inference.
        """
        if candidates is not None:
            rows = self.probabilities(texts, batch_size, candidates, template, several)
            return candidate_labels(rows, several, threshold)
        check_no_candidates(template, several)
        least = check_threshold(threshold, self.problem_type == "multi_label")
        self._check_classes()
        if self.problem_type != "multi_label":
            return self.choose_labels(texts, batch_size)
        # A threshold of the call replaces those of all labels.
        thresholds = self.decisions.by_label(self.known_labels) if threshold is None else {}
        rows = self.probabilities(texts, batch_size)
        return [labels_above(row, least, thresholds) for row in rows]

    @counts_texts
    def probabilities(
        self,
        texts: Texts,
        batch_size: int = BATCH_SIZE,
        candidates: TextColumn | None = None,
        template: str | None = None,
        several: bool = False,
    ) -> list[dict[str, float]]:
        """Returns the probabilities of all classes or candidates for each text, by label.

        For arguments and errors see `classify`.
        """
        if candidates is not None:
            return self.compute_candidates(texts, candidates, template, several, batch_size)
        check_no_candidates(template, several)
        self._check_classes()
        rows = self.compute_probabilities(texts, batch_size).tolist()
        return [dict(zip(self.known_labels, row, strict=True)) for row in rows]

    @counts_texts
    def score(self, texts: Texts, batch_size: int = BATCH_SIZE) -> list[float]:
        """Returns the predicted number for each text, or each pair.

        Raises:
          ValueError: if these are not texts, or the model predicts classes.
        """
        if self.problem_type != "regression":
            raise ValueError("The model predicts classes, not a number: call classify(texts).")
        return self.compute_logits(texts, batch_size)[:, 0].tolist()

    def _check_classes(self) -> None:
        if self.problem_type == "regression":
            raise ValueError("The model predicts a number, not a class: call score(texts).")

    def choose_labels(self, texts: Texts, batch_size: int) -> list[dict[str, Any]]:
        """Returns the answers of `classify` for a model of one label per text."""
        class_rows = self.compute_probabilities(texts, batch_size)  # [E, C]
        answers = []
        # The likeliest class, unless there are two with a threshold.
        for index, row in zip(self.decisions.choose(class_rows), class_rows, strict=True):
            answers.append({"label": self.known_labels[index], "score": float(row[index])})
        return answers

    def compute_probabilities(self, texts: Texts, batch_size: int) -> np.ndarray:
        """Returns the probabilities of the classes, float [E, C]."""
        logits = self.compute_logits(texts, batch_size)
        return self.decisions.probabilities(logits, self.problem_type)

    def compute_candidates(
        self,
        texts: TextColumn,
        candidates: TextColumn,
        template: str | None,
        several: bool,
        batch_size: int,
    ) -> list[dict[str, float]]:
        """Returns the probabilities of the candidates; for the arguments see `classify`."""
        return candidate_probabilities(self, texts, candidates, template, several, batch_size)

    @counts_texts
    def compute_logits(self, texts: Texts, batch_size: int = BATCH_SIZE) -> np.ndarray:
        """Returns the unnormalised scores of texts or pairs, float32 [E, C].

        They are not divided by the temperature.
        """
        if is_empty(texts):
            return np.zeros([0, self.num_labels], np.float32)
        examples = text_examples(texts)
        packed = make_examples(
            examples,
            np.zeros(len(examples)),
            self.problem_type,
            self.tokenizer,
            self.max_seq_length,
            self.long_texts,
        )
        row_logits = self.predict_rows(packed.rows, batch_size)
        return mean_of_rows(row_logits, packed.owners, len(examples))


def text_examples(texts: Texts) -> list[TextExample]:
    """Returns texts or pairs, in any format of `read_pairs`, as examples without labels."""
    firsts, seconds = read_pairs(texts)
    examples = []
    for index, first in enumerate(firsts):
        second = seconds[index] if seconds else None
        examples.append(TextExample(first, second, label=None, id=str(index), source=""))
    return examples


def mean_of_rows(rows: Sequence[np.ndarray], owners: np.ndarray, count: int) -> np.ndarray:
    """Returns the mean of the logits [C] of rows over each of `count` texts, float32 [E, C]."""
    logits = np.stack(rows)  # [R, C]
    # In float64, as in the serving graph, so that both give the same answers.
    sums = np.zeros([count, logits.shape[1]], np.float64)
    # Unlike sums[owners] += logits, this adds all rows of a text.
    np.add.at(sums, owners, logits)
    num_rows = np.bincount(owners, minlength=count)
    return (sums / num_rows[:, None]).astype(np.float32)


def to_logits(probabilities: np.ndarray, problem_type: str) -> np.ndarray:
    """Returns logits whose softmax or sigmoid are the given probabilities, float64 [..., C].

    With one label per text, logits are determined up to a constant for each row. It shifts the mean
    over rows equally for all classes, and does not change the softmax of the mean.
    """
    if problem_type == "regression":
        return probabilities
    # A probability that was rounded to 0 still gets a finite logit.
    smallest = np.finfo(np.float32).tiny
    values = np.clip(probabilities.astype(np.float64), smallest, 1.0)
    if problem_type == "single_label":
        return np.log(values)
    # Above 1 - 2^-24, float32 has no number below 1.
    return np.log(values) - np.log1p(-np.minimum(values, 1.0 - 2.0**-25))
