"""Embeddings of texts for scikit-learn."""

import pathlib
from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bert_tf.sklearn.input import read_single_texts
from bert_tf.sklearn.text_estimator import BATCH_SIZE, TextEstimator
from bert_tf.system.type_names import Labels, TextColumn


class BertEmbeddings(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator):
    """Turns texts into the vectors of a `BertEmbedder`. Nothing is trained.

        make_pipeline(BertEmbeddings("all-MiniLM-L6-v2"), LogisticRegression())

    Args:
      init_checkpoint: folder, file or name; see `BertEmbedder.from_pretrained`.
      prompt_name: name of the model's prompt before each text; None: its default, if any.
      prompt: prefix of each text, instead of a named prompt.
      pooling: how the vectors of the tokens become one, such as `mean` or `cls`; None: as the
        checkpoint states, or the mean.
      max_seq_length: maximum number of tokens of a text; None: the model's own.
      batch_size: texts per batch.

    Attributes:
      model_: the `BertEmbedder`.
    """

    def __init__(
        self,
        init_checkpoint: str | pathlib.Path = "",
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        pooling: str | None = None,
        max_seq_length: int | None = None,
        batch_size: int = BATCH_SIZE,
    ) -> None:
        self.init_checkpoint = init_checkpoint
        self.prompt_name = prompt_name
        self.prompt = prompt
        self.pooling = pooling
        self.max_seq_length = max_seq_length
        self.batch_size = batch_size

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # The vectors are float32 for any input.
        return tags

    def fit(self, X: TextColumn, y: Labels | None = None) -> Self:
        """Reads the model; the texts are only checked.

        Raises:
          ValueError: if X does not hold texts, or the checkpoint cannot be read.
        """
        read_single_texts(X)
        self._check_checkpoint()
        from bert_tf.tasks.embedding.model import BertEmbedder

        # None leaves a setting to the checkpoint.
        settings: dict[str, Any] = {"pooling": self.pooling, "max_seq_length": self.max_seq_length}
        given = {name: value for name, value in settings.items() if value is not None}
        self.model_ = BertEmbedder.from_pretrained(self.init_checkpoint, **given)
        return self

    def transform(self, X: TextColumn) -> np.ndarray:
        """Returns the vectors of texts, float32 [N, D]."""
        check_is_fitted(self)
        return self.model_.encode(
            read_single_texts(X),
            prompt_name=self.prompt_name,
            prompt=self.prompt,
            batch_size=self.batch_size,
        )

    @property
    def _n_features_out(self) -> int:
        """The number of features, for `get_feature_names_out`."""
        return self.model_.dimension
