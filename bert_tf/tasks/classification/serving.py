"""Serving functions for classifiers of texts and pairs: classes, several labels, numbers."""

from typing import Any

import tensorflow as tf

from bert_tf.serving.model import Batch, Outputs, Serving
from bert_tf.text.tensor_packing import cut_windows, pack_rows


class TextServing(Serving):
    """Base class for a `BertClassifier`: answers from the logits of texts.

    With `long_texts="windows"`, the logits of a text are the mean over its windows.
    """

    def from_ids(self, batch: Batch) -> Outputs:
        return self.from_logits(self.call_model(batch))

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        if self.long_texts != "windows":
            return super().from_texts(*texts)
        tokens = [self.tokenize(text) for text in texts]
        second = tokens[1] if len(tokens) == 2 else None
        windows = cut_windows(tokens[0], second, self.max_seq_length, self.vocab.num_separators)
        batch = pack_rows(self.vocab, windows.first, windows.second)
        logits = tf.cast(self.call_in_parts(batch, tf.float32), tf.float64)  # [R, C]
        return self.from_logits(tf.cast(tf.math.segment_mean(logits, windows.owners), tf.float32))

    def from_logits(self, logits: tf.Tensor) -> Outputs:
        """Returns the answers for logits, float32 [B, C]."""
        raise NotImplementedError

    def card(self) -> dict[str, Any]:
        """Adds `long_texts`, for programs that tokenize outside the graph."""
        return {**super().card(), "long_texts": self.long_texts}


class ClassifierServing(TextServing):
    """A `BertClassifier` of classes.

    Args:
      arguments: of `Serving`.
      labels: names of the classes, C of them.

    Outputs:
      label: string [B], the likeliest class.
      score: float32 [B], its probability.
      probabilities: float32 [B, C], in the order of the labels.
    """

    kind = "classifier"

    def from_logits(self, logits: tf.Tensor) -> Outputs:
        probabilities = tf.nn.softmax(logits)
        return {
            "label": tf.gather(tf.constant(self.labels), tf.argmax(logits, axis=-1)),
            "score": tf.reduce_max(probabilities, axis=-1),
            "probabilities": probabilities,
        }


class MultiLabelServing(ClassifierServing):
    """A `BertClassifier` of several labels a text.

    Outputs:
      labels: string [B, C], those with a probability above a half, the likeliest first, then "".
      probabilities: float32 [B, C], in the order of the labels.
    """

    kind = "multi_label"

    def from_logits(self, logits: tf.Tensor) -> Outputs:
        probabilities = tf.sigmoid(logits)  # [B, C]
        order = tf.argsort(-probabilities, axis=-1, stable=True)
        is_one = tf.gather(probabilities, order, batch_dims=1) > 0.5
        names = tf.gather(tf.constant(self.labels), order)
        return {"labels": tf.where(is_one, names, ""), "probabilities": probabilities}


class RegressionServing(TextServing):
    """A `BertClassifier` of a number.

    Outputs:
      value: float32 [B].
    """

    kind = "regression"

    def from_logits(self, logits: tf.Tensor) -> Outputs:
        return {"value": logits[:, 0]}
