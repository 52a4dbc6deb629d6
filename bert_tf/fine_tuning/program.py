"""The definition of a fine-tuning program, and its configuration.

This module does not load TensorFlow, which takes seconds, so that errors in flags come first.
"""

import abc
import pathlib
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from absl import flags

from bert_tf import config_flags
from bert_tf.checkpoints.hub import record_of
from bert_tf.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainingConfig
from bert_tf.fine_tuning_config import FineTuningConfig
from bert_tf.run_identity import check_files
from bert_tf.run_record import has_checkpoints, is_same_path, recorded, shared_values
from bert_tf.text.tokenization import Tokenizer
from bert_tf.training.roll_call import together
from bert_tf.training.stopping import stoppable

if typing.TYPE_CHECKING:
    from bert_tf.fine_tuning.rows_task import RowsTask
    from bert_tf.training.fine_tuner import Outputs

# Of DataConfig a program has these few. Without effect: evaluations see all, rates are of pieces,
# epochs say how long a run is.
DATA_FLAGS = ("eval_file", "vocab_file", "max_seq_length", "random_seed")
WITHOUT_EFFECT = ("max_eval_steps", "peak_flops", "train_minutes", "cooldown_proportion")
# Settings that follow the model and the data where no flag gives them; see `fine_tuning.defaults`.
FOLLOWING = ("max_seq_length", "learning_rate", "num_train_epochs")
NAMES_DATA = ("data_dir", "eval_file", "predict_file")
# With bias correction. Without it the first hundred steps are up to six times as long, as those of
# google-research/bert: configs/google_fine_tuning.flags. Both are compared in docs/results.md.
DEFAULT_OPTIMIZER = "adamw"

# The flags that are defined here are those of the program, for its --help.
flags.disclaim_key_flags()
RowsTaskData = tuple[Any, Any, list[int], int]


class Configs(NamedTuple):
    """The groups of a run."""

    model: ModelConfig
    data: DataConfig
    optimizer: OptimizerConfig
    training: TrainingConfig
    tuning: FineTuningConfig
    task: Any


class Examples(NamedTuple):
    """All examples of a run; empty where none are needed.

    Each is an object with `rows`; examples to predict also have `is_labelled`, and are then
    evaluated, too.
    """

    train: Any  # None if nothing is trained
    eval: dict[str, Any]  # by name; the first is evaluated while training
    predict: dict[str, Any]
    labels: tuple[str, ...]

    @classmethod
    def of_files(cls, made: dict[str, Any], labels: tuple[str, ...] = ()) -> "Examples":
        """Makes them from one file for each use."""
        evaluated, predicted = (
            {"": made[use]} if use in made else {} for use in ("eval", "predict")
        )
        return cls(made.get("train"), evaluated, predicted, labels)


