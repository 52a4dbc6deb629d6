"""Finds, reads and checks the texts and labels of the classification program, without TensorFlow.

Errors in tables are reported here, before TensorFlow is loaded, which takes seconds.
"""

import itertools
import pathlib

from absl import logging

from bert_tf.config import DataConfig, config_flags
from bert_tf.config.fine_tuning_config import ClassifierConfig, FineTuningConfig
from bert_tf.config.rules import Exclusion, Rule, is_set
from bert_tf.tasks.base.examples.labels import LabelNames, check_distinct
from bert_tf.tasks.base.models.label_order import spelled_as
from bert_tf.tasks.base.programs.program import (
    Configs,
    asked_files,
    asked_for,
    has_own_weights,
    labels_of_run,
)
from bert_tf.tasks.classification.decisions import Decisions, parse_thresholds
from bert_tf.tasks.classification.examples import TextExample, decision_names, read_text_examples
from bert_tf.tasks.classification.glue import glue_task, read_glue
from bert_tf.tasks.classification.label_arrays import label_array, label_names, label_rows
from bert_tf.tasks.classification.pairs import check_counts
from bert_tf.tasks.embedding.examples import EmbeddingExample, read_embedding_examples

# Flags of tables, which a GLUE task replaces.
TABLE_FLAGS = (
    "train_file",
    "eval_file",
    "predict_file",
    "text_column",
    "text_b_column",
    "label_column",
    "problem_type",
    "label_separator",
    "delimiter",
    "column_names",
    "skip_unlabelled",
)
SPLITS = {"train": "train", "eval": "dev", "predict": "test"}  # GLUE's name by use
MOST_OWN_LABELS = 0.75
FEW_LABELS = 20


def reads_glue(configs: Configs) -> bool:
    """Returns whether the examples are those of --task_name in --data_dir.

    A model of such a task can also evaluate and predict other files that the command names.
    """
    # Without training, a model of a GLUE task also reads tables, if the command names one.
    named_files = {"eval_file", "predict_file"} & given_table_flags().keys()
    return bool(configs.task.task_name) and (configs.training.do_train or not named_files)


def given_table_flags() -> dict[str, str]:
    """Returns the flags of tables that the command sets to another value than the default."""
    values: dict[str, str] = {}
    for group in (DataConfig, FineTuningConfig, ClassifierConfig):
        defaults = group().to_dict()
        for name, value in config_flags.given(group).items():
            if value != defaults[name]:
                values[name] = value
    return {name: values[name] for name in TABLE_FLAGS if name in values}


def find_files(configs: Configs) -> dict[str, str]:
    """Returns the files that the flags need, by use: train, eval, predict.

    A GLUE task names its files itself; here each is its folder and the split.
    """
    is_glue = reads_glue(configs)
    task = configs.task.task_name
    for name, value in given_table_flags().items():
        if is_glue or task and name == "problem_type":
            raise ValueError(
                f"--{name}={value} has no effect: --task_name={task} determines the files; "
                "leave one of the two out."
            )
    if not is_glue:
        return asked_files(configs)
    folder = configs.task.data_dir
    if not folder:
        raise ValueError(f"--task_name={task} needs its files; give --data_dir.")
    return {use: f"{folder}/{SPLITS[use]}" for use, flag in asked_for(configs).items() if flag}


