"""The program of multiple choice: reads SWAG's tables or JSONL; writes answers and scores."""

from typing import Any

import numpy as np
from absl import logging

from bert_tf.config.fine_tuning_defaults import LEAST_LENGTH, MOST_LENGTH
from bert_tf.network.losses import label_loss_of
from bert_tf.system.type_names import Outputs, Strategy
from bert_tf.tasks.base.programs.program import Examples, Program, RowsTaskData, read_inputs
from bert_tf.tasks.base.programs.results import table_text, write_texts
from bert_tf.tasks.base.programs.teacher import add_teacher_logits, read_known
from bert_tf.tasks.multiple_choice.answers import best_choice
from bert_tf.tasks.multiple_choice.features import ChoiceExamples, make_examples
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.text.tokenization import Tokenizer

MAX_ERRORS = 50


class MultipleChoice(Program):
    """See `Program`."""

    head = "classifier"
    needs_pooler = True
    default_lengths = LEAST_LENGTH, MOST_LENGTH
    plot_titles = {"loss": "loss", "teacher_loss": "loss to the teacher", "accuracy": "accuracy"}

    def read(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> Examples:
        length = self.configs.data.max_seq_length

        def make(use: str, file: str) -> ChoiceExamples:
            examples = self.inputs[use]
            packed = make_examples(examples, tokenizer, length)
            num_choices = len(examples[0].choices)
            logging.info("%s: %d examples of %d choices.", use, len(examples), num_choices)
            return packed

        return Examples.of_files(read_inputs(self.files, make, self.text_remedy()))

    def compute_teacher_outputs(
        self, examples: Examples, tokenizer: Tokenizer, strategy: Strategy
    ) -> None:
        """Adds the teacher's logits of the choices, `TEACHER_LOGITS` float32 [N, C]."""
        teacher = read_known(self.configs, tokenizer, self.head)
        # A regression of texts has one label as well, but it states its problem type.
        if teacher.num_labels != 1 or teacher.problem_type:
            raise ValueError(
                f"--teacher={teacher.source} is a classifier of texts; expected a model of "
                "run_multiple_choice, which has one score for each choice."
            )
        rows = examples.train.rows
        add_teacher_logits(rows, BertMultipleChoice, teacher, self.configs, strategy)

    def make_task(
        self, labels: tuple[str, ...], data: RowsTaskData, **options: Any
    ) -> MultipleChoiceTask:
        return MultipleChoiceTask(
            BertMultipleChoice(self.configs.model, **options),
            *data,
            label_loss=label_loss_of(self.configs.task),
            teacher=self.configs.task,
        )

    def report(self, examples: ChoiceExamples, outputs: Outputs) -> dict[str, str]:
        """Returns worst_errors.tsv: wrong answers, the highest loss first."""
        answers = np.stack(outputs["logits"]).argmax(axis=-1)  # [N]
        losses = np.array(outputs["loss"])  # [N]
        wrong = np.flatnonzero(answers != examples.labels)
        # Stable, so that equal losses stay in the order of the file.
        worst_first = wrong[np.argsort(-losses[wrong], kind="stable")]
        rows = []
        for index in worst_first[:MAX_ERRORS]:
            example = examples.examples[index]
            label = examples.labels[index]
            answer = answers[index]
            rows.append(
                (
                    f"{losses[index]:.4f}",
                    label,
                    answer,
                    example.source,
                    text_before(example),
                    example.choices[label],
                    example.choices[answer],
                )
            )
        header = "loss label answer source context right chosen"
        return {"worst_errors.tsv": table_text(header, rows)}

    def write_predictions(self, name: str, examples: ChoiceExamples, outputs: Outputs) -> None:
        """Writes predictions.tsv: the index of the chosen ending, all scores, and the texts."""
        rows = []
        for example, logits in zip(examples.examples, outputs["logits"], strict=True):
            scores = " ".join(f"{value:.6f}" for value in logits)
            chosen, _ = best_choice(logits)
            choice = example.choices[chosen]
            rows.append((example.id, chosen, scores, text_before(example), choice))
        header = "id answer scores context chosen"
        write_texts(self.folder, {"predictions.tsv": table_text(header, rows)})


def text_before(example: Any) -> str:
    """Returns the text before the choices."""
    return f"{example.context} {example.start}".strip()
