"""The result files in a run directory, each for one file of examples.

`eval_results.txt`, `report.txt` and `worst_errors.tsv` belong to the evaluation file of the run.
The results of another file, for example test.csv, are `eval_results_test.txt`, `report_test.txt`
and `worst_errors_test.tsv`.
"""

import contextlib
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from absl import logging

from bert_tf.checkpoints.run_record import is_same_path, recorded
from bert_tf.corpus.corpus_format import without_compression
from bert_tf.system.bounded_files import read_optional_text, read_text
from bert_tf.system.files import atomic_write

_EVALUATED = "# Evaluated: "  # start of the first line of results, which names the file


def ending_of(folder: pathlib.Path, file: str, use: str) -> str:
    """Returns the suffix of a file's results: "" for the run's evaluation file, otherwise _NAME.

    The run's evaluation file is the recorded one, or else the file that was evaluated first.
    """
    eval_file = recorded(str(folder), "eval_file") or _evaluated_file(folder / "eval_results.txt")
    # The first file that is evaluated becomes the evaluation file of the run.
    if eval_file is None and use == "eval":
        return ""
    if eval_file is not None and is_same_path(eval_file, file):
        return ""
    stem = re.sub(r"[^\w.-]+", "_", without_compression(file).stem)
    ending = f"_{stem}"
    for number in range(2, 1000):
        evaluated = _evaluated_file(folder / f"eval_results{ending}.txt")
        if evaluated is None or is_same_path(evaluated, file):
            break
        ending = f"_{stem}_{number}"  # A file of the same name in another folder.
    return ending


def _evaluated_file(path: pathlib.Path) -> str | None:
    """Returns the file that results belong to, "" if unknown; None if there are no results."""
    if not path.exists():
        return None
    first = read_text(path).partition("\n")[0]
    if first.startswith(_EVALUATED):
        return first.removeprefix(_EVALUATED)
    return ""


def results_text(file: str, step: int, results: dict[str, float], start: str = "eval_") -> str:
    """Returns google-research/bert's eval_results.txt, `key = value` lines sorted by key.

    Differs from the original: a first line names the file, and keys may have another prefix.
    """
    values: dict[str, float] = {f"{start}{key}": value for key, value in results.items()}
    values["global_step"] = step
    if "loss" in results:
        values["loss"] = results["loss"]
    lines = [f"{key} = {values[key]}\n" for key in sorted(values)]
    return "".join([f"{_EVALUATED}{file}\n", *lines])


def read_results(folder: pathlib.Path) -> dict[str, float]:
    """Returns the numbers of a run's eval_results.txt by name; {} without the file."""
    results = {}
    for line in read_optional_text(folder / "eval_results.txt").splitlines():
        name, _, value = line.partition(" = ")
        with contextlib.suppress(ValueError):
            results[name] = float(value)
    return results


def write_texts(folder: pathlib.Path, texts: dict[str, str], ending: str = "") -> None:
    """Writes texts by file name, with the suffix inserted."""
    for name, text in texts.items():
        path = folder / name
        path = path.with_name(f"{path.stem}{ending}{path.suffix}")
        with atomic_write(path) as file:
            file.write(text)
        logging.info("Wrote %s", path)


def table_text(header: str | Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a table with tabs between cells and one line per row.

    The header is a list of names, or names separated by blanks.

    A tab, a line break, a carriage return and a backslash in a cell are written as \\t \\n \\r
    \\\\.
    """
    escapes = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
    names = header.split() if isinstance(header, str) else header
    lines = []
    for row in [names, *rows]:
        cells = [str(cell).translate(escapes) for cell in row]
        lines.append("\t".join(cells))
    return "\n".join(lines) + "\n"
