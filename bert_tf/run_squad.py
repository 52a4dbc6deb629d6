"""Fine-tunes BERT to answer questions about a text, and answers them: SQuAD 1.1 and 2.0.

    python -m bert_tf.run_squad --flagfile=configs/squad_v1.flags --train_file=train-v1.1.json \\
        --eval_file=dev-v1.1.json --init_checkpoint=uncased_L-12_H-768_A-12.zip

Flags, defaults and output files (predictions.json, nbest_predictions.json, null_odds.json) are
those of google-research/bert's run_squad.py. --do_eval judges like the official scripts; for
version 2 it also looks for the best threshold. Files may be tfds:squad/v1.1 or tfds:squad/v2.0, or
hold Hugging Face's rows, a question each. Without --predict_file that of --eval_file is answered.
"""

import dataclasses

from bert_tf.config import config_flags
from bert_tf.config.fine_tuning_config import SquadRunConfig
from bert_tf.tasks.base.programs.program import Configs, asked_files, define_flags, run
from bert_tf.tasks.question_answering.inputs import read_questions

define_flags(SquadRunConfig)
config_flags.set_defaults(max_seq_length=384)


def find_files(configs: Configs) -> dict[str, str]:
    """Evaluation and prediction without a file take the other's."""
    evaluated = configs.data.eval_file or configs.tuning.predict_file
    predicted = configs.tuning.predict_file or configs.data.eval_file
    data = dataclasses.replace(configs.data, eval_file=evaluated)
    tuning = dataclasses.replace(configs.tuning, predict_file=predicted)
    return asked_files(configs._replace(data=data, tuning=tuning))


def execute(configs: Configs, files: dict[str, str]) -> int:
    questions = read_questions(configs, files)
    from bert_tf.tasks.base.programs import run
    from bert_tf.tasks.question_answering import program as squad

    return run.run_program(squad.Squad(configs, files, questions), configs)


def main(_: list[str]) -> int:
    return run(SquadRunConfig, find_files, execute)


if __name__ == "__main__":
    config_flags.run(main)
