"""The task of multiple choice: which of several endings follows a text (BERT section 4.4, SWAG)."""

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.metrics.classification import accuracy
from bert_tf.network.losses import LabelLoss, WeightedSum, class_losses, right_labels, weigh
from bert_tf.network.soft_losses import soft_class_losses
from bert_tf.system.type_names import Tensor
from bert_tf.tasks.base.programs.rows_task import RowsTask
from bert_tf.tasks.multiple_choice.features import ChoiceExamples
from bert_tf.training.task import Batch


class MultipleChoiceTask(RowsTask):
    """Trains and evaluates a `BertMultipleChoice`, without a `label_loss` by cross-entropy."""

    sum_names = ("loss", "accuracy")
    best_metric = "accuracy"

    def __init__(
        self, *arguments: Any, label_loss: LabelLoss | None = None, **keywords: Any
    ) -> None:
        super().__init__(*arguments, **keywords)
        self.label_loss = label_loss or LabelLoss()

    def loss_and_metric_sums(self, batch: Batch, outputs: Tensor) -> dict[str, WeightedSum]:
        """Returns the weighted sums of the loss and of the correct answers."""
        # [B], 0 for examples that only fill up the batch.
        weights = batch["example_weights"]
        losses = self.label_loss.losses("single_label", outputs, batch["label_ids"])  # [B]
        soft = functools.partial(soft_class_losses, outputs)
        return {
            **self.losses_with_teacher(batch, losses, soft, weights),
            "accuracy": weigh(right_labels(outputs, batch["label_ids"]), weights),
        }

    def predictions(self, batch: Batch, outputs: Tensor) -> dict[str, tf.Tensor]:
        """Returns the scores of the choices [B, C] and the plain loss of each row [B]."""
        return {"logits": outputs, "loss": class_losses(outputs, batch["label_ids"])}

    def metrics(self, examples: ChoiceExamples, outputs: Tensor) -> dict[str, float]:
        """Returns the loss and the accuracy."""
        # [N, C] -> [N]
        answers = np.stack(outputs["logits"]).argmax(axis=-1)
        loss = float(np.mean(outputs["loss"]))
        return {"loss": loss, "accuracy": accuracy(examples.labels, answers)}
