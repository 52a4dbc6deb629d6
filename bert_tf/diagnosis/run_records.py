"""The records of a run directory: its flags, logged lines, evaluations and results."""

import contextlib
import math
import pathlib

import numpy as np

from bert_tf.checkpoints.run_record import list_checkpoints
from bert_tf.config.config_flags import read_flagfile
from bert_tf.system.bounded_files import read_optional_text
from bert_tf.tasks.base.programs.results import read_results
from bert_tf.training.metrics_log import read_metrics

Curve = tuple[np.ndarray, np.ndarray]  # steps and values


class Run:
    """The records of a run directory; a missing file is read as an empty one.

    Attributes:
      flags: the flags of run.flags, as text.
      steps: the lines of metrics.jsonl.
      evaluations: the lines of eval_metrics.jsonl.
      results: the numbers of eval_results.txt, their names without Google's `eval_`.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.flags = read_flagfile(folder / "run.flags")
        self.steps = read_metrics(folder / "metrics.jsonl")
        self.evaluations = read_metrics(folder / "eval_metrics.jsonl")
        results = read_results(folder)
        self.results = {name.removeprefix("eval_"): value for name, value in results.items()}

    def text(self, name: str) -> str:
        """Returns a file's text; "" if the file is missing."""
        return read_optional_text(self.folder / name)

    def number(self, name: str, default: float = math.nan) -> float:
        """Returns a flag's value as a number; `default` if it is not recorded or not a number."""
        try:
            return float(self.flags[name])
        except (KeyError, ValueError):
            return default

    @property
    def num_train_steps(self) -> float:
        """Steps of the whole run; with a budget of minutes, the steps done so far."""
        if self.number("train_minutes", 0.0) and self.last_step:
            return self.last_step
        return self.number("num_train_steps")

    @property
    def last_step(self) -> int:
        """The last step with a logged line, an evaluation or a checkpoint; 0 without any."""
        steps = [line["step"] for line in self.steps + self.evaluations]
        for path in list_checkpoints(self.folder):
            steps.append(int(path.name.rpartition("-")[2]))
        return max(steps, default=0)

    @property
    def share_moves(self) -> bool:
        """Whether the masked share changes during the run, which changes the loss as well."""
        return self.number("masked_lm_prob_end", 0.0) > 0

    @property
    def is_pretraining(self) -> bool:
        return "masked_lm_prob" in self.flags or any("masked_lm_loss" in row for row in self.steps)

    def curve(self, name: str, is_evaluated: bool = False) -> Curve:
        """Returns steps and values of a column of metrics.jsonl, or of eval_metrics.jsonl."""
        rows = self.evaluations if is_evaluated else self.steps
        pairs = [(row["step"], row[name]) for row in rows if name in row]
        values = np.array(pairs, float).reshape(-1, 2)
        return values[:, 0], values[:, 1]


def read_timed(folder: pathlib.Path) -> dict[str, Curve]:
    """Returns the scalars of TensorBoard's files by name; truncated files are read partially."""
    paths = sorted(folder.glob("events.out.tfevents.*"))
    if not paths:
        return {}
    # TensorFlow takes seconds to load, so it is loaded only for runs with such files.
    import tensorflow as tf
    from tensorflow.core.util import event_pb2

    by_step: dict[str, dict[int, float]] = {}
    for path in paths:
        with contextlib.suppress(tf.errors.DataLossError):
            for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
                event = event_pb2.Event.FromString(record)
                for value in event.summary.value:
                    if value.HasField("tensor"):
                        number = float(tf.make_ndarray(value.tensor))
                        # A step that is repeated after a restart counts once.
                        by_step.setdefault(value.tag, {})[event.step] = number
    curves = {}
    for name, values in by_step.items():
        points = np.array(sorted(values.items()))
        curves[name] = (points[:, 0], points[:, 1])
    return curves
