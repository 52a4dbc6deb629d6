"""Reports the result of a pre-training run: files, curves and log lines."""

import pathlib
import typing

from absl import logging

from bert_tf.config import PretrainingConfigs
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.training.curves import draw_curves
from bert_tf.training.evaluator import note_evaluation
from bert_tf.training.metrics_log import read_metrics
from bert_tf.training.reporting import write_eval_results
from bert_tf.training.trainer import Trainer


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
