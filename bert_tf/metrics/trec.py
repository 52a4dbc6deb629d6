"""Runs in TREC's text files, which every evaluation tool of the field reads.

  QUERY Q0 DOCUMENT RANK SCORE TAG    the order is by score, as in trec_eval; the rank is ignored

Fields are separated by white space, so ids must not contain white space.
"""

import math
import os
import pathlib
from collections.abc import Iterable, Iterator

from bert_tf.metrics.ranking import Run, rank
from bert_tf.system.files import atomic_write, read_lines

_RUN = "QUERY Q0 DOCUMENT RANK SCORE TAG"


def read_run(path: str | os.PathLike) -> dict[str, dict[str, float]]:
    """Reads {query id: {document id: score}}.

    Raises:
      ValueError: naming file and line, if a line has other fields, a score is no number, or a
        query has a document twice; or if there is no line.
    """
    run: dict[str, dict[str, float]] = {}
    for where, fields in _rows(path):
        query, _, document, _, text, _ = fields
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if math.isnan(score):
            raise ValueError(f"{where}: the score is {text!r}, expected a number.")
        if document in run.setdefault(query, {}):
            raise ValueError(
                f"{where}: document {document!r} is duplicated for query {query!r}; keep one line."
            )
        run[query][document] = score
    return run


def write_run(path: str | os.PathLike, run: Run) -> None:
    """Writes a run, with the documents of each query in trec_eval's order.

    A query without documents has no line.

    Raises:
      ValueError: an id that is empty or holds white space; a score that is NaN.
    """
    with atomic_write(path) as file:
        file.writelines(run_lines(run))


def run_lines(run: Run) -> Iterator[str]:
    """Yields the lines of `write_run`; see there for the errors."""
    _check_ids(run, "Query id")
    for query, scores in run.items():
        _check_ids(scores, "Document id")
        for position, name in enumerate(rank(scores), 1):
            # repr keeps all digits, so that the order is the same when the run is read.
            yield f"{query} Q0 {name} {position} {float(scores[name])!r} bert_tf\n"


def _rows(path: str | os.PathLike) -> Iterator[tuple[str, list[str]]]:
    """Yields (where, fields) of the lines that are not blank."""
    if not pathlib.Path(path).is_file():
        raise ValueError(f"{path} is no file; give one with lines of {_RUN!r}.")
    count = 0
    for number, line in enumerate(read_lines(path), 1):
        if not (fields := line.split()):
            continue
        where = f"{path} line {number}"
        if len(fields) != len(_RUN.split()):
            raise ValueError(f"{where} has {len(fields)} fields: {line!r:.100}; expected {_RUN!r}.")
        count += 1
        yield where, fields
    if not count:
        raise ValueError(f"{path} is empty; expected lines of {_RUN!r}.")


def _check_ids(names: Iterable[str], what: str) -> None:
    for name in names:
        if not name or len(name.split()) != 1 or name != name.strip():
            raise ValueError(
                f"{what} {name!r} is empty or holds white space, which separates the fields of a "
                "TREC file; rename it."
            )
