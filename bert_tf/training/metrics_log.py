"""metrics.jsonl: a line a logged step, the same bits whether the run was interrupted or not."""

import json
import os
import pathlib
from typing import Any

from bert_tf.files import atomic_write

Row = dict[str, float]


class MetricsLog:
    """Gathers the sums of every step and writes their ratios every `log_steps` steps.

    A line holds what the run computed and no clock: two runs of the same numbers have the same
    file. The sums since the last line are part of a checkpoint (`pending`), and lines beyond
    a restored step are dropped, so a resumed run continues the file exactly.

    Args:
      path: the file.
      sum_names, loss_names: as of the task.
      log_steps: steps between lines; the first step has a line of its own.
    """

    def __init__(
        self,
        path: pathlib.Path,
        sum_names: tuple[str, ...],
        loss_names: tuple[str, ...],
        log_steps: int,
    ) -> None:
        self.path = path
        self.sum_names = sum_names
        self.loss_names = loss_names
        self.log_steps = log_steps
        self.pending: Row = {}

    def restore(self, step: int, pending: Row) -> None:
        """Goes back to `step`: drops later lines and takes up its pending sums."""
        self.pending = dict(pending)
        lines = [
            json.dumps(line) + "\n" for line in read_metrics(self.path) if line["step"] <= step
        ]
        with atomic_write(self.path) as file:
            file.writelines(lines)

    def add(self, step: int, row: Row) -> dict[str, Any] | None:
        """Adds the sums of the step that made `step`; returns the line if one was written."""
        for name in self.sum_names:
            for column in (f"{name}_total", f"{name}_weight"):
                self.pending[column] = self.pending.get(column, 0.0) + row[column]
        if step != 1 and step % self.log_steps:
            return None
        line = {"step": step, **ratios(self.pending, self.sum_names, self.loss_names)}
        line |= {key: row[key] for key in ("learning_rate", "gradient_norm")}
        self.pending = {}
        self.write(line)
        return line

    def flush(self) -> None:
        """Waits until all lines are on the disk."""
        if self.path.exists():
            with self.path.open("a", encoding="utf8") as file:
                os.fsync(file.fileno())

    def write(self, line: dict[str, Any]) -> None:
        """Appends a line."""
        with self.path.open("a", encoding="utf8") as file:
            file.write(json.dumps(line) + "\n")


def ratios(sums: Row, sum_names: tuple[str, ...], loss_names: tuple[str, ...]) -> dict[str, float]:
    """Returns total / weight of every sum, and the loss as the sum of the losses' ratios.

    A sum that nothing weighs (NSP without labels) is left out.
    """
    result = {
        name: sums[f"{name}_total"] / sums[f"{name}_weight"]
        for name in sum_names
        if sums[f"{name}_weight"]
    }
    return {"loss": sum(result.get(name, 0.0) for name in loss_names), **result}


def read_metrics(path: pathlib.Path) -> list[dict[str, Any]]:
    """Reads the lines of metrics.jsonl; a last line cut off by a kill is left out."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines
