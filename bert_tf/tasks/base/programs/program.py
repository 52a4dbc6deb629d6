"""The definition of a fine-tuning program, and its configuration.

This module does not load TensorFlow, which takes seconds, so that errors in flags come first.
"""

import abc
import pathlib
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from absl import flags, logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.hub import record_of
from bert_tf.checkpoints.run_identity import check_files, read_labels
from bert_tf.checkpoints.run_record import (
    RUN_NAME,
    check_seeds,
    has_checkpoints,
    is_same_path,
    read_record,
    recorded,
    shared_values,
    similar_runs,
    was_recorded_by,
)
from bert_tf.config import (
    Config,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    TrainingConfig,
    config_flags,
)
from bert_tf.config.fine_tuning_config import FineTuningConfig
from bert_tf.system.type_names import Model, Outputs, Strategy
from bert_tf.text.text_counts import Remedy, counting_texts
from bert_tf.text.tokenization import Tokenizer
from bert_tf.training.stopping import stoppable
from bert_tf.training.worker_group import joined_workers

if typing.TYPE_CHECKING:
    from bert_tf.tasks.base.programs.rows_task import RowsTask

# The fields of DataConfig that are flags of a program.
DATA_FLAGS = ("eval_file", "vocab_file", "max_seq_length", "random_seed")
WITHOUT_EFFECT = ("max_eval_steps", "peak_flops", "train_minutes", "cooldown_proportion")
GOOGLES = ("warmup_proportion",)  # flags of google-research/bert's programs
# Settings that depend on the model and the data unless a flag gives them; see
# `tasks.base.programs.defaults`.
FOLLOWING = ("max_seq_length", "learning_rate", "num_train_epochs")
NAMES_DATA = ("data_dir", "eval_file", "predict_file")
# Flags that ask for work on the development examples; a later command does not repeat them, as it
# does not repeat cross-validation.
CALIBRATING = ("calibrate", "choose_thresholds")
DONE_ONCE = (
    *CALIBRATING,
    "folds",
    "few_shot",
    "pair_sampling",
    "pairs_per_example",
    "unlabelled_file",
)
# Adam with bias correction. Without it, as in google-research/bert, the first hundred updates are
# up to six times as large; see configs/google_fine_tuning.flags and the comparison in
# docs/results.md.
DEFAULT_OPTIMIZER = "adamw"

# Lets --help list the flags under the program instead of this module.
flags.disclaim_key_flags()
# The arguments of `RowsTask` after the model.
RowsTaskData = tuple[Any, Any, list[int], int]


class Configs(NamedTuple):
    """The groups of a run's configuration."""

    model: ModelConfig
    data: DataConfig
    optimizer: OptimizerConfig
    training: TrainingConfig
    tuning: FineTuningConfig
    task: Any  # The configuration of the program's task.

    @classmethod
    def of_flags(cls, task_config: type[Config]) -> "Configs":
        """Returns the configuration of the flags alone."""
        groups = (ModelConfig, DataConfig, OptimizerConfig, TrainingConfig, FineTuningConfig)
        return cls(*map(config_flags.from_flags, (*groups, task_config)))


class Examples(NamedTuple):
    """All examples of a run; empty for uses that the run does not need.

    Examples to predict also have `is_labelled`; labelled ones are evaluated as well.
    """

    train: Any  # `TaskExamples` of the task, None without training
    eval: dict[str, Any]  # by name; the first is evaluated during training
    predict: dict[str, Any]
    labels: tuple[str, ...]

    @classmethod
    def of_files(cls, by_use: dict[str, Any], labels: tuple[str, ...] = ()) -> "Examples":
        """Returns the examples of one file for each use."""
        evaluated = {"": by_use["eval"]} if "eval" in by_use else {}
        predicted = {"": by_use["predict"]} if "predict" in by_use else {}
        return cls(by_use.get("train"), evaluated, predicted, labels)


