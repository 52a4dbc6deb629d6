"""The result files in a run directory, each for one file of examples.

`eval_results.txt`, `report.txt` and `worst_errors.tsv` belong to the file that the run evaluates.
Those of another file, for example test.csv, are `eval_results_test.txt`, `report_test.txt` and
`worst_errors_test.tsv`.
"""

import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from absl import logging

from bert_tf.bounded_files import read_text
from bert_tf.corpus.corpus_format import without_compression
from bert_tf.files import atomic_write
from bert_tf.run_record import is_same_path, recorded

_JUDGED = "# Evaluated: "  # begins the first line of results, which names the file


def ending_of(folder: pathlib.Path, file: str, use: str) -> str:
    """Returns the suffix of a file's results: "", or _NAME if it is not the run's own.

    The run's own file is the one that it recorded, else the one that was evaluated first.

    Args:
      folder: the run directory.
      file: whose results are to be written.
      use: eval or predict.
    """
    own = recorded(str(folder), "eval_file") or _judged(folder / "eval_results.txt")
    if own is None and use == "eval" or own is not None and is_same_path(own, file):
        return ""
    stem = re.sub(r"[^\w.-]+", "_", without_compression(file).stem)
    # Files of one name in two folders.
    endings = (f"_{stem}", *(f"_{stem}_{number}" for number in range(2, 1000)))
    for ending in endings:
        judged = _judged(folder / f"eval_results{ending}.txt")
        if judged is None or is_same_path(judged, file):
            break
    return ending


def _judged(path: pathlib.Path) -> str | None:
    """Returns the file that these results are for, "" if unknown; None without results."""
    if not path.exists():
        return None
    first = read_text(path).partition("\n")[0]
    return first.removeprefix(_JUDGED) if first.startswith(_JUDGED) else ""


def results_text(file: str, step: int, results: dict[str, float], start: str = "eval_") -> str:
    """Returns google-research/bert's eval_results.txt, `key = value` lines sorted by key.

    Differs from the original: a first line names the file, and keys may begin otherwise.
    """
    shown = {f"{start}{key}": value for key, value in results.items()}
    shown |= {"global_step": step} | {key: results[key] for key in results if key == "loss"}
    return f"{_JUDGED}{file}\n" + "".join(f"{key} = {shown[key]}\n" for key in sorted(shown))


def write_texts(folder: pathlib.Path, texts: dict[str, str], ending: str = "") -> None:
    """Writes texts by file name, with the suffix inserted."""
    for name, text in texts.items():
        path = folder / name
        path = path.with_name(f"{path.stem}{ending}{path.suffix}")
        with atomic_write(path) as file:
            file.write(text)
        logging.info("Wrote %s", path)


def table_text(header: str, rows: Iterable[Sequence[Any]]) -> str:
    """Returns a table with tabs between cells, in which every row is one line.

    A tab, a line break, a carriage return and a backslash in a cell are written as \\t \\n \\r
    \\\\.
    """
    escapes = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
    lines = ("\t".join(str(cell).translate(escapes) for cell in row) for row in rows)
    return "".join(f"{line}\n" for line in ("\t".join(header.split()), *lines))
