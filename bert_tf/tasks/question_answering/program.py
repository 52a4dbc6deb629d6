"""SQuAD as a program: official JSON in; answers, n-best lists, null odds and scores out."""

import json
import pathlib
from typing import TYPE_CHECKING, Any

from absl import logging

from bert_tf.config import ModelConfig
from bert_tf.fine_tuning.inputs import read_inputs
from bert_tf.fine_tuning.program import Configs, Examples, Program, RowsTaskData
from bert_tf.fine_tuning.results import write_texts
from bert_tf.fine_tuning.rows_task import TEACHER_LOGITS
from bert_tf.fine_tuning.teacher import read_known, teacher_outputs
from bert_tf.fine_tuning_config import SquadConfig
from bert_tf.fine_tuning_defaults import SPAN_LENGTH
from bert_tf.tasks.question_answering.answers import SquadPredictions
from bert_tf.tasks.question_answering.joint_model import BertJointSpanLabeler
from bert_tf.tasks.question_answering.joint_task import JointSquadTask
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.question_answering.report import worst_answers_text
from bert_tf.tasks.question_answering.task import SquadExamples, SquadTask, make_examples
from bert_tf.text.tokenization import Tokenizer
from bert_tf.type_names import Outputs, Strategy

if TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


class Squad(Program):
    """See `Program`."""

    head = "squad"
    needs_pooler = False
    default_lengths = SPAN_LENGTH, SPAN_LENGTH  # Questions and windows need their room.
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
        """Names the setting that goes with the other head, if the weights have that one."""
        other, span_head = ("squad", "independent") if self.is_joint else ("joint_squad", "joint")
        if weights and other in weights.heads and self.head not in weights.heads:
            if not do_train:
                raise ValueError(
                    f"{weights.source} has another head: give --span_head={span_head}."
                )
            logging.warning(
                "%s has the head of --span_head=%s, which is left out; a new one is trained.",
                *(weights.source, span_head),
            )

    def read(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> Examples:
        """Makes windows of the questions."""
        given, length = self.configs.task, self.configs.data.max_seq_length

        def make(use: str, file: str) -> SquadExamples:
            questions = self.inputs[use]
            made = make_examples(questions, tokenizer, length, given)
            logging.info(
                "%s: %d questions, %d windows of up to %d tokens.",
                *(use, len(questions), len(made.features), length),
            )
            return made

        return Examples.of_files(read_inputs(self.files, make))

    def compute_teacher_outputs(
        self, examples: Examples, tokenizer: Tokenizer, strategy: Strategy
    ) -> None:
        """Adds `TEACHER_LOGITS` of each token, as first and as last one: [num_tokens, 2]."""
        teacher = read_known(self.configs, tokenizer, self.head)
        model = BertSpanLabeler.from_checkpoint(teacher, unpad=True, dtype="float32")
        rows = examples.train.rows
        found = teacher_outputs(model, teacher, rows, self.configs, strategy)
        rows.token_scores[TEACHER_LOGITS] = found

    def make_task(
        self, config: ModelConfig, labels: tuple[str, ...], data: RowsTaskData, **options: Any
    ) -> SquadTask:
        """Makes the model and its task."""
        given = self.configs.task
        if self.is_joint:
            reading = {name: getattr(given, name) for name in SquadConfig.names()}
            options |= {"answerable": given.version_2_with_negative, "reading": reading}
            return JointSquadTask(BertJointSpanLabeler(config, **options), *data, config=given)
        return SquadTask(BertSpanLabeler(config, **options), *data, config=given, teacher=given)

    def report(self, task: SquadTask, examples: SquadExamples, outputs: Outputs) -> dict[str, str]:
        """Returns worst_errors.tsv: the questions with the lowest F1."""
        found = task.answers(examples, outputs)
        warn_of_silence(found, task.config.null_score_diff_threshold)
        return {"worst_errors.tsv": worst_answers_text(examples.questions, found)}

    def write_predictions(
        self,
        folder: pathlib.Path,
        task: SquadTask,
        name: str,
        examples: SquadExamples,
        outputs: Outputs,
    ) -> None:
        """Writes the three files of the original."""
        found = task.answers(examples, outputs)
        warn_of_silence(found, task.config.null_score_diff_threshold)
        files = {"predictions.json": found.predictions, "nbest_predictions.json": found.nbest}
        if task.config.version_2_with_negative:
            files["null_odds.json"] = found.null_odds
        write_texts(folder, {name: json.dumps(files[name], indent=4) + "\n" for name in files})


def warn_of_silence(found: SquadPredictions, threshold: float) -> None:
    """Warns if no question got an answer."""
    if any(found.predictions.values()):
        return
    remedy = "train longer, or look at the training file"
    if found.null_odds:
        remedy = (
            f"--null_score_diff_threshold={threshold:g} lies below all null odds, from "
            f"{min(found.null_odds.values()):.3g} on: raise it, train longer, or look at the "
            "training file"
        )
    logging.warning("All %d answers are empty; %s.", len(found.predictions), remedy)
