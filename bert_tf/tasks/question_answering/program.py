"""The program of SQuAD: reads official JSON; writes answers, n-best lists, null odds and scores."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.config.fine_tuning_defaults import SPAN_LENGTH
from bert_tf.metrics.squad import f1_or_both_empty
from bert_tf.system.type_names import Outputs, Strategy
from bert_tf.tasks.base.programs.program import (
    Configs,
    Examples,
    Program,
    RowsTaskData,
    read_inputs,
)
from bert_tf.tasks.base.programs.results import write_texts
from bert_tf.tasks.base.programs.teacher import add_teacher_logits, read_known
from bert_tf.tasks.question_answering.answers import SquadPredictions
from bert_tf.tasks.question_answering.features import QUESTION_REMEDY, SquadExamples, make_examples
from bert_tf.tasks.question_answering.joint_model import BertJointSpanLabeler
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.question_answering.questions import SquadQuestion
from bert_tf.tasks.question_answering.task import JointSquadTask, SquadTask
from bert_tf.text.tokenization import Tokenizer

if TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


class Squad(Program):
    """See `Program`."""

    head = "squad"
    needs_pooler = False
    # Not the length of the longest text: it must have room for a question and a window.
    default_lengths = SPAN_LENGTH, SPAN_LENGTH
    plot_titles = {
        "loss": "loss",
        "teacher_loss": "loss to the teacher",
        "f1": "F1 (%)",
        "exact_match": "exact match (%)",
        "exact": "exact match (%)",
        "best_f1": "F1 at the best threshold (%)",
    }

    def __init__(
        self, configs: Configs, files: dict[str, str], inputs: dict[str, Any] | None = None
    ) -> None:
        super().__init__(configs, files, inputs)
        self.is_joint = configs.task.span_head == "joint"
        if self.is_joint:
            self.head = "joint_squad"

    def check_missing_head(self, weights: "Checkpoint | None", do_train: bool) -> None:
        """Reports the value of --span_head that fits the weights, if they have the other head."""
        # The two heads have different weights, so that the flag must name the checkpoint's.
        other = "squad" if self.is_joint else "joint_squad"
        span_head = "independent" if self.is_joint else "joint"
        if weights and other in weights.heads and self.head not in weights.heads:
            if not do_train:
                raise ValueError(
                    f"{weights.source} has another head: give --span_head={span_head}."
                )
            logging.warning(
                "%s has the head of --span_head=%s, which is left out; a new head is trained.",
                weights.source,
                span_head,
            )

    def read(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> Examples:
        """Tokenizes the questions, and splits their contexts into windows."""
        length = self.configs.data.max_seq_length

        def make(use: str, file: str) -> SquadExamples:
            questions = self.inputs[use]
            examples = make_examples(questions, tokenizer, length, self.configs.task)
            logging.info(
                "%s: %d questions, %d windows of up to %d tokens.",
                use,
                len(questions),
                len(examples.features),
                length,
            )
            return examples

        return Examples.of_files(read_inputs(self.files, make, QUESTION_REMEDY))

    def compute_teacher_outputs(
        self, examples: Examples, tokenizer: Tokenizer, strategy: Strategy
    ) -> None:
        """Adds the teacher's scores of each token as start and end, float32 [num_tokens, 2]."""
        teacher = read_known(self.configs, tokenizer, self.head)
        rows = examples.train.rows
        add_teacher_logits(rows, BertSpanLabeler, teacher, self.configs, strategy)

    def make_task(self, labels: tuple[str, ...], data: RowsTaskData, **options: Any) -> SquadTask:
        config = self.configs.model
        given = self.configs.task
        if self.is_joint:
            reading = {name: getattr(given, name) for name in SquadConfig.names()}
            options |= {"answerable": given.version_2_with_negative, "reading": reading}
            return JointSquadTask(BertJointSpanLabeler(config, **options), *data, config=given)
        return SquadTask(BertSpanLabeler(config, **options), *data, config=given, teacher=given)

    def report(self, examples: SquadExamples, outputs: Outputs) -> dict[str, str]:
        """Returns worst_errors.tsv: the questions with the lowest F1."""
        predictions = self._answers(examples, outputs)
        return {"worst_errors.tsv": worst_answers_text(examples.questions, predictions)}

    def _answers(self, examples: SquadExamples, outputs: Outputs) -> SquadPredictions:
        predictions = self.task.answers(examples, outputs)
        warn_if_all_empty(predictions, self.configs.task.null_score_diff_threshold)
        return predictions

    def write_predictions(self, name: str, examples: SquadExamples, outputs: Outputs) -> None:
        """Writes the three files of the original."""
        predictions = self._answers(examples, outputs)
        files = {
            "predictions.json": predictions.predictions,
            "nbest_predictions.json": predictions.nbest,
        }
        if self.configs.task.version_2_with_negative:
            files["null_odds.json"] = predictions.null_odds
        texts = {name: json.dumps(values, indent=4) + "\n" for name, values in files.items()}
        write_texts(self.folder, texts)


def warn_if_all_empty(predictions: SquadPredictions, threshold: float) -> None:
    """Warns if the answers to all questions are empty."""
    if any(predictions.predictions.values()):
        return
    remedy = "train longer, or check the training file"
    if predictions.null_odds:
        # The threshold is the usual cause: with odds above it, no answer is not empty.
        lowest = min(predictions.null_odds.values())
        remedy = (
            f"--null_score_diff_threshold={threshold:g} is below all null odds, the lowest of "
            f"which is {lowest:.3g}: raise it, train longer, or check the training file"
        )
    logging.warning("All %d answers are empty; %s.", len(predictions.predictions), remedy)


MAX_QUESTIONS = 50
CONTEXT_CHARACTERS = 200


def worst_answers_text(questions: Sequence[SquadQuestion], predictions: SquadPredictions) -> str:
    """Returns a tab-separated table of the questions with the lowest F1.

    Among equal F1, answers with the highest probability in the n-best list come first.
    """
    rows = []
    for question in questions:
        prediction = predictions.predictions[question.id]
        answers = [answer.text for answer in question.answers] or [""]
        f1 = max(f1_or_both_empty(prediction, answer) for answer in answers)
        probability = 0.0
        for entry in predictions.nbest[question.id]:
            if entry["text"] == prediction:
                probability = entry["probability"]
                break
        if f1 < 1.0:
            rows.append((f1, probability, question, prediction, answers))
    rows.sort(key=lambda row: (row[0], -row[1]))
    lines = ["f1\tprobability\tid\tquestion\tprediction\tanswers\tcontext\n"]
    for f1, probability, question, prediction, answers in rows[:MAX_QUESTIONS]:
        cells = (
            f"{f1:.3f}",
            f"{probability:.3f}",
            question.id,
            question.question,
            prediction or "(no answer)",
            " | ".join(dict.fromkeys(answers)) or "(no answer)",
            question.context[:CONTEXT_CHARACTERS],
        )
        # Tabs and line ends inside cells become spaces.
        lines.append("\t".join(" ".join(cell.split()) for cell in cells) + "\n")
    return "".join(lines)
