"""The task of question answering: the first and last token of the answer (BERT section 4.2)."""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.metrics.squad import evaluate_v1, evaluate_v2
from bert_tf.network.losses import WeightedSum, mask_scores
from bert_tf.network.soft_losses import soft_class_losses
from bert_tf.system.type_names import Outputs
from bert_tf.tasks.base.programs.rows_task import CollectedOutputs, RowsTask
from bert_tf.tasks.question_answering.answers import (
    END,
    START,
    SquadPredictions,
    choose_answers,
    rank_outputs,
)
from bert_tf.tasks.question_answering.features import SquadExamples
from bert_tf.tasks.question_answering.joint_answers import rank_beam_outputs
from bert_tf.tasks.question_answering.joint_head import BEAM, NO_ANSWER, joint_losses
from bert_tf.tasks.question_answering.model import position_losses
from bert_tf.tasks.question_answering.questions import SquadQuestion
from bert_tf.training.task import Batch


class SquadTask(RowsTask):
    """Trains and evaluates a `BertSpanLabeler`."""

    rank = staticmethod(rank_outputs)

    def __init__(self, *arguments: Any, config: SquadConfig, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.config = config
        # best_f1 does not depend on the threshold, which is often chosen after the training.
        self.best_metric = "best_f1" if config.version_2_with_negative else "f1"

    def _losses(self, batch: Batch, outputs: Any) -> Any:
        """Returns the mean of both cross-entropies of each row, float32 [B]."""
        positions = {START: batch["start_positions"], END: batch["end_positions"]}
        losses = position_losses(outputs, batch["input_mask"], positions)
        return (losses[START] + losses[END]) / 2.0

    def loss_and_metric_sums(self, batch: Batch, outputs: Any) -> dict[str, WeightedSum]:
        """Returns the weighted sum of the loss, and with a teacher of its loss."""
        losses = self._losses(batch, outputs)  # [B]
        weights = batch["example_weights"]  # [B]

        def soft(teacher: Any, temperature: float) -> Any:
            """Returns the mean of start and end, [B]; the teacher's scores are [B, T, 2]."""
            soft_losses = []
            for index, name in enumerate((START, END)):
                # A distribution over the positions of the row; padding is masked.
                scores = mask_scores(outputs[name], batch["input_mask"])
                teacher_scores = mask_scores(teacher[..., index], batch["input_mask"])
                soft_losses.append(soft_class_losses(scores, teacher_scores, temperature))
            return sum(soft_losses) / 2.0

        return self.losses_with_teacher(batch, losses, soft, weights)

    def predictions(self, batch: Batch, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns the scores of each token [B, T] and the loss of each row [B]."""
        scores = {name: tf.cast(outputs[name], tf.float32) for name in outputs}
        return {**scores, "loss": self._losses(batch, outputs)}

    def answers(self, examples: SquadExamples, outputs: CollectedOutputs) -> SquadPredictions:
        """Returns the contents of the original's three output files."""
        ranked = self.rank(examples, outputs, self.config)
        return SquadPredictions.of_ranked(ranked, self.config)

    def metrics(self, examples: SquadExamples, outputs: CollectedOutputs) -> dict[str, float]:
        """Returns the mean loss of windows, and the official script's metrics, in percent."""
        loss = float(np.mean(outputs["loss"]))
        return {"loss": loss, **self.evaluate(examples, self.answers(examples, outputs))}

    def evaluate(self, examples: SquadExamples, predictions: SquadPredictions) -> dict[str, float]:
        """Returns exact match and F1; in version 2 also those at the best threshold.

        The best threshold is searched with the best answers that are not empty, as the README of
        google-research/bert recommends.
        """
        dataset = official_format(examples.questions)
        if not self.config.version_2_with_negative:
            return evaluate_v1(dataset, predictions.predictions)
        results = evaluate_v2(dataset, predictions.predictions)
        # An infinite threshold selects answers that are not empty.
        answers = choose_answers(predictions.nbest, predictions.null_odds, float("inf"))
        best = evaluate_v2(dataset, answers, predictions.null_odds, float("inf"))
        return results | {name: best[name] for name in best if name.startswith("best_")}


class JointSquadTask(SquadTask):
    """Trains and evaluates a `BertJointSpanLabeler`; arguments are those of `SquadTask`.

    Differs from the original, which sums the losses of a batch instead of averaging them. The
    evaluation loss is that of training, with ends given the annotated start; there it has no part
    for the ends.
    """

    rank = staticmethod(rank_beam_outputs)

    def _losses(self, batch: Batch, outputs: Outputs) -> Any:
        return joint_losses(
            outputs, batch["start_positions"], batch["end_positions"], batch["is_impossible"]
        )

    def predictions(self, batch: Batch, outputs: Outputs) -> dict[str, tf.Tensor]:
        """Returns the beam, the score of no answer and the loss of each row."""
        kept = {name: outputs[name] for name in (*BEAM, NO_ANSWER) if name in outputs}
        return {**kept, "loss": self._losses(batch, outputs)}


def official_format(questions: list[SquadQuestion]) -> dict[str, Any]:
    """Returns questions in the format of the official scripts."""
    rows = []
    for question in questions:
        # A question without answers is impossible: the scripts expect an empty list.
        answers = [{"text": answer.text} for answer in question.answers]
        rows.append({"id": question.id, "answers": answers})
    return {"data": [{"paragraphs": [{"qas": rows}]}]}
