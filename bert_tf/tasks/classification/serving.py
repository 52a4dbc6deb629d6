"""Serving functions of classifiers of texts and pairs: classes, several labels, numbers."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.metrics.classification import THRESHOLD
from bert_tf.tasks.base.serving.model import Batch, Outputs, Serving
from bert_tf.tasks.classification.decisions import Decisions
from bert_tf.text.tensor_packing import cut_windows, pack_rows


class TextServing(Serving):
    """Base class of serving functions of a `BertClassifier`, which decode the logits of texts.

    With `long_texts="windows"`, the logits of a text are the mean over its windows.
    """

    def from_ids(self, batch: Batch) -> Outputs:
        return self.from_logits(self.call_model(batch))

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        if self.long_texts != "windows":
            return super().from_texts(*texts)
        tokens = list(map(self.tokenize, texts))
        second = tokens[1] if len(tokens) == 2 else None
        # The windows of all texts, R in total, with the text of each in `owners`.
        windows = cut_windows(self.vocab, tokens[0], second, self.max_seq_length)
        batch = pack_rows(self.vocab, windows.first, windows.second)
        logits = tf.cast(self.call_in_parts(batch, tf.float32), tf.float64)  # [R, C]
        means = tf.math.segment_mean(logits, windows.owners)  # [B, C], in float64 as in Python
        return self.from_logits(tf.cast(means, tf.float32))

    def from_logits(self, logits: tf.Tensor) -> Outputs:
        """Returns the answers for logits, float32 [B, C]."""
        raise NotImplementedError

    def card(self) -> dict[str, Any]:
        """Adds `long_texts`, for programs that tokenize outside the graph."""
        return {**super().card(), "long_texts": self.long_texts}


class ClassifierServing(TextServing):
    """Serving functions of a `BertClassifier` that predicts classes.

    Args:
      arguments: arguments of `Serving`, with the labels.
      temperature, thresholds: see `BertClassifier`.

    Outputs:
      label: string [B], the likeliest class; with two classes and thresholds, the second class if
        its probability is above its threshold, otherwise the first.
      score: float32 [B], the probability of the label.
      probabilities: float32 [B, C], in the order of the labels.
    """

    kind = "classifier"
    problem_type = "single_label"

    def __init__(
        self,
        *arguments: Any,
        temperature: float = 1.0,
        thresholds: Mapping[str, float] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.decisions = Decisions.of(self.problem_type, self.labels, temperature, thresholds)

    def card(self) -> dict[str, Any]:
        """Adds temperature and thresholds, if there are any."""
        card = super().card()
        if self.decisions.temperature != 1.0:
            card["temperature"] = self.decisions.temperature
        if self.decisions.thresholds:
            card["thresholds"] = self.decisions.by_label(self.labels)
        return card

    def scaled(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns logits divided by the temperature."""
        temperature = self.decisions.temperature
        return logits if temperature == 1.0 else logits / temperature

    def from_logits(self, logits: tf.Tensor) -> Outputs:
        probabilities = tf.nn.softmax(self.scaled(logits))  # [B, C]
        if not self.decisions.thresholds:
            # By the logits: probabilities near 1 are rounded to equal numbers.
            index = tf.argmax(logits, axis=-1)  # [B]
            score = tf.reduce_max(probabilities, axis=-1)
        else:
            index = tf.cast(probabilities[:, 1] > self.decisions.thresholds[1], tf.int64)
            score = tf.gather(probabilities, index, batch_dims=1)
        return {
            "label": tf.gather(tf.constant(self.labels), index),
            "score": score,
            "probabilities": probabilities,
        }


class MultiLabelServing(ClassifierServing):
    """Serving functions of a `BertClassifier` that predicts several labels per text.

    Outputs:
      labels: string [B, C], the labels with a probability above their threshold (0.5 by default),
        the likeliest first, padded with "".
      probabilities: float32 [B, C], in the order of the labels.
    """

    kind = "multi_label"
    problem_type = "multi_label"

    def from_logits(self, logits: tf.Tensor) -> Outputs:
        probabilities = tf.sigmoid(self.scaled(logits))  # [B, C]
        order = tf.argsort(-probabilities, axis=-1, stable=True)
        # Without thresholds, 0.5 for each label, as in `Decisions.choose_several`.
        least = tf.constant(self.decisions.thresholds or [THRESHOLD] * len(self.labels))  # [C]
        applies = tf.gather(probabilities > least, order, batch_dims=1)  # [B, C], likeliest first
        names = tf.gather(tf.constant(self.labels), order)
        return {"labels": tf.where(applies, names, ""), "probabilities": probabilities}


class RegressionServing(TextServing):
    """Serving functions of a `BertClassifier` that predicts a number.

    Outputs:
      value: float32 [B].
    """

    kind = "regression"

    def from_logits(self, logits: tf.Tensor) -> Outputs:
        return {"value": logits[:, 0]}
