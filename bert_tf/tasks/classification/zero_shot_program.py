"""`run_classifier --zero_shot`: classifies the texts of tables among candidate labels.

predictions.tsv     id, answer, score and text of each row of --predict_file
test_results.tsv    the probabilities of the candidates, in their order
eval_results.txt    scores of --eval_file, whose labels are candidates
report.txt          scores of each candidate, and the confusions
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import logging

from bert_tf.checkpoints.run_record import RUN_NAME
from bert_tf.config import Config, DataConfig, config_flags, option
from bert_tf.config.rules import check_rules
from bert_tf.metrics.classification import THRESHOLD
from bert_tf.tasks.base.programs.program import Configs, asked_files
from bert_tf.tasks.base.programs.results import results_text, write_texts
from bert_tf.tasks.classification.decisions import Decisions
from bert_tf.tasks.classification.examples import TextExample, read_text_examples
from bert_tf.tasks.classification.inputs import ZERO_SHOT_RULES
from bert_tf.tasks.classification.label_arrays import label_array
from bert_tf.tasks.classification.report import (
    class_report_text,
    predictions_texts,
    several_report_text,
)
from bert_tf.tasks.classification.zero_shot import TEMPLATE, check_candidates, check_template


@dataclasses.dataclass(frozen=True)
class ZeroShotConfig(Config):
    """Flags of zero-shot classification."""

    zero_shot: str = option(
        "",
        "Comma-separated candidate labels: classifies texts without training, by a model of "
        "natural language inference as --init_checkpoint; with problem_type=multi_label each "
        "alone.",
    )
    template: str = option(
        TEMPLATE,
        "Sentence about a candidate of zero_shot, with {} in its place.",
        needs=("zero_shot",),
    )

    def check(self) -> None:
        super().check()
        check_template(self.template)


class ZeroShotRun:
    """The texts of a command, read and checked before TensorFlow is loaded.

    Raises:
      ValueError: for flags that contradict each other, and tables that are wrong.
    """

    def __init__(self, configs: Configs, zero_shot: ZeroShotConfig) -> None:
        self.configs = configs
        self.template = zero_shot.template
        self.folder = pathlib.Path(configs.training.output_dir)
        check_rules(ZERO_SHOT_RULES, (*configs, zero_shot))
        if (self.folder / RUN_NAME).exists():
            raise ValueError(
                f"--output_dir={self.folder} is a run; --zero_shot writes into another folder."
            )
        task = configs.task
        self.has_several = task.problem_type == "multi_label"
        names = list(map(str.strip, zero_shot.zero_shot.split(",")))
        self.candidates = check_candidates(names, self.has_several)
        self.files = asked_files(configs)
        self.examples: dict[str, list[TextExample]] = {}
        for use, file in self.files.items():
            is_evaluated = use == "eval"
            self.examples[use] = read_text_examples(
                file,
                task.text_column,
                "",
                task.label_column,
                problem_type=task.problem_type,
                label_separator=task.label_separator,
                is_needed=is_evaluated,
                reading=task,
            )
        if "eval" in self.examples:
            # Indices of candidates [E], or 0 and 1 [E, K] of several labels.
            true = label_array(self.examples["eval"], self.candidates, task.problem_type)
            self.true = true.astype(int)

    def execute(self, load: Callable[..., Any]) -> int:
        """Computes and writes the answers; returns the exit status."""
        configs = self.configs
        length = config_flags.given(DataConfig).get("max_seq_length", 0)
        predictor = load(
            configs.training.init_checkpoint,
            max_seq_length=length,
            batch_size=configs.tuning.predict_batch_size,
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        for use, examples in self.examples.items():
            found = predictor.probabilities(
                [example.text_a for example in examples],
                self.candidates,
                self.template,
                self.has_several,
            )
            probabilities = np.array([list(row.values()) for row in found])  # [E, K]
            if use == "eval":
                self.write_scores(probabilities)
            else:
                self.write_answers(examples, probabilities)
        return 0

    def write_scores(self, probabilities: np.ndarray) -> None:
        """Writes eval_results.txt and report.txt."""
        from bert_tf.tasks.classification.task import METRICS, label_metrics

        kind = self.configs.task.problem_type
        choose = Decisions().choose_several if self.has_several else Decisions().choose
        answers = choose(probabilities)
        results = label_metrics(kind, self.true, answers, self.candidates, METRICS[kind])
        make_report = several_report_text if self.has_several else class_report_text
        report = make_report(self.true, answers, self.candidates)
        for name, value in results.items():
            logging.info("  %s = %.4f", name, value)
        text = results_text(self.files["eval"], 0, results)
        write_texts(self.folder, {"eval_results.txt": text, "report.txt": report})

    def write_answers(self, examples: list[TextExample], probabilities: np.ndarray) -> None:
        """Writes predictions.tsv and test_results.tsv."""
        answers = []
        for values in probabilities:
            chosen = [self.candidates[values.argmax()]]
            if self.has_several:
                order = np.argsort(-values, kind="stable")
                chosen = [self.candidates[i] for i in order if values[i] > THRESHOLD]
            answers.append("|".join(chosen))
        write_texts(self.folder, predictions_texts(examples, answers, probabilities))
