"""Answers about whole texts: classes, numbers, next sentences, embeddings, encoder outputs."""

import tensorflow as tf

from bert_tf.serving.model import Batch, Outputs, Serving


class ClassifierServing(Serving):
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

    def from_ids(self, batch: Batch) -> Outputs:
        logits = self.call_model(batch)  # [B, C]
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

    def from_ids(self, batch: Batch) -> Outputs:
        probabilities = tf.sigmoid(self.call_model(batch))  # [B, C]
        order = tf.argsort(-probabilities, axis=-1, stable=True)
        is_one = tf.gather(probabilities, order, batch_dims=1) > 0.5
        names = tf.gather(tf.constant(self.labels), order)
        return {"labels": tf.where(is_one, names, ""), "probabilities": probabilities}


class RegressionServing(Serving):
    """A `BertClassifier` of a number.

    Outputs:
      value: float32 [B].
    """

    kind = "regression"

    def from_ids(self, batch: Batch) -> Outputs:
        return {"value": self.call_model(batch)[:, 0]}
