"""Question answering on SQuAD: the first and the last piece of the answer (BERT section 4.2)."""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.fine_tuning.rows_task import RowsTask
from bert_tf.fine_tuning_config import SquadConfig
from bert_tf.metrics.squad import evaluate_v1, evaluate_v2
from bert_tf.network.losses import WeightedSum, mask_scores, span_losses
from bert_tf.objectives.distillation import soft_class_losses
from bert_tf.tasks.question_answering.answers import (
    SquadPredictions,
    choose_answers,
    make_predictions,
)
from bert_tf.tasks.question_answering.features import SquadExamples, SquadQuestion
from bert_tf.tasks.question_answering.features import make_examples as make_examples
from bert_tf.training.task import Batch

NO_SCORE = -1e4  # of positions beyond a row, which are never looked at


class SquadTask(RowsTask):
    """A `BertSpanLabeler` with questions; arguments after those of `RowsTask`:

    Args:
      config: how answers are chosen.
    """

    def __init__(self, *arguments: Any, config: SquadConfig, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.config = config
        self.best_metric = "best_f1" if config.version_2_with_negative else "f1"

    def _losses(self, batch: Batch, outputs: Any) -> Any:
        """Returns the mean of both cross-entropies of each row, float32 [B]."""
        mask = batch["input_mask"]
        start = span_losses(outputs["start_logits"], mask, batch["start_positions"])
        end = span_losses(outputs["end_logits"], mask, batch["end_positions"])
        return (start + end) / 2.0

    def loss_and_metric_sums(self, batch: Batch, outputs: Any) -> dict[str, WeightedSum]:
        """Returns the loss."""
        losses, weights = self._losses(batch, outputs), batch["example_weights"]

        def soft(teacher: Any, temperature: float) -> Any:
            return soft_span_losses(outputs, teacher, batch["input_mask"], temperature)

        return self.losses_with_teacher(batch, losses, soft, weights)

    def predictions(self, batch: Batch, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns the scores of each piece and the loss of each row."""
        scores = {name: tf.cast(outputs[name], tf.float32) for name in outputs}
        return {**scores, "loss": self._losses(batch, outputs)}

    def answers(self, examples: SquadExamples, outputs: Any) -> SquadPredictions:
        """Returns what the original writes to its three files."""
        config = self.config
        return make_predictions(
            examples.questions,
            examples.features,
            _padded(outputs["start_logits"]),
            _padded(outputs["end_logits"]),
            config.version_2_with_negative,
            config.n_best_size,
            config.max_answer_length,
            config.null_score_diff_threshold,
        )

    def metrics(self, examples: SquadExamples, outputs: Any) -> dict[str, float]:
        """Returns the loss of a window, and what the official script reports, in percent."""
        loss = float(np.mean(outputs["loss"]))
        return {"loss": loss, **self.judge(examples, self.answers(examples, outputs))}

    def judge(self, examples: SquadExamples, found: SquadPredictions) -> dict[str, float]:
        """Returns exact match and F1; of version 2 also those of the best threshold.

        The best threshold is looked for with the best answers that are not empty, as the README of
        google-research/bert advises.
        """
        dataset = _official(examples.questions)
        if not self.config.version_2_with_negative:
            return evaluate_v1(dataset, found.predictions)
        results = evaluate_v2(dataset, found.predictions)
        always = choose_answers(found.nbest, found.null_odds, float("inf"))
        best = evaluate_v2(dataset, always, found.null_odds, float("inf"))
        return results | {name: best[name] for name in best if name.startswith("best_")}


def soft_span_losses(outputs: Any, teacher: Any, input_mask: Any, temperature: float) -> Any:
    """Returns the mean over start and end of the losses to the teacher's positions, float32 [B].

    Args:
      outputs: of `BertSpanLabeler`.
      teacher: both of its scores, float32 [B, T, 2].
      input_mask: int32 [B, T].
      temperature: see `soft_class_losses`.
    """
    losses = [
        soft_class_losses(
            mask_scores(outputs[name], input_mask),
            mask_scores(teacher[..., index], input_mask),
            temperature,
        )
        for index, name in enumerate(("start_logits", "end_logits"))
    ]
    return sum(losses) / 2.0


def _official(questions: list[SquadQuestion]) -> dict[str, Any]:
    """Returns questions in the form that the official scripts read."""
    rows = [
        {"id": q.id, "answers": [{"text": answer.text} for answer in q.answers]} for q in questions
    ]
    return {"data": [{"paragraphs": [{"qas": rows}]}]}


def _padded(rows: list[np.ndarray]) -> np.ndarray:
    padded = np.full([len(rows), max(map(len, rows), default=0)], NO_SCORE, np.float32)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded
