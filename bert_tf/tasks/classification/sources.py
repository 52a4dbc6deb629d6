"""The files of a classification run: a GLUE task's, or the tables that the flags name."""

from bert_tf.config import DataConfig, config_flags
from bert_tf.config.fine_tuning_config import ClassifierConfig, FineTuningConfig
from bert_tf.tasks.base.programs.program import Configs, asked_files, asked_for

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
