"""Labels inside the graph of a training step: their checks, and the accuracy that `fit` reports."""

import keras
import tensorflow as tf
from keras import ops

from bert_tf.system.type_names import Tensor


def checked_ids(labels: Tensor, weights: Tensor | None, count: int | Tensor) -> Tensor:
    """Returns label ids, int32 [...], which are checked when they are computed.

    An out-of-range label would silently lower the scores of all classes.

    Args:
      labels: integers [...].
      weights: float [...]; labels of weight 0 are not checked; None: all are.
      count: number of classes; a tensor has shape [].
    """
    labels = tf.cast(labels, tf.int32)
    is_known = (labels >= 0) & (labels < count)
    if weights is not None:
        is_known |= tf.equal(weights, 0)
    received = ["Received labels from", tf.reduce_min(labels), "to", tf.reduce_max(labels)]
    message = [*received, "expected 0 to", count - 1]
    # The labels depend on the check, so that the graph cannot skip it.
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_known), message)]):
        return tf.identity(labels)


def one_hot_ids(labels: Tensor) -> Tensor:
    """Returns the indices of one-hot labels [B, C], int32 [B]; checked when they are computed."""
    is_one = tf.cast(labels, tf.float32)  # [B, C]
    are_bits = tf.reduce_all((is_one == 0) | (is_one == 1))
    is_right = are_bits & tf.reduce_all(tf.reduce_sum(is_one, -1) == 1)
    message = "Labels of shape [B, C] are one-hot: expected one 1 in each row. Several labels per "
    message += "text need problem_type='multi_label'."
    with tf.control_dependencies([tf.debugging.Assert(is_right, [message, labels])]):
        return tf.argmax(is_one, axis=-1, output_type=tf.int32)


@keras.saving.register_keras_serializable(package="bert_tf")
class LabelAccuracy(keras.metrics.SparseCategoricalAccuracy):
    """The share of labels that have the highest score.

    Keras replaces the name "accuracy" by a metric within the first step. The variables that this
    makes have TensorFlow trace the step a second time, which takes seconds.
    """

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Adds a batch.

        Args:
          y_true: indices, int [...] or [..., 1], or one-hot rows [..., C].
          y_pred: scores, float [..., C].
          sample_weight: float [...]; None: 1.
        """
        # The rank alone does not tell one-hot rows from a column of indices [..., 1].
        has_rows = len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] != 1
        if has_rows:
            y_true = ops.argmax(y_true, axis=-1)
        super().update_state(y_true, y_pred, sample_weight)
