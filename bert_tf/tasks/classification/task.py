"""The task of classifying texts: a class, several labels or a number (BERT section 4.1)."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config.fine_tuning_config import BALANCED
from bert_tf.metrics import classification, regression
from bert_tf.metrics.calibration import ReliabilityBin, calibration_error, log_losses, reliability
from bert_tf.network.losses import LabelLoss, WeightedSum, right_labels, weigh
from bert_tf.network.soft_losses import SOFT_LOSSES
from bert_tf.tasks.base.examples.labels import LabelNames
from bert_tf.tasks.base.programs.rows_task import CollectedOutputs, RowsTask
from bert_tf.tasks.classification.answers import mean_of_rows
from bert_tf.tasks.classification.decisions import Decisions
from bert_tf.tasks.classification.features import LABEL_NAMES, TextExamples
from bert_tf.training.task import Batch

# Metrics by problem type; the first one selects the best checkpoint.
METRICS = {
    "single_label": ("accuracy", "macro_f1"),
    "regression": ("pearson", "spearman"),
    "multi_label": ("micro_f1", "macro_f1", "accuracy"),
}
CLASS_METRICS: dict[str, Callable[..., float]] = {
    "accuracy": classification.accuracy,
    "f1": classification.f1,
    "matthews": classification.matthews,
}


def balanced_pos_weight(rows: np.ndarray) -> np.ndarray:
    """Returns the ratio of examples without and with each label, float32 [C].

    A label of no example, or of all, gets 1.

    Args:
      rows: [E, C], 1 for labels that apply.
    """
    counts = rows.sum(axis=0)
    # At least 1, to avoid a division by 0; such a label gets 1 in the next line.
    weights = (len(rows) - counts) / np.maximum(counts, 1)
    return np.where((counts > 0) & (counts < len(rows)), weights, 1.0).astype(np.float32)


def class_weights(text: str, values: np.ndarray, labels: Sequence[str]) -> np.ndarray | None:
    """Returns the weights of --class_weights, float32 [C]; None without weights.

    `balanced` is that of scikit-learn: examples / (classes * examples of the class); with several
    labels per text it is `balanced_pos_weight`. `values` are the labels of the training examples.
    """
    if not text:
        return None
    if text == BALANCED:
        if values.ndim == 2:
            return balanced_pos_weight(values)
        counts = np.bincount(values, minlength=len(labels))
        return (len(values) / (len(labels) * np.maximum(counts, 1))).astype(np.float32)
    weights = np.ones([len(labels)], np.float32)
    known = LabelNames(labels)
    for part in text.split(","):
        # From the right, because the name of a class may contain "=".
        name, _, value = part.rpartition("=")
        index = known.find(name)
        if index is None:
            raise ValueError(
                f"--class_weights: received {part!r}, expected CLASS=WEIGHT with a class of "
                f"{list(labels)[:10]}."
            )
        weights[index] = float(value)
    return weights


class ClassificationTask(RowsTask):
    """Trains and evaluates a `BertClassifier`.

    Args:
      kind: `single_label`, `regression` or `multi_label`.
      labels: names of the classes; empty for numbers.
      metric_names: metrics to report; the first one selects the best checkpoint.
      label_loss: the loss of training; None: the plain loss.

    Attributes:
      decisions: temperature and thresholds of the answers.
    """

    def __init__(
        self,
        *arguments: Any,
        kind: str,
        labels: Sequence[str],
        metric_names: Sequence[str],
        label_loss: LabelLoss | None = None,
        **keywords: Any,
    ) -> None:
        if kind == "single_label":
            self.sum_names = ("loss", "accuracy")
        super().__init__(*arguments, **keywords)
        self.kind = kind
        self.labels = tuple(labels)
        self.metric_names = tuple(metric_names)
        self.best_metric = self.metric_names[0]
        self.label_loss = label_loss or LabelLoss()
        self.decisions = Decisions()

    def _losses(self, batch: Batch, logits: Any, label_loss: LabelLoss) -> Any:
        """Returns the loss of each row, float32 [B]."""
        return label_loss.losses(self.kind, logits, batch[LABEL_NAMES[self.kind]])

    def loss_and_metric_sums(self, batch: Batch, outputs: Any) -> dict[str, WeightedSum]:
        """Returns weighted sums: the loss, with classes the accuracy, with a teacher its loss."""
        weights = batch["example_weights"]
        losses = self._losses(batch, outputs, self.label_loss)  # [B]
        soft = functools.partial(SOFT_LOSSES[self.kind], outputs)
        sums = self.losses_with_teacher(batch, losses, soft, weights)
        if self.kind == "single_label":
            # Class weights change the loss, but not the accuracy. Padding has weight 0.
            is_example = tf.cast(weights > 0, tf.float32)
            sums["accuracy"] = weigh(right_labels(outputs, batch["label_ids"]), is_example)
        return sums

    def predictions(self, batch: Batch, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns the scores and the plain loss of each row."""
        return {"logits": outputs, "loss": self._losses(batch, outputs, LabelLoss())}

    def metrics(self, examples: TextExamples, outputs: CollectedOutputs) -> dict[str, float]:
        """Returns the mean loss of rows, and the metrics of examples."""
        answers = self.answers(examples, outputs)
        values = {"loss": float(np.mean(outputs["loss"]))}
        if self.decisions.temperature != 1.0:
            values["loss"] = float(np.mean(self.losses(examples, outputs)))
        values |= label_metrics(self.kind, examples.labels, answers, self.labels, self.metric_names)
        if self.kind != "regression":
            values["expected_calibration_error"] = calibration_error(
                self.reliability(examples, outputs)
            )
        if self.decisions.temperature != 1.0:
            probabilities = Decisions().probabilities(self.logits(examples, outputs), self.kind)
            bins = reliability(probabilities, examples.labels)
            values["uncalibrated_loss"] = float(np.mean(outputs["loss"]))
            values["uncalibrated_calibration_error"] = calibration_error(bins)
        return values

    def losses(self, examples: TextExamples, outputs: CollectedOutputs) -> np.ndarray:
        """Returns the loss of each example, float [E]: the mean over its rows.

        With a temperature it is that of the probabilities that are reported.
        """
        if self.decisions.temperature == 1.0:
            counts = np.bincount(examples.owners)
            return np.bincount(examples.owners, np.array(outputs["loss"])) / counts
        labels = examples.labels.astype(int)
        return log_losses(self.probabilities(examples, outputs), labels)

    def reliability(
        self, examples: TextExamples, outputs: CollectedOutputs
    ) -> list[ReliabilityBin]:
        """Returns the accuracy of the answers by their probability; not available for numbers."""
        return reliability(self.probabilities(examples, outputs), examples.labels)

    def logits(self, examples: TextExamples, outputs: CollectedOutputs) -> np.ndarray:
        """Returns the logits of each example, float32 [E, C]: the mean over its rows."""
        return mean_of_rows(outputs["logits"], examples.owners, len(examples.examples))

    def answers(self, examples: TextExamples, outputs: CollectedOutputs) -> np.ndarray:
        """Returns the answers: classes [E], numbers [E], or 0 and 1 for each label [E, C]."""
        if self.kind == "regression":
            return self.logits(examples, outputs)[:, 0]
        probabilities = self.probabilities(examples, outputs)
        if self.kind == "multi_label":
            return self.decisions.choose_several(probabilities)
        return self.decisions.choose(probabilities)

    def probabilities(self, examples: TextExamples, outputs: CollectedOutputs) -> np.ndarray:
        """Returns softmax or sigmoid of the scores, float64 [E, C]; numbers are unchanged."""
        return self.decisions.probabilities(self.logits(examples, outputs), self.kind)


def label_metrics(
    kind: str, labels: np.ndarray, answers: np.ndarray, names: Sequence[str], wanted: Sequence[str]
) -> dict[str, float]:
    """Returns the metrics of answers by name.

    Args:
      labels: in the format of `label_array`, of this kind.
      answers: as of `ClassificationTask.answers`.
      wanted: the metrics of classes to compute; the other kinds always have the same ones.
    """
    if kind == "regression":
        values = regression.pearson_and_spearman(labels, answers)
        values["mean_squared_error"] = float(np.mean((labels - answers) ** 2))
        return values
    if kind == "multi_label":
        report = classification.multilabel_report(labels.astype(int), answers, names)
        return {
            "micro_f1": report.micro.f1,
            "macro_f1": report.macro.f1,
            "accuracy": report.accuracy,
        }
    known = {name: CLASS_METRICS[name] for name in wanted if name != "macro_f1"}
    values = {name: metric(labels, answers) for name, metric in known.items()}
    if "macro_f1" in wanted:
        # The mean over all C classes, also those without an example, hence their number.
        values["macro_f1"] = classification.macro_f1(labels, answers, len(names))
    return values
