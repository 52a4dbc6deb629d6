"""Fine-tunes BERT to tag words: named entities, parts of speech.

    python -m bert_tf.run_tagger --flagfile=configs/ner.flags \\
        --train_file=train.conll --eval_file=dev.conll --init_checkpoint=cased_L-12_H-768_A-12.zip
    python -m bert_tf.run_tagger --do_predict --output_dir=runs/ner --predict_file=test.conll

Files have a word a line with its tag in columns, and blank lines between sentences (CoNLL), or are
CoNLL-U, JSON (tokens with tags, or texts with spans) or tables: docs/tagging.md lists them. The
first token of a word carries its label; long sentences are cut in windows, and each word is tagged
once. The predictions are the input again, with a tag for each word.
"""

from bert_tf.config import config_flags
from bert_tf.config.fine_tuning_config import TaggerConfig
from bert_tf.tasks.base.programs.program import Configs, asked_files, define_flags, run
from bert_tf.tasks.tagging.inputs import TaggedInputs

define_flags(TaggerConfig)


def execute(configs: Configs, files: dict[str, str]) -> int:
    tagged = TaggedInputs(configs, files)
    from bert_tf.tasks.base.programs import run
    from bert_tf.tasks.tagging import program as tagger

    return run.run_program(tagger.Tagger(configs, files, tagged), configs)


def main(_: list[str]) -> int:
    return run(TaggerConfig, asked_files, execute)


if __name__ == "__main__":
    config_flags.run(main)
