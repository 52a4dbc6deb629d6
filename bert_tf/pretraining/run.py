"""A pre-training run as configured by `run_pretraining`: prepare, build, train, report."""

import functools
import pathlib
import typing

import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.run_record import only_training
from bert_tf.config import PretrainingConfigs
from bert_tf.corpus.masking import MOST_WORDS, mean_span
from bert_tf.corpus.pipeline import raise_input_fault
from bert_tf.pretraining.build import build_trainer
from bert_tf.pretraining.prepare import encoder_passes
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.training.curves import draw_curves
from bert_tf.training.distribution import check_batch_sizes, is_chief, make_strategy
from bert_tf.training.evaluator import note_evaluation
from bert_tf.training.metrics_log import read_metrics
from bert_tf.training.reporting import write_eval_results
from bert_tf.training.stopping import Stopped
from bert_tf.training.trainer import Trainer


def run(configs: PretrainingConfigs, start: Checkpoint | None) -> int:
    """Runs the configuration, with exclusive use of the run directory; returns the exit status.

    Errors in flags, input or numbers are ValueErrors.
    """
    training = configs.training
    encoder_passes(configs)  # Refuses impossible shapes before data are prepared for hours.
    if configs.masking.span_length:
        logging.info(
            "--mask_unit=span:%g: spans end after %d words at the latest, which gives %.2f words "
            "on average.",
            configs.masking.span_length,
            MOST_WORDS,
            mean_span(configs.masking),
        )
    strategy = make_strategy(training)
    check_batch_sizes(training, strategy.num_replicas_in_sync)
    # Only the chief of a training writes into the run directory, and needs it exclusively.
    if not (training.do_train and is_chief(strategy)):
        return train_and_evaluate(configs, start, strategy)
    with only_training(training.output_dir):
        return train_and_evaluate(configs, start, strategy)


def train_and_evaluate(
    configs: PretrainingConfigs, start: Checkpoint | None, strategy: tf.distribute.Strategy
) -> int:
    """Trains and evaluates as the flags say; returns the exit status, see `run`."""
    training = configs.training
    trainer = build_trainer(configs, start, strategy)
    task = typing.cast(PretrainingTask, trainer.task)
    # Computed once, when it is first needed, as it reads training data.
    trainer.baseline = functools.cache(
        lambda: task.baseline(training.eval_batch_size, training.max_eval_steps)
    )
    try:
        if training.do_train:
            trainer.train()
        if training.do_eval:
            results = final_results(trainer)
            if is_chief(strategy):
                report_results(trainer, configs, results)
    except Stopped as stop:
        record = f"{training.output_dir}/run.flags"
        logging.info("Saved at step %d. To resume, run the same command again, or:", trainer.step)
        logging.info("python -m bert_tf.run_pretraining --flagfile=%s", record)
        return stop.exit_status
    except FloatingPointError as error:
        raise ValueError(error) from error
    except tf.errors.InvalidArgumentError as error:
        raise_input_fault(error, task.train_records, task.eval_records)
    return 0


def final_results(trainer: Trainer) -> dict[str, float]:
    """Returns the evaluation of the last step; training may have computed it already."""
    if trainer.last_evaluation:
        step, results = trainer.last_evaluation
        if step == trainer.step:
            return results
    return trainer.evaluate()


def report_results(
    trainer: Trainer, configs: PretrainingConfigs, results: dict[str, float]
) -> None:
    """Writes eval_results.txt and curves.png, and logs the results next to the baseline's."""
    training = configs.training
    task = typing.cast(PretrainingTask, trainer.task)
    baseline = trainer.baseline() if trainer.baseline else {}
    folder = pathlib.Path(training.output_dir)
    if training.do_train:
        note_evaluation(folder, trainer.step, results)
        trainer.directory.mark_best(trainer.step, task.score(results))
    write_eval_results(folder / "eval_results.txt", trainer.step, results, baseline)
    steps = read_metrics(folder / "metrics.jsonl")
    evaluations = read_metrics(folder / "eval_metrics.jsonl")
    draw_curves(folder / "curves.png", task.plot_titles, steps, evaluations, baseline)
    logging.info("Evaluation at step %d:", trainer.step)
    for name, value in results.items():
        comparison = f"  (baseline {baseline[name]:.4f})" if name in baseline else ""
        logging.info("  %-24s %.4f%s", name, value, comparison)
    if trainer.samples and training.do_train:
        trainer.note_samples()
        for line in trainer.samples.report():
            logging.info("%s", line)
    if steps:
        logging.info("Curves: %s", folder / "curves.png")
