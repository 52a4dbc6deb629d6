"""The classification program: trains on labelled texts; writes answers, scores, reports."""

from collections.abc import Callable
from typing import Any

import numpy as np
from absl import logging

from bert_tf.checkpoints import run_record
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.config.fine_tuning_defaults import LEAST_LENGTH, MOST_LENGTH
from bert_tf.network.losses import label_loss_of
from bert_tf.system.bounded_files import read_optional_text
from bert_tf.system.type_names import Outputs
from bert_tf.tasks.base.programs.program import Configs, Examples, Program, RowsTaskData, source_of
from bert_tf.tasks.base.programs.results import write_texts
from bert_tf.tasks.base.programs.teacher import add_teacher_logits, check_labels, read_known
from bert_tf.tasks.classification import decisions
from bert_tf.tasks.classification.features import TextExamples, make_examples
from bert_tf.tasks.classification.glue import glue_submission_name, glue_submission_rows, glue_task
from bert_tf.tasks.classification.inputs import LabelledTexts
from bert_tf.tasks.classification.label_arrays import describe, label_array
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.classification.page import ShownError, run_page, token_contributions
from bert_tf.tasks.classification.report import (
    calibration_text,
    class_report_text,
    predictions_texts,
    reliability_figure,
    several_report_text,
    worst_errors_text,
)
from bert_tf.tasks.classification.task import METRICS, ClassificationTask, class_weights
from bert_tf.text.packing import INPUTS
from bert_tf.text.text_counts import counting_texts
from bert_tf.text.tokenization import Tokenizer
from bert_tf.training.curves import write_figure

MAX_SHOWN_ERRORS = 25  # in report.html


