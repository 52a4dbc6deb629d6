"""Fine-tunes BERT to classify texts or pairs of texts, or to score them.

    python -m bert_tf.run_classifier --flagfile=configs/glue_sst2.flags --data_dir=glue/SST-2 \\
        --init_checkpoint=uncased_L-12_H-768_A-12.zip
    python -m bert_tf.run_classifier --do_train --do_eval --output_dir=runs/mine \\
        --train_file=train.csv --eval_file=dev.csv --text_column=review --label_column=stars \\
        --init_checkpoint=uncased_L-12_H-768_A-12.zip

Data are GLUE's tasks by name, or your own tables. Flags and defaults are those of
google-research/bert's run_classifier.py where it has them.
"""

from bert_tf import config_flags
from bert_tf.config import DataConfig
from bert_tf.fine_tuning.program import Configs, asked_files, asked_for, define_flags, run
from bert_tf.fine_tuning_config import ClassifierConfig, FineTuningConfig
from bert_tf.tasks.classification.inputs import LabelledTexts

define_flags(ClassifierConfig)
# What says which tables of one's own are read, and how.
OF_TABLES = (
    *("train_file", "eval_file", "predict_file"),
    *("text_column", "text_b_column", "label_column", "label_kind", "label_separator"),
    *("delimiter", "column_names", "skip_unlabelled"),
)


def reads_glue(configs: Configs) -> bool:
    """True if the examples are those of --task_name in --data_dir.

    A model of such a task can also evaluate and predict other files that the command names.
    """
    own = {"eval_file", "predict_file"} & given().keys()
    return bool(configs.task.task_name) and (configs.training.do_train or not own)


def given() -> dict[str, str]:
    """Returns what the command says of tables, where that is not the default."""
    values: dict[str, str] = {}
    for group in (DataConfig, FineTuningConfig, ClassifierConfig):
        usual = group().to_dict()
        of_group = config_flags.given(group).items()
        values |= {name: value for name, value in of_group if value != usual[name]}
    return {name: values[name] for name in OF_TABLES if name in values}


def find_files(configs: Configs) -> dict[str, str]:
    """GLUE's tasks name their files themselves: here stand their folder and the split.

    Raises:
      ValueError: if a file is not named, or a flag has no effect beside --task_name.
    """
    is_glue, task = reads_glue(configs), configs.task.task_name
    for name, value in given().items():
        if is_glue or task and name == "label_kind":
            raise ValueError(
                f"--{name}={value} has no effect: --task_name={task} says what is read; leave one "
                f"of the two out."
            )
    if not is_glue:
        return asked_files(configs)
    folder = configs.task.data_dir
    if not folder:
        raise ValueError(f"--task_name={configs.task.task_name} needs its files; give --data_dir.")
    splits = {"train": "train", "eval": "dev", "predict": "test"}
    return {use: f"{folder}/{splits[use]}" for use, flag in asked_for(configs).items() if flag}


def execute(configs: Configs, files: dict[str, str]) -> int:
    texts = LabelledTexts(configs, files, reads_glue(configs))
    texts.check()
    from bert_tf.fine_tuning import run
    from bert_tf.tasks.classification import program as classifier

    return run.run_program(classifier.Classifier(configs, files, texts), configs)


def main(_: list[str]) -> int:
    return run(ClassifierConfig, find_files, execute)


if __name__ == "__main__":
    config_flags.run(main)
