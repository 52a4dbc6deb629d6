"""Mean and spread of several runs that differ only in their seed, or in their fold."""

import math
import pathlib
import statistics
from typing import Any

from absl import logging

from bert_tf.system.files import write_json


def summarize(results: dict[int, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Returns mean, sample standard deviation, minimum and maximum of each metric.

    All are nan if one value is nan, for example the correlation of constant predictions.
    """
    names = next(iter(results.values()))
    summary = {}
    for name in names:
        summary[name] = _spread([metrics[name] for metrics in results.values()])
    return summary


def _spread(values: list[float]) -> dict[str, float]:
    if not all(map(math.isfinite, values)):
        return dict.fromkeys(("mean", "sd", "min", "max"), math.nan)
    return {
        "mean": statistics.fmean(values),
        "sd": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
    }


def _for_json(table: dict[Any, dict[str, float]]) -> dict[Any, dict[str, float | None]]:
    """Returns the table with null for numbers that are not finite."""
    converted: dict[Any, dict[str, float | None]] = {}
    for key, row in table.items():
        converted[key] = {}
        for name, value in row.items():
            converted[key][name] = value if math.isfinite(value) else None
    return converted


def write_summary(
    folder: pathlib.Path, results: dict[int, dict[str, float]], name: str = "seed"
) -> None:
    """Writes seeds.json and logs one line per metric; does nothing without results.

    Args:
      folder: the folder of all runs.
      results: metrics by name, for each run.
      name: what differs between the runs; for "fold" the file is folds.json.
    """
    if not any(results.values()):
        return
    summary = summarize(results)
    written = {f"{name}s": _for_json(results), "summary": _for_json(summary)}
    write_json(folder / f"{name}s.json", written)
    logging.info("Over %d %ss (mean ± standard deviation, minimum to maximum):", len(results), name)
    for metric, row in summary.items():
        logging.info(
            "  %-24s %.4f ± %.4f  (%.4f to %.4f)",
            metric,
            row["mean"],
            row["sd"],
            row["min"],
            row["max"],
        )