class Classifier(Program):
    """See `Program`; `texts` are the examples of the files."""

    head = "classifier"
    needs_pooler = True
    default_lengths: tuple[int, int] | None = (LEAST_LENGTH, MOST_LENGTH)
    plot_titles = {
        "loss": "loss",
        "teacher_loss": "loss to the teacher",
        "accuracy": "accuracy",
        "f1": "F1",
        "macro_f1": "macro F1",
        "micro_f1": "micro F1",
        "matthews": "Matthews' correlation",
        "pearson": "Pearson's correlation",
        "spearman": "Spearman's correlation",
    }

    def __init__(self, configs: Configs, files: dict[str, str], texts: LabelledTexts) -> None:
        super().__init__(configs, files)
        self.texts = texts
        self.reads_glue = texts.reads_glue
        self.glue = texts.glue
        self.kind = texts.kind
        self.pos_weight: tuple[float, ...] = ()
        self.tokens: tuple[str, ...] = ()
        if not configs.training.do_train:
            check_kind(source_of(configs.training), self.kind)

    def receive_weights(self, weights: Checkpoint | None) -> None:
        """Refuses weights for labels of another kind, if they are used as they are."""
        if weights is None or self.configs.training.do_train:
            return
        if weights.problem_type and weights.problem_type != self.kind:
            raise ValueError(
                f"{weights.source} is for labels of kind {weights.problem_type}, not {self.kind}; "
                f"give --problem_type={weights.problem_type}."
            )

    def read(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> Examples:
        """Makes rows of the splits that the flags ask for."""
        splits = self.texts.splits
        self.tokens = tokenizer.vocab.tokens
        names = self.texts.choose_labels(labels)
        remedy = self.text_remedy(self.configs.task.long_texts)

        def make(split: str) -> TextExamples:
            examples = splits[split]
            logging.info("%s: %s", split, describe(examples, names))
            is_labelled = self.texts.is_labelled(examples, names, split.startswith("test"))
            # Zeros, in the format of the loss, stand in for labels that are not known.
            empty = np.zeros(
                [len(examples), len(names)] if self.kind == "multi_label" else len(examples)
            )
            values = empty.astype(np.int32 if self.kind == "single_label" else np.float32)
            if is_labelled:
                values = label_array(examples, names, self.kind)
            weights = None
            given = self.configs.task
            if split == "train":
                weights = class_weights(given.class_weights, values, names)
                # With several labels, class weights are part of the loss instead of the examples.
                if self.kind == "multi_label" and weights is not None:
                    self.pos_weight = tuple(weights.tolist())
                    weights = None
            with counting_texts(split, remedy=remedy):
                made = make_examples(
                    examples,
                    values,
                    self.kind,
                    tokenizer,
                    self.configs.data.max_seq_length,
                    given.long_texts,
                    weights,
                    is_labelled=is_labelled,
                )
            log_lengths(made)
            return made

        made = {split: make(split) for split in splits}
        if "dev" in made and self.files["eval"] == self.files.get("predict"):
            # The same file: its examples were read and packed once.
            made["test"] = made["dev"]

        def sets(start: str) -> dict[str, TextExamples]:
            return {name.partition("_")[2]: made[name] for name in made if name.startswith(start)}

        return Examples(made.get("train"), sets("dev"), sets("test"), names)

    def compute_teacher_outputs(
        self, examples: Examples, tokenizer: Tokenizer, strategy: Any
    ) -> None:
        """Adds `teacher_logits` float32 [N, C]."""
        teacher = read_known(self.configs, tokenizer, self.head)
        kind = teacher.problem_type or self.kind
        # The teacher's head may have the labels in another order.
        order = check_labels(teacher, examples.labels, kind, self.kind)
        rows = examples.train.rows
        add_teacher_logits(rows, BertClassifier, teacher, self.configs, strategy, order)

    def make_task(
        self, labels: tuple[str, ...], data: RowsTaskData, **options: Any
    ) -> ClassificationTask:
        metrics = METRICS[self.kind]
        if self.glue:
            best = self.glue.best_metric
            # The first metric selects the best checkpoint.
            metrics = (best, *(name for name in self.glue.metrics if name != best))
        best = self.configs.task.best_metric or metrics[0]
        known = ("loss", *metrics)
        if best not in known:
            raise ValueError(f"--best_metric={best}: expected one of {list(known)}.")
        task = ClassificationTask(
            # Without labels there is one score, the number.
            BertClassifier(self.configs.model, max(1, len(labels)), **options),
            *data,
            kind=self.kind,
            labels=labels,
            metric_names=metrics,
            label_loss=label_loss_of(self.configs.task, self.pos_weight),
            teacher=self.configs.task,
        )
        task.decisions = self.texts.decisions(labels)
        task.best_metric = best
        if self.kind == "regression" and data[0]:
            # From 0 a few hundred small steps do not reach numbers of another size. A checkpoint
            # that has a head replaces this.
            task.model.head.output_bias.assign([data[0].labels["label_values"].mean()])
        return task

    def before_evaluation(
        self, examples: Examples, compute: Callable[[TextExamples], Any], is_chief: bool
    ) -> None:
        """Uses the calibration of an earlier command, and does that which the flags ask for."""
        if self.configs.training.do_train:
            self._read_calibration()
        if self.configs.task.calibrate or self.configs.task.choose_thresholds:
            first = next(iter(examples.eval.values()))
            settings = self._calibrate(first, compute(first))
            if is_chief:
                run_record.write_calibration(self.folder, settings)

    def _read_calibration(self) -> None:
        """Uses temperature and thresholds that an earlier command chose for a finished run."""
        if (self.folder / run_record.CALIBRATION_NAME).exists():
            given = self.configs.task
            arguments = decisions.arguments_of(run_record.read_record(self.folder))
            # Flags of this command come first.
            if given.temperature != 1.0:
                arguments["temperature"] = given.temperature
            if given.thresholds:
                arguments["thresholds"] = decisions.parse_thresholds(given.thresholds)
            labels = self.task.labels
            self.task.decisions = decisions.Decisions.of(self.kind, labels, **arguments)

    def _calibrate(self, examples: TextExamples, outputs: Outputs) -> dict[str, str]:
        """Chooses temperature and thresholds, and logs their effect; returns them by flag."""
        given = self.configs.task
        task = self.task
        logits = task.logits(examples, outputs)
        # Several labels are float32, for the loss; the metrics take integers.
        labels = examples.labels.astype(int)
        chosen = (logits, labels, task.kind)
        before = task.metrics(examples, outputs)
        if given.calibrate:
            task.decisions = decisions.calibrated(task.decisions, *chosen)
        if given.choose_thresholds:
            task.decisions = decisions.with_best_thresholds(task.decisions, *chosen)
        after = task.metrics(examples, outputs)
        settings = decisions.settings_of(task.decisions, task.labels)
        described = ", ".join(f"{name} {value}" for name, value in settings.items())
        logging.info("Chosen on %d development examples: %s.", len(labels), described or "nothing")
        for name in [name for name in after if name in before]:
            logging.info("  %-28s %.4f, before %.4f", name, after[name], before[name])
        return settings

    def after_evaluation(
        self,
        ending: str,
        examples: TextExamples,
        outputs: Outputs,
        results: dict[str, float] | None,
    ) -> None:
        """Writes reliability.png (with classes), and report.html if --html_report asks for it."""
        if self.kind != "regression":
            figure = reliability_figure(self.task.reliability(examples, outputs))
            write_figure(self.folder / f"reliability{ending}.png", figure)
        if results is not None and self.configs.task.html_report:
            self._write_page(examples, outputs, results)

    def report(self, examples: TextExamples, outputs: Outputs) -> dict[str, str]:
        """Returns report.txt (with classes) and worst_errors.tsv."""
        task = self.task
        answers = task.answers(examples, outputs)
        true = examples.labels
        texts: dict[str, str] = {}
        if task.kind != "regression":
            make = class_report_text if task.kind == "single_label" else several_report_text
            texts["report.txt"] = make(true.astype(int), answers, task.labels)
            bins = task.reliability(examples, outputs)
            texts["report.txt"] += "\n" + calibration_text(bins, task.decisions, task.labels)
        is_wrong = wrong_answers(examples, answers)
        losses = task.losses(examples, outputs)
        answers_shown = answer_texts(task, answers)
        max_errors = self.configs.task.num_worst_errors
        worst = worst_errors_text(examples.examples, losses, answers_shown, is_wrong, max_errors)
        return {**texts, "worst_errors.tsv": worst}

    def _write_page(
        self, examples: TextExamples, outputs: Outputs, results: dict[str, float]
    ) -> None:
        """Writes report.html."""
        folder = self.folder
        report = ""
        if self.kind != "regression":
            report = read_optional_text(folder / "report.txt")
        page = run_page(
            # A later command may predict the file that was evaluated, without evaluating again.
            f"{folder.name}: {self.files.get('eval') or self.files['predict']}",
            results,
            {"Curves": folder / "curves.png", "Calibration": folder / "reliability.png"},
            report,
            self._shown_errors(examples, outputs),
        )
        write_texts(folder, {"report.html": page})

    def _shown_errors(self, examples: TextExamples, outputs: Outputs) -> list[ShownError]:
        """Returns the wrong answers with the highest losses, and the part of each token."""
        task = self.task
        answers = task.answers(examples, outputs)
        losses = task.losses(examples, outputs)
        wrong = np.flatnonzero(wrong_answers(examples, answers))
        most = min(MAX_SHOWN_ERRORS, self.configs.task.num_worst_errors)
        worst = wrong[np.argsort(-losses[wrong], kind="stable")][:most]
        if not len(worst) or not self.tokens:
            return []
        columns = np.zeros(len(worst), int)  # The score that is explained.
        if task.kind == "single_label":
            columns = answers[worst]
        elif task.kind == "multi_label":  # The label that is most wrong.
            chances = task.probabilities(examples, outputs)[worst]
            columns = np.abs(chances - examples.labels[worst]).argmax(axis=-1)
        rows = np.searchsorted(examples.owners, worst)  # The first window of each text.
        lengths = examples.rows.lengths[rows]
        batch = examples.rows.batch(rows, len(rows), int(lengths.max()))
        inputs = {name: batch[name] for name in INPUTS}
        contributions = token_contributions(task.model, inputs, columns)
        names = answer_texts(task, answers)
        shown = []
        for number, index in enumerate(worst):
            count = int(lengths[number])
            example = examples.examples[index]
            shown.append(
                ShownError(
                    loss=float(losses[index]),
                    label=example.label or "",
                    answer=names[index],
                    explained=task.labels[columns[number]] if task.labels else names[index],
                    source=example.source,
                    tokens=[self.tokens[i] for i in inputs["input_word_ids"][number, :count]],
                    contributions=contributions[number, :count].tolist(),
                )
            )
        return shown

    def write_predictions(self, name: str, examples: TextExamples, outputs: Outputs) -> None:
        """Writes Google's test_results.tsv, predictions.tsv with names, GLUE's submission file."""
        task = self.task
        probabilities = task.probabilities(examples, outputs)
        classes = task.answers(examples, outputs)
        texts = predictions_texts(examples.examples, answer_texts(task, classes), probabilities)
        write_texts(self.folder, texts, f"_{name}" if name else "")
        if self.glue and self.reads_glue:
            ids = [example.id for example in examples.examples]
            lines = (f"{line}\n" for line in glue_submission_rows(self.glue, ids, classes))
            name = glue_submission_name(self.glue, f"test_{name}" if name else "test")
            write_texts(self.folder, {name: "".join(lines)})


def wrong_answers(examples: TextExamples, answers: np.ndarray) -> np.ndarray:
    """Returns which answers are wrong in any label, bool [E]."""
    # [E] of classes, or [E, C] of several labels, of which one wrong decision is enough.
    return (examples.labels != answers).reshape(len(answers), -1).any(axis=-1)


def check_kind(source: str, kind: str) -> None:
    """Raises ValueError if a run was trained on labels of another kind."""
    before = recorded_kind(source)
    if before and before != kind:
        raise ValueError(
            f"{source} was trained with labels of kind {before}, not {kind}: leave --problem_type "
            f"and --task_name out, because they are taken from the run."
        )


def recorded_kind(source: str) -> str:
    """Returns the kind of labels that a run directory was trained on; "" if it does not say."""
    if task := run_record.recorded(source, "task_name"):
        if glue_task(task).labels:
            return "single_label"
        return "regression"
    return run_record.recorded(source, "problem_type")


def log_lengths(made: TextExamples) -> None:
    """Logs the lengths of the rows."""
    rows = made.rows
    logging.info(
        "  %d rows, %.1f tokens on average, the longest %d.",
        len(rows),
        rows.num_tokens / max(1, len(rows)),
        rows.lengths.max(initial=0),
    )


def answer_texts(task: ClassificationTask, answers: np.ndarray) -> list[str]:
    """Returns the names of the answers; several are separated by |."""
    if task.kind == "regression":
        return [f"{value:.6g}" for value in answers]
    if task.kind == "single_label":
        return [task.labels[answer] for answer in answers]
    names = np.array(task.labels, object)
    return ["|".join(names[row == 1]) for row in answers]
