"""Fine-tunes BERT to choose among continuations: SWAG, or your own questions with choices.

    python -m bert_tf.run_multiple_choice --flagfile=configs/swag.flags --train_file=train.csv \\
        --eval_file=val.csv --init_checkpoint=uncased_L-12_H-768_A-12.zip

Files have SWAG's columns, or are JSONL with `context`, `question`, `choices`, `label`.
"""

from bert_tf.config import config_flags
from bert_tf.config.fine_tuning_config import ChoiceConfig
from bert_tf.tasks.base.programs.program import Configs, asked_files, define_flags, run
from bert_tf.tasks.multiple_choice.inputs import read_choices

define_flags(ChoiceConfig)


def execute(configs: Configs, files: dict[str, str]) -> int:
    choices = read_choices(configs, files)
    from bert_tf.tasks.base.programs import run
    from bert_tf.tasks.multiple_choice import program as multiple_choice

    return run.run_program(multiple_choice.MultipleChoice(configs, files, choices), configs)


def main(_: list[str]) -> int:
    return run(ChoiceConfig, asked_files, execute)


if __name__ == "__main__":
    config_flags.run(main)
