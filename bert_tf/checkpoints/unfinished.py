"""Runs that stopped before their last step."""

import functools
import json
import pathlib

from absl import logging

from bert_tf.checkpoints.run_record import RUN_NAME, list_checkpoints, read_record
from bert_tf.system.bounded_files import read_text

EVALUATIONS = "eval_metrics.jsonl"
BEST = "best_checkpoint.json"


@functools.cache
def warn_if_unfinished(folder: pathlib.Path) -> None:
    """Warns, once a process, if a folder is a run directory whose run has not finished."""
    if not (folder / RUN_NAME).is_file():
        return
    record = read_record(folder)
    steps = _number(record.get("num_train_steps"))
    checkpoints = list_checkpoints(folder)
    # With a budget of time the number of steps is not recorded.
    if not checkpoints or not steps or _number(record.get("train_minutes")):
        return
    step = int(checkpoints[-1].name.rpartition("-")[2])
    if step >= steps or _stopped_early(folder, _number(record.get("early_stopping_evaluations"))):
        return
    logging.warning(
        "The run in %s has not finished: it stopped at step %d of %d. To finish it, run its "
        "training again with --flagfile=%s.",
        folder,
        step,
        steps,
        folder / RUN_NAME,
    )


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _stopped_early(folder: pathlib.Path, patience: float) -> bool:
    """Returns whether as many evaluations as the patience follow the best one."""
    try:
        best = json.loads(read_text(folder / BEST))["step"]
        lines = read_text(folder / EVALUATIONS).splitlines()
        later = sum(json.loads(line)["step"] > best for line in lines)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return 0 < patience <= later
