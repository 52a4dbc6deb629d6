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

define_flags(ClassifierConfig)


def reads_glue(configs: Configs) -> bool:
    """True if the examples are those of --task_name in --data_dir.

    A model of such a task can also evaluate and predict other files that the command names.
    """
    training, named = configs.training, {"eval_file", "predict_file"}
    given = config_flags.given(DataConfig) | config_flags.given(FineTuningConfig)
    has_own = not training.do_train and any(given.get(name) for name in named)
    return bool(configs.task.task_name) and not has_own


def find_files(configs: Configs) -> dict[str, str]:
    """GLUE's tasks name their files themselves: here stand their folder and the split."""
    if not reads_glue(configs):
        return asked_files(configs)
    folder = configs.task.data_dir
    if not folder:
        raise ValueError(f"--task_name={configs.task.task_name} needs its files; give --data_dir.")
    splits = {"train": "train", "eval": "dev", "predict": "test"}
    return {use: f"{folder}/{splits[use]}" for use, flag in asked_for(configs).items() if flag}


def execute(configs: Configs, files: dict[str, str]) -> int:
    from bert_tf.fine_tuning import classifier, run

    return run.run_program(classifier.Classifier(configs, files, reads_glue(configs)), configs)


def main(_: list[str]) -> int:
    return run(ClassifierConfig, find_files, execute)


if __name__ == "__main__":
    config_flags.run(main)