class Program(abc.ABC):
    """The parts of a fine-tuning program that `fine_tuning.run` needs.

    Args:
      configs: those of the command; a run's own may differ in the seed and what depends on it.
      files: the files of examples by use: train, eval, predict.
      inputs: the content of the files, by use.

    Attributes:
      head: name of the head's weights in checkpoints; see `checkpoints.checkpoint.HEADS`.
      needs_pooler: whether the head's input is the pooler's output.
      plot_titles: titles of the curves by metric.
      default_lengths: least and most tokens of a sequence by default; None: this program's learning
        rate, epochs and lengths do not follow the data, see `fine_tuning.defaults`.
      needs_head: whether weights without the head must be trained first.
      kept_heads: other heads of the initial weights that are of use.
      results_start: prefix of the keys in eval_results.txt.
    """

    head: str
    needs_pooler: bool
    plot_titles: dict[str, str]
    default_lengths: tuple[int, int] | None = None
    needs_head = True
    kept_heads: tuple[str, ...] = ()
    results_start = "eval_"

    def __init__(
        self, configs: Configs, files: dict[str, str], inputs: dict[str, Any] | None = None
    ) -> None:
        self.configs = configs
        self.files = files
        self.inputs = inputs or {}

    def receive_weights(self, weights: Any) -> None:  # noqa: B027
        """Receives the initial weights, before anything is read; may change `configs`.

        Args:
          weights: a `Checkpoint`; None: the run directory's own.
        """

    def check_missing_head(self, weights: Any, do_train: bool) -> None:  # noqa: B027
        """Looks at the initial weights, a `Checkpoint`, before their heads are left out.

        Raises:
          ValueError: if another setting is what they need.
        """

    def load_initial_weights(self, model: Any, start: Any, allow_missing: Sequence[str]) -> None:
        """Assigns the initial weights to the model.

        Args:
          model: that of `make_task`.
          start: a `Checkpoint`.
          allow_missing: prefixes of names of weights that it may lack.
        """
        from bert_tf.network.pretrained import assign_checkpoint

        assign_checkpoint(model, start, allow_missing)

    def write_record(self, folder: pathlib.Path) -> None:  # noqa: B027
        """Writes the model's files of a run directory other than configuration and labels."""

    def compute_teacher_outputs(  # noqa: B027
        self, examples: Examples, tokenizer: Tokenizer, strategy: Any
    ) -> None:
        """Adds the outputs of --teacher to the rows to train on; called if there is one."""

    @abc.abstractmethod
    def read(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> Examples:
        """Tokenizes the examples; `labels`: the labels of the weights, if any."""

    @abc.abstractmethod
    def make_task(
        self, config: ModelConfig, labels: tuple[str, ...], data: RowsTaskData, **options: Any
    ) -> "RowsTask":
        """Makes the model, with `options`, and the task around it, under the strategy's scope.

        Args:
          config: configuration of the encoder.
          labels: those of `Examples`.
          data: the arguments of `RowsTask` after the model.
        """

    @abc.abstractmethod
    def report(self, task: Any, examples: Any, outputs: "Outputs") -> dict[str, str]:
        """Returns the texts that accompany an evaluation, by file name."""

    def write_predictions(  # noqa: B027
        self, folder: pathlib.Path, task: Any, name: str, examples: Any, outputs: "Outputs"
    ) -> None:
        """Writes the predictions of a program that has --do_predict."""


def define_flags(task_config: type[Config]) -> None:
    """Defines the flags of a program with this group of its own."""
    groups = (ModelConfig, OptimizerConfig, TrainingConfig, FineTuningConfig, task_config)
    config_flags.define_flags(*groups, without=WITHOUT_EFFECT)
    config_flags.define_flags(DataConfig, only=DATA_FLAGS)
    config_flags.set_defaults(optimizer=DEFAULT_OPTIMIZER)


def run(
    task_config: type[Config],
    find_files: Callable[[Configs], dict[str, str]],
    execute: Callable[[Configs, dict[str, str]], int],
) -> int:
    """Runs the program; returns the exit status, `PREEMPTED` after a signal.

    Args:
      task_config: the program's own group.
      find_files: see `asked_files`.
      execute: the run itself, which loads TensorFlow.

    Raises:
      ValueError: for errors in flags, input or numbers.
    """

    def work() -> int:
        configs = read_configs(task_config)
        files = find_files(configs)
        check_start(configs)
        with together(configs.training.distribution, shared_values(*configs)):
            return execute(configs, files)

    return stoppable(work)


def source_of(training: TrainingConfig, seed_folder: str = "") -> str:
    """Returns the directory of the run whose weights are used without training."""
    source, folder = training.init_checkpoint, str(pathlib.Path(training.output_dir, seed_folder))
    if not source or is_same_path(source, recorded(folder, "init_checkpoint")):
        return folder
    return str(record_of(source))


def read_configs(task_config: type[Config]) -> Configs:
    """Makes the configuration from the flags.

    Unless a flag says otherwise, a run continues with the optimizer and the settings of FOLLOWING
    that it recorded; without training, all settings of the task are those that the run of the
    weights recorded. Those of the data are not if the command names data of its own.

    Raises:
      ValueError: if there is nothing to do, or no run directory.
    """
    training = config_flags.from_flags(TrainingConfig)
    tuning = config_flags.from_flags(FineTuningConfig)
    seed = config_flags.from_flags(DataConfig).random_seed
    several = f"seed-{seed}" if tuning.num_seeds > 1 else ""
    if training.do_train:
        source = str(first_record(pathlib.Path(training.output_dir, several)))
        names = ["optimizer", *FOLLOWING]
    else:
        source = source_of(training, several)
        names = task_config.names()
        for group in (DataConfig, OptimizerConfig, FineTuningConfig):
            names += group.names(from_run=True)
        given = [name for name in NAMES_DATA if name in flags.FLAGS and flags.FLAGS[name].present]
        if given and not (training.do_eval and given == ["predict_file"]):
            names = [name for name in names if name not in task_config.names(of_data=True)]
        if "data_dir" in given:
            names.remove("eval_file")
    before = {name: recorded(source, name) for name in names}
    config_flags.set_defaults(**{name: value for name, value in before.items() if value})
    groups = (ModelConfig, DataConfig, OptimizerConfig, TrainingConfig, FineTuningConfig)
    configs = Configs(*map(config_flags.from_flags, (*groups, task_config)))
    if not training.output_dir:
        raise ValueError("--output_dir is empty; name the run directory, for example runs/my_task.")
    if not (training.do_train or training.do_eval or configs.tuning.do_predict):
        raise ValueError("At least one of --do_train, --do_eval, --do_predict must be true.")
    return configs


def first_record(folder: pathlib.Path) -> pathlib.Path:
    """Returns the run directory whose settings a run continues with.

    Args:
      folder: of the run. For one of several seeds it is the first of these that has a record.
    """
    candidates = [folder]
    if folder.name.startswith("seed-"):
        candidates += sorted(folder.parent.glob("seed-*"))
    return next((path for path in candidates if (path / "run.flags").exists()), folder)


def has_own_weights(training: TrainingConfig, folder: pathlib.Path) -> bool:
    """True if a run resumes from its own checkpoints.

    Without training, an --init_checkpoint that the run did not start from is used itself.
    """
    named, began_from = training.init_checkpoint, recorded(str(folder), "init_checkpoint")
    if named and not training.do_train and not is_same_path(named, began_from):
        return False
    return has_checkpoints(folder)


def check_start(configs: Configs) -> None:
    """Checks that there is something to start from, and that a run's own files are unchanged.

    Raises:
      ValueError: if there are neither weights nor a vocabulary, or files were changed.
    """
    training, folder = configs.training, pathlib.Path(configs.training.output_dir)
    folders = (folder, *folder.glob("seed-*"))
    own = [path for path in folders if has_own_weights(training, path)]
    for path in own:
        check_files(path)
    is_new = configs.data.vocab_file and training.do_train
    if not (own or training.init_checkpoint or is_new):
        raise ValueError("Nothing to start from; give weights as --init_checkpoint.")


def asked_for(configs: Configs) -> dict[str, str]:
    """Returns by use (train, eval, predict) the flag that needs examples, "" for none."""
    training, asked = configs.training, {"train": "", "eval": "", "predict": ""}
    if training.do_train:
        asked["train"] = "--do_train"
        for name in ("early_stopping_evaluations", "eval_steps"):
            if value := getattr(training, name):  # Evaluations during training.
                asked["eval"] = f"--{name}={value}"
    if training.do_eval:
        asked["eval"] = "--do_eval"
    if configs.tuning.do_predict:
        asked["predict"] = "--do_predict"
    return asked


def asked_files(configs: Configs) -> dict[str, str]:
    """Returns the files that the flags need, by use: train, eval, predict.

    Raises:
      ValueError: if one of them is not named.
    """
    tuning = configs.tuning
    named = {
        "train": tuning.train_file,
        "eval": configs.data.eval_file,
        "predict": tuning.predict_file,
    }
    asked = {use: flag for use, flag in asked_for(configs).items() if flag}
    for use, flag in asked.items():
        if not named[use]:
            raise ValueError(f"--{use}_file is empty; name the file, which {flag} needs.")
    return {use: named[use] for use in asked}
