"""Regression on texts for scikit-learn."""

import pathlib
from collections.abc import Sequence
from typing import Self

import numpy as np
from sklearn.base import RegressorMixin

from bert_tf.sklearn.input import check_y_is_given, read_targets, read_texts_or_pairs, with_weight
from bert_tf.sklearn.text_estimator import RandomState, TextPredictor
from bert_tf.system.type_names import Column, Labels, Texts


class BertTextRegressor(RegressorMixin, TextPredictor):
    """Fine-tunes an encoder to predict a number for each text, or pair of texts.

    The head starts at the mean of y. Numbers that spread by much more than 10 need scikit-learn's
    `TransformedTargetRegressor(regressor, transformer=StandardScaler())`.

    Args:
      init_checkpoint, epochs, batch_size, learning_rate, max_seq_length, long_texts, allow_missing,
        random_state, verbose: see `BertTextClassifier`.

    Attributes:
      model_: the `BertClassifier` with one output, which can be saved and exported.
    """

    def __init__(
        self,
        init_checkpoint: str | pathlib.Path = "",
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        max_seq_length: int | None = None,
        long_texts: str = "head",
        allow_missing: Sequence[str] = (),
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.init_checkpoint = init_checkpoint
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_seq_length = max_seq_length
        self.long_texts = long_texts
        self.allow_missing = allow_missing
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Texts, y: Labels, sample_weight: Column | None = None) -> Self:
        """Trains on texts and numbers.

        Args:
          X: N texts or pairs; see `BertTextClassifier.fit`.
          y: N numbers.
          sample_weight: weight of each example; those of weight 0 are left out.

        Raises:
          ValueError: if the input is wrong, before TensorFlow is loaded.
        """
        check_y_is_given(self, y)
        texts, y, weights = with_weight(read_texts_or_pairs(X), y, sample_weight)
        numbers = read_targets(y)
        self._check_checkpoint()
        head = {"num_labels": 1, "problem_type": "regression"}
        self.model_ = self._trained(texts, numbers, weights, head)
        return self

    def predict(self, X: Texts) -> np.ndarray:
        """Returns a number for each text, float32 [N]."""
        return self._compute_logits(X)[:, 0]  # [N, 1] -> [N]
