"""Answers of files of classifiers."""

import numpy as np

from bert_tf.inference.kinds import KINDS
from bert_tf.inference.rows.answers import RowAnswers, row_outputs
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.serving.row_model import RowModel
from bert_tf.tasks.classification.answers import ClassifierAnswers, to_logits
from bert_tf.tasks.classification.decisions import Decisions

INFERENCE_LOGITS = ("entailment", "contradiction")


class RowClassifier(RowAnswers, ClassifierAnswers):
    """The answers of a file of a classifier."""

    def __init__(self, model: RowModel) -> None:
        super().__init__(model)
        # LiteRT files compute probabilities, from which only differences of logits can be
        # recovered.
        self.has_logits = model.has_logits
        self.problem_type = KINDS[model.card["kind"]].problem_type
        self.num_labels = max(1, len(model.labels))
        self.decisions = Decisions.of(
            self.problem_type,
            model.labels,
            temperature=model.card.get("temperature", 1.0),
            thresholds=model.card.get("thresholds"),
        )

    def predict_rows(self, rows: TokenizedDataset, batch_size: int) -> list[np.ndarray]:
        """Returns the logits of each row, float [C]."""
        outputs = row_outputs(self._model, rows, batch_size)
        if self.has_logits:
            return [row["logits"] for row in outputs]
        if self.problem_type == "regression":
            return [row["value"].reshape(1) for row in outputs]
        # The file divided its logits by the temperature before it computed probabilities.
        temperature = self.decisions.temperature
        logits = []
        for row in outputs:
            logits.append(temperature * to_logits(row["probabilities"], self.problem_type))
        return logits


class RowZeroShot(RowAnswers, ClassifierAnswers):
    """The answers of a file of a zero-shot classifier, with two logits of each pair."""

    problem_type = "single_label"

    def __init__(self, model: RowModel) -> None:
        super().__init__(model)
        # A model may lack the class of contradictions.
        self.known_labels = [name for name in INFERENCE_LOGITS if name in model.card["outputs"]]
        if model.has_logits:
            self.known_labels = model.card["classes"]
        self.num_labels = len(self.known_labels)

    def predict_rows(self, rows: TokenizedDataset, batch_size: int) -> list[np.ndarray]:
        """Returns the logits of each row, float32 [C]; of LiteRT files two of them."""
        outputs = row_outputs(self._model, rows, batch_size)
        if self._model.has_logits:
            return [row["logits"] for row in outputs]
        return [np.stack([row[name] for name in self.known_labels]) for row in outputs]
