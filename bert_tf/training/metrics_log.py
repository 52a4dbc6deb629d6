"""metrics.jsonl: one line per logged step, bit-identical after an interruption.

All JSON lines files in a run directory work in the same way: a checkpoint stores their size and
checksum, so that a resumed run drops the lines that it will write again and detects damage.
"""

import json
import math
import os
import pathlib
import zlib
from typing import Any

from absl import logging

from bert_tf.system.files import atomic_write

Row = dict[str, float]
Mark = list[int]
MIN_LINES = 20  # Fewer points make no curve.


class MetricsLog:
    """Collects the sums of every step and writes their ratios every `log_steps` steps.

    A line contains only computed values and no times: two runs with the same numbers write the same
    file. The sums since the last line are part of a checkpoint (`pending`), and lines after a
    restored step are dropped, so a resumed run continues the file exactly.

    Args:
      log_steps: steps between lines; the first step always has a line.
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
        """Returns to `step`: drops later lines and restores the pending sums."""
        self.pending = dict(pending)
        drop_lines(self.path, step, mark)

    def add(self, step: int, row: Row) -> dict[str, Any] | None:
        """Adds the sums of a step; returns the line if one was written.

        No line is written if all weights are 0, because all steps were skipped.
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
    """Returns the steps between two lines: `log_steps`, or fewer in a short run."""
    return max(1, min(log_steps, num_train_steps // MIN_LINES))


def json_line(values: dict[str, Any]) -> str:
    """Returns a line of JSON, with null for numbers that are not finite."""
    written = dict(values)
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            written[name] = None
    return json.dumps(written) + "\n"


def ratios(sums: Row, sum_names: tuple[str, ...], loss_names: tuple[str, ...]) -> dict[str, float]:
    """Returns total / weight of every sum, and the loss as the sum of the losses' ratios.

    A sum without weight (NSP without labels) is left out.
    """
    result = {}
    for name in sum_names:
        if weight := sums[f"{name}_weight"]:
            result[name] = sums[f"{name}_total"] / weight
    return {"loss": sum(result.get(name, 0.0) for name in loss_names), **result}


def read_metrics(path: pathlib.Path) -> list[dict[str, Any]]:
    """Reads the lines of metrics.jsonl, null as NaN; skips incomplete and damaged lines."""
    return _parse(_read(path))


def _read(path: pathlib.Path) -> bytes:
    """Returns the content of a file; b"" if it is missing."""
    if not path.exists():
        return b""
    return path.read_bytes()


def mark_lines(path: pathlib.Path) -> Mark:
    """Returns the size and the CRC-32 of a file of lines; [0, 0] if it is missing."""
    content = _read(path)
    return [len(content), zlib.crc32(content)]


def drop_lines(path: pathlib.Path, step: int, mark: Mark | None = None) -> None:
    """Drops the lines after the step of a checkpoint."""
    content = _read(path)
    # Lines from before the checkpoint stay as they are, byte for byte.
    size = mark[0] if is_as_marked(path, step, mark) and mark else 0
    kept = [line for line in _parse(content[size:]) if line["step"] <= step]
    lines = content[:size] + b"".join(json_line(line).encode() for line in kept)
    if lines != content:
        with atomic_write(path, "wb") as file:
            file.write(lines)


def is_as_marked(path: pathlib.Path, step: int, mark: Mark | None) -> bool:
    """Returns whether a file begins with the same lines as when the checkpoint was written.

    If it does not, a warning is logged and a copy is kept; the run continues with the readable
    lines.

    Args:
      mark: the file's size and checksum at the checkpoint; without a mark only unreadable lines
        count as damage.
    """
    content = _read(path)
    if mark:
        marked = content[: mark[0]]
        is_intact = [len(marked), zlib.crc32(marked)] == mark
    else:
        complete = content[: content.rfind(b"\n") + 1]  # A kill may have cut off the last line.
        is_intact = len(_parse(complete)) == len(complete.splitlines())
    if not is_intact:
        copy = path.with_name(f"{path.name}.damaged")
        copy.write_bytes(content)
        logging.warning(
            "%s was damaged or changed since the checkpoint of step %d. A copy is kept as %s; %d "
            "readable lines of %d remain.",
            path,
            step,
            copy,
            len(_parse(content)),
            len(content.splitlines()),
        )
    return is_intact


def _parse(content: bytes) -> list[dict[str, Any]]:
    lines = []
    for text in content.splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            # JSON has no NaN, so the lines have null.
            lines.append({key: math.nan if v is None else v for key, v in line.items()})
    return lines
