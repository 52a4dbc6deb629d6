"""Steps and batch sizes of a fine-tuning run, which depend on the data and the machine."""

import dataclasses

import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.run_record import recorded
from bert_tf.config import OptimizerConfig, TrainingConfig, config_flags
from bert_tf.config.flag_rules import MODEL_RULES
from bert_tf.config.rules import check_rules
from bert_tf.tasks.base.programs.program import Configs
from bert_tf.training.distribution import check_batch_sizes
from bert_tf.training.flops import has_accelerator
from bert_tf.training.memory import activation_bytes, choose_micro_batches


def with_sizes(
    configs: Configs,
    num_rows: int,
    strategy: tf.distribute.Strategy,
    texts_per_row: int = 1,
    predictions_per_row: int = 0,
) -> Configs:
    """Returns the configuration with the settings that depend on the data and the machine.

    Args:
      texts_per_row: texts of max_seq_length in an example.
      predictions_per_row: tokens that are predicted per example.
    """
    model, data, optimization, training, tuning, _ = configs
    check_rules(MODEL_RULES, configs)
    given = {**config_flags.given(OptimizerConfig), **config_flags.given(TrainingConfig)}
    if "jit_compile" not in given:
        training = dataclasses.replace(training, jit_compile=has_accelerator())
    replicas = strategy.num_replicas_in_sync
    evaluates = training.do_eval or training.eval_steps or training.early_stopping_evaluations
    sizes = {
        "eval_batch_size": (training.eval_batch_size, evaluates),
        "predict_batch_size": (tuning.predict_batch_size, tuning.do_predict),
    }
    for name, (size, is_used) in sizes.items():
        if is_used and size % replicas:
            raise ValueError(f"--{name}={size} is not a multiple of the {replicas} replicas.")
    if not training.do_train:
        training = dataclasses.replace(training, gradient_accumulation_steps=1)
        return configs._replace(training=training)
    epoch = num_rows / training.train_batch_size
    steps = max(1, int(epoch * tuning.num_train_epochs))
    # A number of steps takes precedence over epochs and over a share of the run.
    if "num_train_steps" in given:
        steps = optimization.num_train_steps
    warmup = int(steps * optimization.warmup_proportion)
    if "num_warmup_steps" in given:
        warmup = optimization.num_warmup_steps
    optimization = dataclasses.replace(optimization, num_train_steps=steps, num_warmup_steps=warmup)
    optimization.check_lengths()
    if training.early_stopping_evaluations:
        training = with_evaluations(training, steps, epoch)
    check_batch_sizes(training, replicas)
    length = data.max_seq_length
    bytes_per_text = activation_bytes(model, length, 0, training.recompute)
    bytes_per_example = activation_bytes(model, length, predictions_per_row, training.recompute)
    # Only one of the texts has predictions.
    bytes_per_example += (texts_per_row - 1) * bytes_per_text
    before = int(recorded(training.output_dir, "gradient_accumulation_steps") or 0)
    training = choose_micro_batches(training, bytes_per_example, replicas, before)
    return configs._replace(optimizer=optimization, training=training)


def with_evaluations(training: TrainingConfig, steps: int, epoch: float) -> TrainingConfig:
    """Returns the configuration with an interval of evaluations at which a run can stop early.

    Args:
      training: with early_stopping_evaluations; an interval that it has is kept.
    """
    evaluations = training.early_stopping_evaluations
    if training.eval_steps:
        if evaluations * training.eval_steps >= steps:
            logging.warning(
                "--early_stopping_evaluations=%d with --eval_steps=%d: a run of %d steps ends "
                "before it can stop early. Give a smaller --eval_steps, or leave it out.",
                evaluations,
                training.eval_steps,
                steps,
            )
        return training
    # After each epoch, but often enough that a run of few epochs can stop half way.
    most = steps // (2 * evaluations)
    training = dataclasses.replace(training, eval_steps=max(1, min(round(epoch), most)))
    logging.info(
        "--eval_steps=0 with --early_stopping_evaluations=%d: evaluates every %d steps. Give "
        "--eval_steps for another interval.",
        evaluations,
        training.eval_steps,
    )
    return training
