"""Mean and spread of several runs that differ only in their seed."""

import pathlib
import statistics

from absl import logging

from bert_tf.files import write_json


def summarize(results: dict[int, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Returns mean, sample standard deviation, minimum and maximum of each metric.

    Args:
      results: metrics by name, by seed; all have the same names.
    """
    names = next(iter(results.values()))
    columns = {name: [values[name] for values in results.values()] for name in names}
    return {
        name: {
            "mean": statistics.fmean(values),
            "sd": statistics.stdev(values) if len(values) > 1 else 0.0,
            "min": min(values),
            "max": max(values),
        }
        for name, values in columns.items()
    }


def write_summary(folder: pathlib.Path, results: dict[int, dict[str, float]]) -> None:
    """Writes seeds.json and logs one line per metric; does nothing without results."""
    if not any(results.values()):
        return
    summary = summarize(results)
    write_json(folder / "seeds.json", {"seeds": results, "summary": summary})
    logging.info("Over %d seeds (mean ± standard deviation, minimum to maximum):", len(results))
    for name, row in summary.items():
        logging.info(
            "  %-24s %.4f ± %.4f  (%.4f to %.4f)",
            name,
            row["mean"],
            row["sd"],
            row["min"],
            row["max"],
        )
