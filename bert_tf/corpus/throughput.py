"""Speed and memory of making examples."""

import pathlib
import resource
import time
from collections.abc import Iterable
from typing import Any

RATES = {"documents": "documents/s", "input_mb": "MB/s", "examples": "examples/s"}


def peak_memory() -> float:
    """Returns the most memory in MB of this process or one of those it has started and joined."""
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return max(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1e3  # KB on Linux


def input_megabytes(paths: Iterable[str]) -> float:
    """Returns the size of the input files on disk; datasets are not counted."""
    files = {path for path in map(pathlib.Path, paths) if path.is_file()}
    return sum(path.stat().st_size for path in files) / 1e6


def run_report(
    start: float, counts: dict[str, float], *, runner: str, is_resumed: bool
) -> dict[str, Any]:
    """Returns the report of a run for the manifest.

    Args:
      start: time.monotonic() at the start.
      counts: the numbers of documents, input_mb and examples.
      runner: "local" or "beam".
      is_resumed: whether a killed run did a part of the work; rates would then be too high.
    """
    seconds = time.monotonic() - start
    report = {
        "runner": runner,
        "seconds": round(seconds, 1),
        "is_resumed": is_resumed,
        "peak_memory_mb": round(peak_memory()),
    }
    if not is_resumed:
        report |= {unit: round(counts[name] / seconds, 2) for name, unit in RATES.items()}
    return report


def describe(report: dict[str, Any]) -> str:
    """Returns a report in one line."""
    rates = [f"{report[unit]:,.6g} {unit}" for unit in RATES.values() if unit in report]
    rates = rates or ["no rates, because a killed run did a part"]
    return (
        f"{report['seconds']:,} s with the {report['runner']} runner: {', '.join(rates)}; largest "
        f"process {report['peak_memory_mb']:,} MB."
    )
