"""Text classifiers for scikit-learn."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin

from bert_tf.sklearn.input import check_y_is_given, read_classes, read_texts_or_pairs, with_weight
from bert_tf.sklearn.text_estimator import RandomState, TextPredictor
from bert_tf.system.type_names import Column, Labels, Texts


class BertTextClassifier(ClassifierMixin, TextPredictor):
    """Fine-tunes an encoder to classify texts, or pairs of texts.

        classifier = BertTextClassifier("hf://google-bert/bert-base-uncased", random_state=1)
        classifier.fit(texts, labels).predict(["A fine film."])

    One label per text: y has a label, of any type, for each text. Several labels per text: y is a
    matrix of 0 and 1, or a frame of them. It trains as `BertClassifier.fit` does, with a new head.

    Args:
      init_checkpoint: folder, file or name; see `BertClassifier.from_pretrained`.
      epochs: passes over the examples; None: a number that falls as the number of examples grows.
      batch_size: examples per step; None: 32, or fewer for long texts.
      learning_rate: peak rate; None: the one for the width of the encoder.
      max_seq_length: maximum number of tokens of a text; None: as in the checkpoint's training.
      long_texts: the part that is kept of a longer text: `head`, `tail`, or `windows`: all of it.
      class_weight: "balanced", or a dict of weights by class. Several labels: the weight of the
        positive examples of each label.
      label_smoothing, focal_gamma: see `BertClassifier.fit`.
      temperature: divides the scores.
      thresholds: by class, for two classes or several labels; see `BertClassifier`.
      allow_missing: prefixes of weight names that the checkpoint may lack.
      random_state: seed of the head, the dropout and the order of the examples.
      verbose: 0: silent; 1: a bar for each epoch; 2: a line for each epoch.

    Attributes:
      classes_: the labels, sorted; for several labels, the columns of y.
      model_: the `BertClassifier`, which can be saved and exported.
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
        class_weight: str | Mapping[Any, float] | None = None,
        label_smoothing: float = 0.0,
        focal_gamma: float = 0.0,
        temperature: float = 1.0,
        thresholds: Mapping[Any, float] | None = None,
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
        self.class_weight = class_weight
        self.label_smoothing = label_smoothing
        self.focal_gamma = focal_gamma
        self.temperature = temperature
        self.thresholds = thresholds
        self.allow_missing = allow_missing
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True  # y may be a matrix [N, C].
        return tags

    def fit(self, X: Texts, y: Labels, sample_weight: Column | None = None) -> Self:
        """Trains on texts and labels.

        Args:
          X: N texts: a list, an array, a column; or pairs: a list of tuples, or two columns.
          y: N labels, or a matrix of 0 and 1 [N, C].
          sample_weight: weight of each example; those of weight 0 are left out.

        Raises:
          ValueError: if the input is wrong, before TensorFlow is loaded.
        """
        check_y_is_given(self, y)
        texts = read_texts_or_pairs(X)
        texts, y, weights = with_weight(texts, y, sample_weight)
        targets = read_classes(y)
        self._check_checkpoint()
        from bert_tf.tasks.classification.decisions import Decisions

        # Before the training, so that a wrong threshold is reported at once.
        decisions = Decisions.of(
            targets.problem_type, targets.names, self.temperature, _by_name(self.thresholds)
        )
        model = self._trained(
            texts,
            targets.labels,
            weights,
            {"labels": targets.names, "problem_type": targets.problem_type},
            class_weight=_by_name(self.class_weight),
            label_smoothing=self.label_smoothing,
            focal_gamma=self.focal_gamma,
        )
        model.decisions = decisions
        # By convention, names that end in _ exist only after a successful `fit`.
        self.model_ = model
        self.classes_ = targets.classes
        return self

    def decision_function(self, X: Texts) -> np.ndarray:
        """Returns the scores of texts, whose softmax or sigmoid are the probabilities.

        For two classes it is the score of the second minus that of the first, float [N]; otherwise
        [N, C].
        """
        logits = self._compute_logits(X)  # [N, C]
        scores = logits.astype(np.float64) / self.model_.decisions.temperature
        # For two classes scikit-learn expects a single score.
        is_binary = self.model_.problem_type == "single_label" and len(self.classes_) == 2
        return scores[:, 1] - scores[:, 0] if is_binary else scores

    def predict_proba(self, X: Texts) -> np.ndarray:
        """Returns the probability of each class, or of each of several labels: float64 [N, C]."""
        logits = self._compute_logits(X)
        return self.model_.decisions.probabilities(logits, self.model_.problem_type)

    def predict(self, X: Texts) -> np.ndarray:
        """Returns the class of each text, [N]; of several labels 0 and 1, int [N, C]."""
        chances = self.predict_proba(X)  # [N, C]
        decisions = self.model_.decisions
        if self.model_.problem_type == "multi_label":
            return decisions.choose_several(chances)
        return self.classes_[decisions.choose(chances)]


def _by_name(values: Any) -> Any:
    """Returns a dict by class as a dict by the classes' names; other values as they are."""
    if not isinstance(values, Mapping):
        return values
    return {str(label): value for label, value in values.items()}
