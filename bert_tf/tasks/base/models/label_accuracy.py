"""The accuracy that `fit` reports, whose variables exist before the first step."""

import keras
from keras import ops

from bert_tf.system.type_names import Tensor


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