class LabelledTexts:
    """The examples of a command, by GLUE's name of the split.

    Args:
      reads_glue: whether the files are GLUE's task in --data_dir.

    Attributes:
      kind: of the labels.
      splits: the examples.
    """

    def __init__(self, configs: Configs, files: dict[str, str], reads_glue: bool) -> None:
        given: ClassifierConfig = configs.task
        self.configs = configs
        self.files = files
        self.reads_glue = reads_glue
        self.glue = glue_task(given.task_name) if given.task_name else None
        self.kind = given.problem_type
        self.columns = given.text_column, given.text_b_column, given.label_column
        if self.glue:
            self.kind = "single_label" if self.glue.labels else "regression"
            # Other files of a GLUE task have the columns of GLUE, unless flags name others.
            if not {"text_column", "text_b_column"} & config_flags.given(ClassifierConfig).keys():
                self.columns = self.glue.text_a, self.glue.text_b, self.glue.label
        if self.kind == "regression":
            given.check_without_scores("labels that are numbers")
        if configs.training.do_train:
            given.check_kind(self.kind, "--")
        if given.class_weights and configs.training.do_train and self.kind == "regression":
            raise ValueError(
                f"--class_weights={given.class_weights} has no effect on labels of kind "
                f"{self.kind}: leave it out."
            )
        if given.calibrate or given.choose_thresholds:
            self._check_calibration()
        self.splits = self._read_splits()

    def _check_calibration(self) -> None:
        """Raises ValueError if there is nothing to calibrate, or nowhere to keep the result."""
        flag = "--calibrate" if self.configs.task.calibrate else "--choose_thresholds"
        if self.kind == "regression":
            raise ValueError(
                f"{flag} is for labels, but --problem_type is regression; leave it out."
            )
        training = self.configs.training
        folder = pathlib.Path(training.output_dir)
        if not training.do_train and not has_own_weights(training, folder):
            raise ValueError(
                f"{flag} records its choice with the weights of a run; give the directory of that "
                f"run as --output_dir, not {training.output_dir}."
            )

    def _read_splits(self) -> dict[str, list[TextExample]]:
        """Reads the splits that the flags ask for."""
        if not self.reads_glue or not self.glue:
            files = {SPLITS[use]: file for use, file in self.files.items()}
            # The same file is read once: `Classifier.read` predicts the examples of dev.
            if files.get("dev") == files.get("test"):
                files.pop("test", None)
            return {split: self._read_tables(split, file) for split, file in files.items()}
        uses = [SPLITS[use] for use in self.files]
        # dev_mismatched and test_mismatched of MNLI are read as well.
        wanted = [split for split in self.glue.splits if split.partition("_")[0] in uses]
        if not wanted:
            raise ValueError(f"{self.glue.name} has only the splits {list(self.glue.splits)}.")
        data_dir = self.configs.task.data_dir
        return {split: read_glue(self.glue, data_dir, split) for split in wanted}

    def _read_tables(self, split: str, file: str) -> list[TextExample]:
        given: ClassifierConfig = self.configs.task
        return read_text_examples(
            file,
            *self.columns,
            problem_type=self.kind,
            label_separator=given.label_separator,
            is_needed=split != "test",
            reading=given,
        )

    def check(self) -> None:
        """Checks the labels, as far as they are known without the weights."""
        before = labels_of_run(self.configs)
        # The labels are those of weights, which this function does not read.
        if "train" not in self.splits and not before and not self.glue:
            return
        names = self.choose_labels(before)
        for split, examples in self.splits.items():
            self.is_labelled(examples, names, split.startswith("test"), is_quiet=True)
        self.decisions(names)
        if self.configs.task.choose_thresholds and self.kind == "single_label" and len(names) != 2:
            raise ValueError(
                f"--choose_thresholds is for --problem_type=multi_label or for two classes, but "
                f"there are {len(names)} classes; leave it out."
            )

    def decisions(self, labels: tuple[str, ...]) -> Decisions:
        """Returns the temperature and the thresholds of the flags, or that the run recorded."""
        given: ClassifierConfig = self.configs.task
        thresholds = parse_thresholds(given.thresholds)
        try:
            return Decisions.of(self.kind, labels, given.temperature, thresholds)
        except ValueError as error:
            flag = "--thresholds" if thresholds else f"--temperature={given.temperature:g}"
            raise ValueError(f"{flag}: {error}") from None

    def choose_labels(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the names of the classes in the order of the head; () for numbers.

        They are those of the weights, unless the training examples have others.
        """
        if self.kind == "regression":
            return ()
        if self.glue:
            return self.glue.labels
        if "train" not in self.splits and labels:
            read = itertools.chain.from_iterable(self.splits.values())
            examples = [example for example in read if example.label]
            found = label_names(examples, self.kind == "multi_label") if examples else ()
            return spelled_as(labels, found)
        source = self.splits.get("train") or next(iter(self.splits.values()))
        # The columns of decisions name all labels, also those that no example has.
        found = decision_names(self.columns[2], self.kind, source)
        found = found or label_names(source, self.kind == "multi_label")
        if "train" in self.splits and self.kind == "single_label":
            self._check_classes(source, found)
        if "train" in self.splits and self.kind == "multi_label":
            _check_sets(source, found)
        # A head that has these labels keeps its order.
        if LabelNames(labels).are_same(found):
            return labels
        check_distinct(found)
        return found

    def _check_classes(self, source: list[TextExample], found: tuple[str, ...]) -> None:
        """Raises ValueError if all training examples have one class, or nearly each its own."""
        if len(found) == 1:
            raise ValueError(
                f"--train_file: all training examples have the label {found[0]!r}; give "
                f"examples of at least two classes."
            )
        # In a small file, every example may well have a different class.
        if len(found) > max(FEW_LABELS, MOST_OWN_LABELS * len(source)):
            text, _, label = self.columns
            raise ValueError(
                f"--train_file: {len(source)} training examples have {len(found)} labels, "
                f"such as {source[0].label!r:.80}: nearly every one has its own. "
                f"--text_column is {text!r} and "
                f"--label_column {label!r}: swap them if they are in the wrong order; if the "
                f"labels are numbers to predict, give --problem_type=regression."
            )

    def is_labelled(
        self,
        examples: list[TextExample],
        names: tuple[str, ...],
        is_predicted: bool,
        is_quiet: bool = False,
    ) -> bool:
        """Returns whether all examples have known labels, those of the head; else logs why not.

        In examples to predict, labels that are all the same count as placeholders.
        """
        if is_predicted and len({example.label for example in examples} - {None}) < 2:
            return False
        try:
            if bare := [example.source for example in examples if example.label is None]:
                raise ValueError(
                    f"{len(bare)} of {len(examples)} examples have no label, first {bare[0]}; "
                    f"label them, or leave them out: --skip_unlabelled."
                )
            # The array is discarded: a label that is unknown or no number raises an error.
            label_array(examples, names, self.kind)
        except ValueError as error:
            if not is_predicted:
                raise
            if not is_quiet:
                logging.info("Predicted, but not evaluated: %s", error)
            return False
        return True


def _check_sets(source: list[TextExample], labels: tuple[str, ...]) -> None:
    """Raises ValueError if every training example has every label: nothing is learned from it."""
    if label_rows(source, labels).all():
        raise ValueError(
            f"--train_file: each of {len(source)} training examples has all labels, "
            f"{', '.join(labels[:10])}. If lists of 0 and 1 are decisions for each label, write "
            "the names of the labels instead, or a column for each label: "
            "--label_column=joy,love."
        )


def check_few_shot_labels(texts: LabelledTexts) -> None:
    """Raises ValueError if there are no pairs to learn from; see `check_counts`."""
    names = texts.choose_labels(())
    check_counts(label_array(texts.splits["train"], names, texts.kind), names)


def read_unlabelled(configs: Configs) -> list[EmbeddingExample]:
    """Returns the texts of --unlabelled_file, whose labels do not count; none without it."""
    task: ClassifierConfig = configs.task
    if not task.unlabelled_file:
        return []
    return read_embedding_examples(
        task.unlabelled_file, "--unlabelled_file", reading=task, text_column=task.text_column
    )


CLASSIFIER_RULES = (
    Rule(
        lambda c: c.task.folds == 1,
        "--folds=1 holds out everything; give 2 or more, or 0 for none.",
    ),
    Exclusion(
        "folds",
        "trains, and predicts parts of the training examples",
        "do_train=false do_predict num_seeds teacher",
    ),
    Rule(
        lambda c: c.task.folds and c.task.html_report and not c.training.do_eval,
        "--html_report shows the evaluation of a file, but --folds={c.task.folds} alone evaluates "
        "none; give --do_eval and --eval_file, or leave --html_report out.",
    ),
    Rule(
        lambda c: c.task.few_shot and not c.training.do_train,
        "--few_shot trains: give --do_train, or leave --few_shot out.",
    ),
    Rule(
        lambda c: c.task.few_shot and not c.training.init_checkpoint,
        "--few_shot starts from an embedder, such as a folder of all-MiniLM-L6-v2; give one as "
        "--init_checkpoint.",
    ),
    Exclusion(
        "few_shot",
        "trains an embedder on pairs of single texts",
        "task_name text_b_column problem_type=regression teacher folds class_weights "
        "label_smoothing focal_gamma num_seeds eval_steps early_stopping_evaluations pack_rows",
    ),
)
ZERO_SHOT_RULES = (
    Exclusion(
        "zero_shot",
        "trains no model, and classifies single texts of your tables",
        "do_train task_name text_b_column problem_type=regression",
    ),
    Rule(
        lambda groups: not any(is_set(groups, use) for use in ("do_eval", "do_predict")),
        "--zero_shot needs --do_predict, --do_eval, or both.",
    ),
    Rule(
        lambda groups: not all(is_set(groups, name) for name in ("init_checkpoint", "output_dir")),
        "Give a model of natural language inference as --init_checkpoint, and a folder for the "
        "results as --output_dir.",
    ),
)
