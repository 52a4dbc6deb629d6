"""metrics.jsonl: one line per logged step, with the same bits in an interrupted run.

The same mechanism serves all JSON lines files in a run directory: a checkpoint stores their size
and checksum, so that a resumed run drops the lines that it will write again and notices damage.
"""

import json
import math
import os
import pathlib
import zlib
from typing import Any

from absl import logging

from bert_tf.files import atomic_write

Row = dict[str, float]
Mark = list[int]
LEAST_LINES = 20  # Fewer make no curve.


class MetricsLog:
    """Collects the sums of every step and writes their ratios every `log_steps` steps.

    A line holds only computed values, no times: two runs with the same numbers write the same file.
    The sums since the last line are part of a checkpoint (`pending`), and lines beyond a restored
    step are dropped, so a resumed run continues the file exactly.

    Args:
      path: the file.
      sum_names, loss_names: those of the task.
      log_steps: steps between lines; the first step has its own line.
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

    def restore(self, step: int, pending: Row, mark: Mark | None = None) -> None:
        """Goes back to `step`: drops later lines and restores its pending sums."""
        self.pending = dict(pending)
        drop_lines(self.path, step, mark)

    def add(self, step: int, row: Row) -> dict[str, Any] | None:
        """Adds the sums of a step; returns the line if one was written.

        No line is written if nothing has weight (because all its steps were skipped).
        """
        for name in self.sum_names:
            for column in (f"{name}_total", f"{name}_weight"):
                self.pending[column] = self.pending.get(column, 0.0) + row[column]
        is_empty = not any(self.pending[f"{name}_weight"] for name in self.sum_names)
        if is_empty or (step != 1 and step % self.log_steps):
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
            file.write(json_line(line))


def line_interval(log_steps: int, num_train_steps: int) -> int:
    """Returns the steps between the lines of a run: `log_steps`, or fewer in a short run."""
    return max(1, min(log_steps, num_train_steps // LEAST_LINES))


def json_line(values: dict[str, Any]) -> str:
    """Returns a line of JSON, which knows no NaN: what is not finite becomes null."""
    odd = [n for n, v in values.items() if isinstance(v, float) and not math.isfinite(v)]
    return json.dumps({**values, **dict.fromkeys(odd)}) + "\n"


def ratios(sums: Row, sum_names: tuple[str, ...], loss_names: tuple[str, ...]) -> dict[str, float]:
    """Returns total / weight of every sum, and the loss as the sum of the losses' ratios.

    A sum without weight (NSP without labels) is left out.
    """
    result = {
        name: sums[f"{name}_total"] / sums[f"{name}_weight"]
        for name in sum_names
        if sums[f"{name}_weight"]
    }
    return {"loss": sum(result.get(name, 0.0) for name in loss_names), **result}


def read_metrics(path: pathlib.Path) -> list[dict[str, Any]]:
    """Reads the lines of metrics.jsonl, null as NaN; leaves out incomplete and damaged ones."""
    return _parse(path.read_bytes()) if path.exists() else []


def mark_lines(path: pathlib.Path) -> Mark:
    """Returns the size and the CRC-32 of a file of lines, [0, 0] without it."""
    content = path.read_bytes() if path.exists() else b""
    return [len(content), zlib.crc32(content)]


def drop_lines(path: pathlib.Path, step: int, mark: Mark | None = None) -> None:
    """Drops the lines after a checkpoint, except those of its own step.

    Args:
      path: a file of JSON lines with `step`.
      step: step of the checkpoint.
      mark: as in `is_as_marked`.
    """
    content = path.read_bytes() if path.exists() else b""
    size = mark[0] if is_as_marked(path, step, mark) and mark else 0
    kept = [line for line in _parse(content[size:]) if line["step"] <= step]
    lines = content[:size] + b"".join(json_line(line).encode() for line in kept)
    if lines != content:
        with atomic_write(path, "wb") as file:
            file.write(lines)


def is_as_marked(path: pathlib.Path, step: int, mark: Mark | None) -> bool:
    """True if a file begins with the same lines as when the checkpoint was written.

    If it does not, a warning is logged and a copy is kept: the run continues with the readable
    lines.

    Args:
      path: a file of JSON lines with `step`.
      step: of the checkpoint.
      mark: of the file when the checkpoint was made; without one only lines that cannot be read
        count as damaged.
    """
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]  # What follows a kill has cut off.
    is_whole = len(_parse(whole)) == len(whole.splitlines())
    if mark:
        seen = content[: mark[0]]
        is_whole = [len(seen), zlib.crc32(seen)] == mark
    if not is_whole:
        copy = path.with_name(f"{path.name}.damaged")
        copy.write_bytes(content)
        logging.warning(
            "%s was damaged or changed since the checkpoint of step %d. A copy is kept as %s; %d "
            "readable lines of %d remain.",
            *(path, step, copy, len(_parse(content)), len(content.splitlines())),
        )
    return is_whole


def _parse(content: bytes) -> list[dict[str, Any]]:
    lines = []
    for text in content.splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append({key: math.nan if v is None else v for key, v in line.items()})
    return lines