class Program(abc.ABC):
    """The parts of a fine-tuning program that `tasks.base.programs.run` needs.

    Args:
      configs: the configuration of the command; a run's may differ in the seed and settings that
        depend on it.
      files: the files of examples by use: train, eval, predict.
      inputs: the content of the files, by use.
    """

    task: Any  # that the run made by `make_task`
    head: str  # name of the head's weights in checkpoints; see `checkpoints.checkpoint.HEADS`
    needs_pooler: bool  # whether the head's input is the pooler's output
    plot_titles: dict[str, str]  # titles of the curves by metric
    # Smallest and largest default length of a sequence; None: learning rate, epochs and lengths do
    # not depend on the data, see `tasks.base.programs.defaults`.
    default_lengths: tuple[int, int] | None = None
    needs_head = True  # whether weights without the head must be trained first
    kept_heads: tuple[str, ...] = ()  # other heads of the initial weights to keep
    results_start = "eval_"  # prefix of the keys in eval_results.txt

    def __init__(
        self, configs: Configs, files: dict[str, str], inputs: dict[str, Any] | None = None
    ) -> None:
        self.configs = configs
        self.files = files
        self.inputs = inputs or {}

    @property
    def folder(self) -> pathlib.Path:
        """The run directory."""
        return pathlib.Path(self.configs.training.output_dir)

    def receive_weights(self, weights: Checkpoint | None) -> None:  # noqa: B027
        """Receives the initial weights before examples are read; may change `configs`."""

    def check_missing_head(self, weights: Checkpoint | None, do_train: bool) -> None:  # noqa: B027
        """Checks the initial weights, a `Checkpoint`, before their heads are removed."""

    def load_initial_weights(
        self, model: Model, start: Checkpoint, allow_missing: Sequence[str]
    ) -> None:
        """Assigns the initial weights; those whose names have these prefixes may be missing."""
        from bert_tf.network.pretrained import assign_checkpoint

        assign_checkpoint(model, start, allow_missing)

    def write_record(self) -> None:  # noqa: B027
        """Writes files of the model besides configuration and labels into the run directory."""

    def compute_teacher_outputs(  # noqa: B027
        self, examples: Examples, tokenizer: Tokenizer, strategy: Strategy
    ) -> None:
        """Adds the outputs of --teacher to the training examples; called if there is a teacher."""

    @abc.abstractmethod
    def read(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> Examples:
        """Tokenizes the examples; `labels` are the labels of the weights, if any."""

    @abc.abstractmethod
    def make_task(self, labels: tuple[str, ...], data: RowsTaskData, **options: Any) -> "RowsTask":
        """Builds the model, with `options`, and its task of these data, in the strategy's scope."""

    def text_remedy(self, long_texts: str = "") -> Remedy:
        """Returns the flags with which the model reads more of each text.

        `long_texts` is the part that is kept; "": the program has no such flag.
        """
        return Remedy(
            "--max_seq_length={}",
            self.configs.model.longest_row,
            long_texts or "head",
            "--long_texts=windows" if long_texts else "",
        )

    def before_evaluation(  # noqa: B027
        self, examples: Examples, compute: Callable[[Any], Outputs], is_chief: bool
    ) -> None:
        """Prepares the decisions of the task, after the weights to use are found.

        `compute` returns the outputs of the model for examples; the chief writes files.
        """

    def after_evaluation(  # noqa: B027
        self, ending: str, examples: Any, outputs: Outputs, results: dict[str, float] | None
    ) -> None:
        """Writes further files about an evaluation, whose names have this ending, after all others.

        `results` are the metrics of the run's evaluation file; None for other files, and for all
        but the first examples.
        """

    @abc.abstractmethod
    def report(self, examples: Any, outputs: Outputs) -> dict[str, str]:
        """Returns the texts that accompany an evaluation, by file name."""

    def write_predictions(self, name: str, examples: Any, outputs: Outputs) -> None:  # noqa: B027
        """Writes the predictions of a program that has --do_predict."""


def define_flags(task_config: type[Config]) -> None:
    """Defines the flags of a program, including those of its task."""
    groups = (ModelConfig, OptimizerConfig, TrainingConfig, FineTuningConfig, task_config)
    config_flags.define_flags(*groups, without=WITHOUT_EFFECT, shown=GOOGLES)
    config_flags.define_flags(DataConfig, only=DATA_FLAGS)
    config_flags.set_defaults(optimizer=DEFAULT_OPTIMIZER)


def run(
    task_config: type[Config],
    find_files: Callable[[Configs], dict[str, str]],
    execute: Callable[[Configs, dict[str, str]], int],
) -> int:
    """Runs the program; returns the exit status, `PREEMPTED` after a signal."""

    def work() -> int:
        configs = read_configs(task_config)
        files = find_files(configs)
        check_start(configs)
        with joined_workers(configs.training.distribution, shared_values(*configs)):
            return execute(configs, files)

    return stoppable(work)


def source_of(training: TrainingConfig, seed_folder: str = "") -> str:
    """Returns the directory of the run whose weights are used without training."""
    source = training.init_checkpoint
    folder = str(pathlib.Path(training.output_dir, seed_folder))
    if not source or is_same_path(source, recorded(folder, "init_checkpoint")):
        return folder
    return str(record_of(source))


def read_configs(task_config: type[Config]) -> Configs:
    """Creates the configuration from the flags and the run's record.

    Flags have precedence. A run otherwise continues with the optimizer and the settings of
    FOLLOWING that it recorded, and reads data as the run of its initial weights did. Without
    training, all settings of the task are those that the run of the weights recorded, except for
    settings of the data if the command names other data.

    Raises:
      ValueError: if there is nothing to do, or no run directory is given.
    """
    training = config_flags.from_flags(TrainingConfig)
    tuning = config_flags.from_flags(FineTuningConfig)
    seed = config_flags.from_flags(DataConfig).random_seed
    seed_folder = f"seed-{seed}" if tuning.num_seeds > 1 else ""
    if training.do_train:
        source = str(first_record(pathlib.Path(training.output_dir, seed_folder)))
        names = ["optimizer", *FOLLOWING]
    else:
        source = source_of(training, seed_folder)
        names = [name for name in task_config.names() if name not in DONE_ONCE]
        for group in (DataConfig, OptimizerConfig, FineTuningConfig):
            names += group.names(from_run=True)
        given = [name for name in NAMES_DATA if name in flags.FLAGS and flags.FLAGS[name].present]
        # Other data may have another format than those of the run.
        if given and not (training.do_eval and given == ["predict_file"]):
            names = [name for name in names if name not in task_config.names(of_data=True)]
        if "data_dir" in given:
            names.remove("eval_file")
    defaults = {}
    for name in names:
        if value := recorded(source, name):
            defaults[name] = value
    earlier = reading_of_earlier_run(training, task_config, tuning.new_head)
    config_flags.set_defaults(**{**earlier, **defaults})
    configs = Configs.of_flags(task_config)
    if not training.output_dir:
        raise ValueError("--output_dir is empty; name the run directory, for example runs/my_task.")
    if not (training.do_train or training.do_eval or configs.tuning.do_predict):
        raise ValueError("At least one of --do_train, --do_eval, --do_predict must be true.")
    return configs


def first_record(folder: pathlib.Path) -> pathlib.Path:
    """Returns the run directory whose record a run uses; of several seeds, the first with one."""
    candidates = [folder]
    if folder.name.startswith("seed-"):
        candidates += sorted(folder.parent.glob("seed-*"))
    return next((path for path in candidates if (path / "run.flags").exists()), folder)


def has_own_weights(training: TrainingConfig, folder: pathlib.Path) -> bool:
    """Returns whether a run resumes from its own checkpoints.

    Without training, an --init_checkpoint other than the run's initial one has precedence.
    """
    named = training.init_checkpoint
    initial = recorded(str(folder), "init_checkpoint")
    if named and not training.do_train and not is_same_path(named, initial):
        return False
    return has_checkpoints(folder)


def check_start(configs: Configs) -> None:
    """Checks that there are initial weights, and that the run's files are unchanged."""
    training = configs.training
    folder = pathlib.Path(training.output_dir)
    candidates = (folder, *folder.glob("seed-*"), *folder.glob("fold-*"))
    trained = [path for path in candidates if has_own_weights(training, path)]
    for path in trained:
        check_files(path)
    is_new = configs.data.vocab_file and training.do_train
    if not (trained or training.init_checkpoint or is_new):
        if training.do_train:
            raise ValueError("There are no initial weights; give them as --init_checkpoint.")
        check_seeds(folder)
        raise ValueError(
            f"--output_dir={folder} has no run.{similar_runs(folder)} Give the directory of a "
            "trained run, or weights as --init_checkpoint."
        )


def asked_for(configs: Configs) -> dict[str, str]:
    """Returns for each use (train, eval, predict) the flag that needs examples, or ""."""
    training = configs.training
    needed_by = {"train": "", "eval": "", "predict": ""}
    if training.do_train:
        needed_by["train"] = "--do_train"
        for name in ("early_stopping_evaluations", "eval_steps"):
            if value := getattr(training, name):  # evaluations during training
                needed_by["eval"] = f"--{name}={value}"
    for name in CALIBRATING:
        if getattr(configs.task, name, False):
            needed_by["eval"] = f"--{name}"
    if training.do_eval:
        needed_by["eval"] = "--do_eval"
    if configs.tuning.do_predict:
        needed_by["predict"] = "--do_predict"
    return needed_by


def asked_files(configs: Configs) -> dict[str, str]:
    """Returns the files that the flags need, by use: train, eval, predict."""
    tuning = configs.tuning
    named = {
        "train": tuning.train_file,
        "eval": configs.data.eval_file,
        "predict": tuning.predict_file,
    }
    files = {}
    for use, flag in asked_for(configs).items():
        if flag and not named[use]:
            raise ValueError(f"--{use}_file is empty; name the file, which {flag} needs.")
        if flag:
            files[use] = named[use]
    return files


# New data for a model usually have the form of the earlier data.
READING = (
    "text_column",
    "text_b_column",
    "label_column",
    "label_separator",
    "problem_type",
    "word_column",
    "tag_column",
    "query_column",
    "positive_column",
    "delimiter",
    "column_names",
    "skip_unlabelled",
    "long_texts",
    "version_2_with_negative",
)


def reading_of_earlier_run(
    training: TrainingConfig, task_config: type[Config], new_head: bool
) -> dict[str, str]:
    """Returns the recorded settings of READING that no flag gives, and logs them.

    They are those of --init_checkpoint if it is a run of the same program. A new head is for
    another task, whose data have a form of their own.
    """
    if not (training.do_train and training.init_checkpoint) or new_head:
        return {}
    source = record_of(training.init_checkpoint)
    if not was_recorded_by(source / RUN_NAME, task_config):
        return {}
    record = read_record(source)
    given = config_flags.given(task_config)
    taken = {}
    for name in READING:
        if name in task_config.names() and name not in given and name in record:
            # A list of words is read as flags are.
            if flags.FLAGS[name].parser.parse(record[name]) != flags.FLAGS[name].default:
                taken[name] = record[name]
    if taken:
        shown = " ".join(f"--{name}={value}" for name, value in taken.items())
        logging.info("Taken over from %s: %s.", source, shown)
    return taken


def read_inputs(
    files: dict[str, str], read: Callable[[str, str], Any], remedy: Remedy | None = None
) -> dict[str, Any]:
    """Returns `read(use, file)` of each file by use.

    A file that is both evaluated and predicted is read once. A line is logged about texts that are
    cut, empty or unknown; `remedy` is its advice.
    """
    found: dict[str, Any] = {}
    for use, file in files.items():
        is_again = use == "predict" and file == files.get("eval")
        if is_again:
            found[use] = found["eval"]
            continue
        with counting_texts(use, remedy=remedy):
            found[use] = read(use, file)
    return found


def labels_of_run(configs: Configs) -> tuple[str, ...]:
    """Returns the labels of the run whose weights are used, if these are in a run directory."""
    training = configs.training
    # A training resumes from its own folder only; other sources may have to be downloaded.
    folder = training.output_dir if training.do_train else source_of(training)
    return read_labels(pathlib.Path(folder).expanduser())
