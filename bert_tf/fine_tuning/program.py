"""What a fine-tuning program says of itself, and the configuration it gets."""

import dataclasses
import pathlib
import typing
from typing import Any, NamedTuple, Protocol

from bert_tf import config_flags
from bert_tf.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainingConfig
from bert_tf.fine_tuning_config import FineTuningConfig
from bert_tf.run_record import recorded
from bert_tf.text.wordpiece import WordPiece

if typing.TYPE_CHECKING:
    from bert_tf.tasks.fine_tuning import RowsTask
    from bert_tf.training.fine_tuner import Outputs

# A program defines its flags itself: --help shows those of its own module. Of DataConfig these few.
DATA_FLAGS = ("eval_file", "vocab_file", "max_seq_length", "random_seed")
FLAG_GROUPS = (ModelConfig, OptimizerConfig, TrainingConfig, FineTuningConfig)
# With bias correction. Without it the first hundred steps are up to six times as long, as those of
# google-research/bert: configs/google_fine_tuning.flags. Both are compared in docs/results.md.
DEFAULT_OPTIMIZER = "adamw"
WITHOUT_EFFECT = ("max_eval_steps", "peak_flops")  # Evaluations see all; rates are of pieces.
# What weights get used to: an evaluation or a prediction takes it from the run that made them.
TRAINED_WITH = (
    *("max_seq_length", "long_texts"),
    *("doc_stride", "max_query_length", "version_2_with_negative"),
)


class Configs(NamedTuple):
    """The groups of a run."""

    model: ModelConfig
    data: DataConfig
    optimizer: OptimizerConfig
    training: TrainingConfig
    tuning: FineTuningConfig
    task: Any


class Examples(NamedTuple):
    """All examples of a run, each an object with `rows`; empty where nothing is asked for."""

    train: Any  # None if nothing is trained
    eval: dict[str, Any]  # by name; the first is evaluated while training
    predict: dict[str, Any]
    labels: tuple[str, ...]


class Program(Protocol):
    """What a fine-tuning program adds.

    Attributes:
      head: name of the head's weights in checkpoints; see `checkpoints.checkpoint.HEADS`.
      needs_pooler: whether the head stands on the pooler.
      panels: titles of the curves by metric.
    """

    head: str
    needs_pooler: bool
    panels: dict[str, str]

    def files(self, configs: Configs) -> dict[str, str]:
        """Returns the files that the flags ask for, by what they are for; see `asked_files`."""

    def read(self, configs: Configs, tokenizer: WordPiece, labels: tuple[str, ...]) -> Examples:
        """Reads and tokenizes the examples; `labels`: those of the weights, if they have any."""

    def make_task(
        self, configs: Configs, examples: Examples, buckets: list[int], **options: Any
    ) -> "RowsTask":
        """Makes the model, with `options`, and the task around it, under the strategy's scope."""

    def report(
        self, folder: pathlib.Path, task: Any, name: str, examples: Any, outputs: "Outputs"
    ) -> None:
        """Writes what an evaluation shows beside its numbers."""

    def write_predictions(
        self, folder: pathlib.Path, task: Any, name: str, examples: Any, outputs: "Outputs"
    ) -> None:
        """Writes the predictions."""


def read_configs(task_config: type[Config]) -> Configs:
    """Makes the configuration from the flags.

    If no flag says otherwise, a run goes on with the optimizer that it recorded; where nothing is
    trained, `TRAINED_WITH` is what the run of the weights recorded.

    Raises:
      ValueError: if there is nothing to do, or no run directory.
    """
    training = config_flags.from_flags(TrainingConfig)
    if training.do_train:
        if optimizer := recorded(first_run_directory(training), "optimizer"):
            config_flags.set_defaults(optimizer=optimizer)
    else:
        source = training.init_checkpoint
        if source in ("", recorded(training.output_dir, "init_checkpoint")):
            source = training.output_dir
        elif not pathlib.Path(source).is_dir():  # runs/my_task/model.ckpt-90
            source = str(pathlib.Path(source).parent)
        own = {field.name for cls in (DataConfig, task_config) for field in dataclasses.fields(cls)}
        before = {name: recorded(source, name) for name in TRAINED_WITH if name in own}
        config_flags.set_defaults(**{name: value for name, value in before.items() if value})
    groups = (ModelConfig, DataConfig, OptimizerConfig, TrainingConfig, FineTuningConfig)
    configs = Configs(*map(config_flags.from_flags, (*groups, task_config)))
    if not training.output_dir:
        raise ValueError("--output_dir is empty; name the run directory, say runs/my_task.")
    if not (training.do_train or training.do_eval or configs.tuning.do_predict):
        raise ValueError("At least one of --do_train, --do_eval, --do_predict must be true.")
    return configs


def first_run_directory(training: TrainingConfig) -> str:
    """Returns where the run, of several seeds the first, records what it is."""
    if config_flags.from_flags(FineTuningConfig).num_seeds == 1:
        return training.output_dir
    seed = config_flags.from_flags(DataConfig).random_seed
    return str(pathlib.Path(training.output_dir, f"seed-{seed}"))


def is_watched(training: TrainingConfig) -> bool:
    """True if there are evaluations while training."""
    return bool(training.eval_steps or training.early_stopping_evaluations)


def asked_files(configs: Configs) -> dict[str, str]:
    """Returns the files that the flags ask for, by what they are for: train, eval, predict.

    Raises:
      ValueError: if one of them is not named.
    """
    training, tuning = configs.training, configs.tuning
    asked = {
        "train": (training.do_train, tuning.train_file),
        "eval": (
            training.do_eval or training.do_train and is_watched(training),
            configs.data.eval_file,
        ),
        "predict": (tuning.do_predict, tuning.predict_file),
    }
    missing = [name for name, (is_asked, path) in asked.items() if is_asked and not path]
    if missing:
        raise ValueError(f"--{missing[0]}_file is empty; name the file.")
    return {name: path for name, (is_asked, path) in asked.items() if is_asked}
