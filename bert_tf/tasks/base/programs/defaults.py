"""Default settings of a fine-tuning program that depend on the model and the data.

The rules are those of `bert_tf.config.fine_tuning_defaults`, which `fit` uses as well. The chosen
values become part of the run's record, and a resumed run takes them from there.
"""

import dataclasses
import pathlib
from collections.abc import Collection
from typing import Any

import tensorflow as tf
from absl import flags, logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.run_record import recorded
from bert_tf.config import DataConfig, OptimizerConfig, TrainingConfig, config_flags
from bert_tf.config.fine_tuning_config import FineTuningConfig
from bert_tf.config.fine_tuning_defaults import (
    default_epochs,
    default_learning_rate,
    default_length,
)
from bert_tf.config.flag_rules import MODEL_RULES
from bert_tf.config.rules import check_rules
from bert_tf.tasks.base.programs import program
from bert_tf.tasks.base.programs.program import Configs
from bert_tf.training.distribution import check_batch_sizes
from bert_tf.training.flops import has_accelerator
from bert_tf.training.memory import activation_bytes, choose_micro_batches


def settings_to_choose(configs: program.Configs) -> set[str]:
    """Returns the settings of FOLLOWING that neither a flag gives nor the run recorded."""
    training = configs.training
    given: set[str] = set()
    for group in (DataConfig, OptimizerConfig, FineTuningConfig):
        given.update(config_flags.given(group))
    if "num_train_steps" in given:  # Epochs have no effect.
        given.add("num_train_epochs")
    # Training continues the record of its folder; otherwise the record of the weights counts.
    if training.do_train:
        source = str(program.first_record(pathlib.Path(training.output_dir)))
    else:
        source = program.source_of(training)
    given.update(name for name in program.FOLLOWING if recorded(source, name))
    return {*program.FOLLOWING} - given


def with_recorded(configs: program.Configs) -> program.Configs:
    """Returns the configuration with the settings that its run recorded and no flag gives.

    Programs with several runs, for example one per fold, know the directory of a run only here.
    """
    if not configs.training.do_train:
        return configs
    source = str(program.first_record(pathlib.Path(configs.training.output_dir)))
    groups = {}
    for key in ("data", "optimizer", "tuning"):
        group = getattr(configs, key)
        given = config_flags.given(type(group))
        values = {}
        for name in program.FOLLOWING:
            text = recorded(source, name)
            if text and name in group.names() and name not in given:
                values[name] = flags.FLAGS[name].parser.parse(text)
        groups[key] = dataclasses.replace(group, **values)
    return configs._replace(**groups)


def before_reading(
    chosen: Collection[str], most: int, configs: program.Configs, weights: Checkpoint | None
) -> program.Configs:
    """Returns the configuration to read examples with, at the largest default length.

    Weights that are used as they are cut texts where their folder states it; None: those are the
    checkpoints of the run directory.
    """
    stated = {} if weights is None or configs.training.do_train else weights.settings
    task: Any = configs.task  # Only classifiers keep the tail of a text.
    if "long_texts" in stated and "long_texts" not in config_flags.given(type(task)):
        task = dataclasses.replace(task, long_texts=stated["long_texts"])
        configs = configs._replace(task=task)
    if "max_seq_length" not in chosen:
        return configs
    longest = configs.model.longest_row
    longest = min(longest, int(stated.get("max_seq_length", longest)))
    length = min(longest, most)
    return configs._replace(data=dataclasses.replace(configs.data, max_seq_length=length))


def after_reading(
    names: Collection[str],
    least: int,
    configs: program.Configs,
    examples: program.Examples,
    num_classes: int,
) -> program.Configs:
    """Returns the configuration with the settings chosen for these examples, and logs them.

    `num_classes` counts the classes of texts; 0 for tasks without classes.
    """
    data = configs.data
    optimizer = configs.optimizer
    tuning = configs.tuning
    chosen = []
    if "max_seq_length" in names:
        read = [*examples.eval.values(), *examples.predict.values()]
        if examples.train:
            read.append(examples.train)
        longest = max(int(dataset.rows.lengths.max(initial=0)) for dataset in read)
        # No sequence is longer than the length that examples were read with.
        length = default_length(longest, data.max_seq_length, least)
        data = dataclasses.replace(data, max_seq_length=length)
        chosen.append(f"--max_seq_length={length} (the longest text has {longest} tokens)")
    if configs.training.do_train and "learning_rate" in names:
        width = configs.model.hidden_size
        rate = default_learning_rate(width)
        optimizer = dataclasses.replace(optimizer, learning_rate=rate)
        chosen.append(f"--learning_rate={rate:g} (hidden_size {width})")
    if configs.training.do_train and "num_train_epochs" in names:
        num_rows = len(examples.train.rows)
        epochs = default_epochs(num_rows, num_classes)
        tuning = dataclasses.replace(tuning, num_train_epochs=float(epochs))
        chosen.append(f"--num_train_epochs={epochs} ({num_rows:,} examples)")
    if chosen:
        logging.info("Chosen for this model and these data: %s.", ", ".join(chosen))
    return configs._replace(data=data, optimizer=optimizer, tuning=tuning)


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
    """Returns the configuration with an interval of evaluations at which a run can stop early."""
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
