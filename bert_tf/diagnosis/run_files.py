"""What a run directory holds, of pre-training or fine-tuning, read as far as it is there."""

import dataclasses
import json
import math
import pathlib
import re
import shutil
from typing import Any

import numpy as np

from bert_tf.config_flags import read_flagfile
from bert_tf.diagnosis.record_scan import read_frames
from bert_tf.training.metrics_log import read_metrics

CHECKPOINT = re.compile(r"model\.ckpt-(\d+)\.(index|data-\d+-of-\d+)")
# Scalars of the log beside those of metrics.jsonl: they hold a clock.
TIMED = (
    *("examples_per_second", "tokens_per_second", "share_of_peak"),
    *("step_seconds", "input_seconds", "save_seconds", "evaluation_seconds"),
)


@dataclasses.dataclass
class RunFiles:
    """A run directory.

    Attributes:
      folder: where it lies.
      flags: of run.flags, as text.
      steps: lines of metrics.jsonl; `evaluations`: of eval_metrics.jsonl.
      events: lines of events.jsonl: losses that were not finite or jumped.
      results: numbers of eval_results.txt.
      report: text of report.txt; "" without one.
      checkpoints: bytes of each checkpoint by its step; 0 if a file of it is missing.
      timed: by name, (step, value) of the scalars that hold a clock.
      seeds: seeds.json's results by seed; {} unless the folder is of several seeds.
      free_bytes: what is left on the disk.
    """

    folder: pathlib.Path
    flags: dict[str, str]
    steps: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    events: list[dict[str, Any]]
    results: dict[str, float]
    report: str
    checkpoints: dict[int, int]
    timed: dict[str, list[tuple[int, float]]]
    seeds: dict[str, dict[str, float]]
    free_bytes: int

    def number(self, name: str, default: float = math.nan) -> float:
        """Returns a flag's value as a number; `default` if it is not recorded or is none."""
        try:
            return float(self.flags.get(name, ""))
        except ValueError:
            return default

    def is_on(self, name: str) -> bool:
        """True if a flag is true."""
        return self.flags.get(name) == "true"

    @property
    def is_pretraining(self) -> bool:
        return "masked_lm_prob" in self.flags or any("masked_lm_loss" in row for row in self.steps)

    def column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns steps and values of a column of metrics.jsonl, where it is there."""
        rows = [(row["step"], row[name]) for row in self.steps if name in row]
        values = np.array(rows, float).reshape(-1, 2)
        return values[:, 0], values[:, 1]

    def evaluated(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the same of eval_metrics.jsonl."""
        rows = [(row["step"], row[name]) for row in self.evaluations if name in row]
        values = np.array(rows, float).reshape(-1, 2)
        return values[:, 0], values[:, 1]


def is_run(path: pathlib.Path) -> bool:
    """True for a run directory, and for one with several seeds."""
    return any((path / name).is_file() for name in ("run.flags", "metrics.jsonl", "seeds.json"))


def read_run(folder: pathlib.Path) -> RunFiles:
    """Reads what a run directory holds."""

    def text(name: str) -> str:
        path = folder / name
        return path.read_text(encoding="utf8") if path.is_file() else ""

    return RunFiles(
        folder=folder,
        flags=read_flagfile(folder / "run.flags") if text("run.flags") else {},
        steps=read_metrics(folder / "metrics.jsonl"),
        evaluations=read_metrics(folder / "eval_metrics.jsonl"),
        events=read_metrics(folder / "events.jsonl"),
        results=_results(text("eval_results.txt")),
        report=text("report.txt"),
        checkpoints=_checkpoints(folder),
        timed=_timed(folder / "train"),
        seeds=json.loads(text("seeds.json"))["seeds"] if text("seeds.json") else {},
        free_bytes=shutil.disk_usage(folder).free,
    )


def _results(text: str) -> dict[str, float]:
    pairs = (line.partition(" = ") for line in text.splitlines())
    return {name: float(value) for name, equals, value in pairs if equals}


def _checkpoints(folder: pathlib.Path) -> dict[int, int]:
    sizes: dict[int, dict[str, int]] = {}
    for path in folder.glob("model.ckpt-*"):
        if match := CHECKPOINT.fullmatch(path.name):
            sizes.setdefault(int(match[1]), {})[match[2]] = path.stat().st_size
    return {
        step: sum(parts.values()) if len(parts) > 1 else 0
        for step, parts in sorted(sizes.items())
        if "index" in parts  # it is written last: without it the checkpoint never was
    }


def _timed(folder: pathlib.Path) -> dict[str, list[tuple[int, float]]]:
    """Reads TensorBoard's files; one that a kill cut off is read up to there."""
    paths = sorted(folder.glob("events.out.tfevents.*"))
    if not paths:
        return {}
    from tensorflow import make_ndarray
    from tensorflow.core.util import event_pb2

    found: dict[str, dict[int, float]] = {}
    for path in paths:
        for record in read_frames(path):
            event = event_pb2.Event.FromString(record)
            for value in event.summary.value:
                if value.tag in TIMED:
                    # A step done again after a restart counts once.
                    number = float(make_ndarray(value.tensor))
                    found.setdefault(value.tag, {})[event.step] = number
    return {name: sorted(values.items()) for name, values in found.items()}
