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
from bert_tf.fine_tuning.program import Configs, define_flags, run
from bert_tf.fine_tuning_config import ClassifierConfig
from bert_tf.tasks.classification.inputs import LabelledTexts, check_folds
from bert_tf.tasks.classification.sources import find_files, reads_glue

define_flags(ClassifierConfig)


def execute(configs: Configs, files: dict[str, str]) -> int:
    if configs.task.folds:
        check_folds(configs)
    texts = LabelledTexts(configs, files, reads_glue(configs))
    texts.check()  # Before TensorFlow is loaded.
    if configs.task.folds:
        from bert_tf.tasks.classification.folds import run_folds

        return run_folds(configs, files, texts)
    from bert_tf.fine_tuning.run import run_program
    from bert_tf.tasks.classification.program import Classifier

    return run_program(Classifier(configs, files, texts), configs)


def main(_: list[str]) -> int:
    return run(ClassifierConfig, find_files, execute)


if __name__ == "__main__":
    config_flags.run(main)
