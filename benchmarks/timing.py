"""What the benchmarks share: calls timed in turn, whole processes measured, tables printed."""

import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np


class Used(NamedTuple):
    """What a process used: seconds, processor seconds, megabytes of the largest of its tree."""

    seconds: float
    processor_seconds: float
    peak_mb: float


def measure(command: list[Any], log: pathlib.Path | None = None) -> Used:
    """Runs a command; what it prints goes to `log`.

    Raises:
      RuntimeError: if it fails.
    """
    with tempfile.TemporaryFile("w+") if log is None else log.open("w+") as file:
        start = time.perf_counter()
        process = subprocess.Popen([*map(str, command)], stdout=file, stderr=subprocess.STDOUT)
        _, process.returncode, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if process.returncode:
            file.seek(0)
            raise RuntimeError(f"{command} failed:\n{file.read()[-5000:]}")
    return Used(seconds, usage.ru_utime + usage.ru_stime, 1.024e-3 * usage.ru_maxrss)


def in_turn(calls: Mapping[Any, Callable[[], Any]], rounds: int) -> dict[Any, tuple[float, float]]:
    """Returns the median seconds and processor seconds of each call; see `times_in_turn`."""
    taken = times_in_turn(calls, rounds)
    return {name: tuple(np.median(values, axis=0)) for name, values in taken.items()}


def times_in_turn(calls: Mapping[Any, Callable[[], Any]], rounds: int) -> dict[Any, np.ndarray]:
    """Returns seconds and processor seconds, [rounds, 2], of each call, after a round not counted.

    All take their turn in each round, so that a change of the machine's load meets them alike.
    """
    taken: dict[Any, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            start, processor_start = time.perf_counter(), time.process_time()
            call()
            end, processor_end = time.perf_counter(), time.process_time()
            taken[name].append((end - start, processor_end - processor_start))
    return {name: np.array(values[1:]) for name, values in taken.items()}


def print_table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Prints Markdown, a line as soon as there is one."""
    heads = list(heads)
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)
