"""Fine-tunes BERT to classify texts or pairs of texts, or to score them.

    python -m bert_tf.run_classifier --flagfile=configs/glue_sst2.flags --data_dir=glue/SST-2 \\
        --init_checkpoint=uncased_L-12_H-768_A-12.zip
    python -m bert_tf.run_classifier --do_train --do_eval --output_dir=runs/mine \\
        --train_file=train.csv --eval_file=dev.csv --text_column=review --label_column=stars \\
        --init_checkpoint=uncased_L-12_H-768_A-12.zip
    python -m bert_tf.run_classifier --zero_shot=politics,sport --do_predict --output_dir=out \\
        --init_checkpoint=hf://FacebookAI/roberta-large-mnli --predict_file=texts.csv

    python -m bert_tf.run_classifier --few_shot --do_train --do_eval --output_dir=runs/few \\
        --init_checkpoint=all-MiniLM-L6-v2 --train_file=few.csv --eval_file=dev.csv

Data are GLUE's tasks by name, or your own tables. --zero_shot needs no training data: a model of
natural language inference chooses among the labels that it names. --few_shot needs 8 to 64 examples
of each label and an embedding model. Flags and defaults are those of
google-research/bert's run_classifier.py where it has them.
"""

from bert_tf.config import config_flags
from bert_tf.config.fine_tuning_config import ClassifierConfig
from bert_tf.config.rules import check_rules
from bert_tf.inference.loading import load
from bert_tf.tasks.base.programs.program import Configs, define_flags, run
from bert_tf.tasks.classification import inputs
from bert_tf.tasks.classification.inputs import CLASSIFIER_RULES, find_files, reads_glue
from bert_tf.tasks.classification.zero_shot_program import ZeroShotConfig, ZeroShotRun

define_flags(ClassifierConfig)
config_flags.define_flags(ZeroShotConfig)


def execute(configs: Configs, files: dict[str, str]) -> int:
    check_rules(CLASSIFIER_RULES, configs)
    texts = inputs.LabelledTexts(configs, files, reads_glue(configs))
    texts.check()  # Before TensorFlow is loaded.
    if configs.task.few_shot:
        inputs.check_few_shot_labels(texts)
        unlabelled = inputs.read_unlabelled(configs)
        from bert_tf.tasks.classification.few_shot_program import run_few_shot

        return run_few_shot(configs, files, texts, unlabelled)
    if configs.task.folds:
        from bert_tf.tasks.classification.folds import run_folds

        return run_folds(configs, files, texts)
    from bert_tf.tasks.base.programs.run import run_program
    from bert_tf.tasks.classification.program import Classifier

    return run_program(Classifier(configs, files, texts), configs)


def main(_: list[str]) -> int:
    zero_shot = config_flags.from_flags(ZeroShotConfig)
    if zero_shot.zero_shot:
        return ZeroShotRun(Configs.of_flags(ClassifierConfig), zero_shot).execute(load)
    return run(ClassifierConfig, find_files, execute)


if __name__ == "__main__":
    config_flags.run(main)
