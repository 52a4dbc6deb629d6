"""Runs and judgments in TREC's text files, which every evaluation tool of the field reads.

  run    QUERY Q0 DOCUMENT RANK SCORE TAG    the score decides, as in trec_eval; the rank is for
                                             people
  qrels  QUERY 0 DOCUMENT GRADE

Fields are separated by white space, so no id may hold any.
"""

import math
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from bert_tf.files import atomic_write, read_lines
from bert_tf.metrics.ranking import Qrels, Run, rank

_RUN = "QUERY Q0 DOCUMENT RANK SCORE TAG"
_QRELS = "QUERY 0 DOCUMENT GRADE"


def read_run(path: str | os.PathLike) -> dict[str, dict[str, float]]:
    """Reads {query id: {document id: score}}.

    Raises:
      ValueError: naming file and line, if a line has other fields, a score is no number, or a
        query has a document twice; or if there is no line.
    """
    run: dict[str, dict[str, float]] = {}
    for where, fields in _rows(path, _RUN):
        query, _, document, _, text, _ = fields
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if math.isnan(score):
            raise ValueError(f"{where}: the score is {text!r}, expected a number.")
        _add(run.setdefault(query, {}), query, document, score, where)
    return run


def write_run(path: str | os.PathLike, run: Run, tag: str = "bert_tf") -> None:
    """Writes a run, the documents of each query ranked as trec_eval ranks them.

    Args:
      path: the file.
      run: {query id: {document id: score}}; a query without documents leaves no line.
      tag: the name of what made the run.

    Raises:
      ValueError: an id or tag that is empty or holds white space; a score that is NaN.
    """
    with atomic_write(path) as file:
        file.writelines(run_lines(run, tag))


def run_lines(run: Run, tag: str = "bert_tf") -> Iterator[str]:
    """Yields the lines of `write_run`, and raises what it raises."""
    _check_ids([tag], "The run's tag")
    _check_ids(run, "Query id")
    for query, scores in run.items():
        _check_ids(scores, "Document id")
        for position, name in enumerate(rank(scores), 1):
            yield f"{query} Q0 {name} {position} {float(scores[name])!r} {tag}\n"


def read_qrels(path: str | os.PathLike) -> dict[str, dict[str, int]]:
    """Reads {query id: {document id: grade}}.

    Raises:
      ValueError: naming file and line, if a line has other fields, a grade is no integer, or a
        document is graded twice; or if there is no line.
    """
    qrels: dict[str, dict[str, int]] = {}
    for where, fields in _rows(path, _QRELS):
        query, _, document, text = fields
        try:
            grade = int(text)
        except ValueError:
            raise ValueError(f"{where}: the grade is {text!r}, expected an integer.") from None
        _add(qrels.setdefault(query, {}), query, document, grade, where)
    return qrels


def write_qrels(path: str | os.PathLike, qrels: Qrels) -> None:
    """Writes judgments, {query id: {document id: grade}}.

    Raises:
      ValueError: an id that is empty or holds white space.
    """
    _check_ids(qrels, "Query id")
    with atomic_write(path) as file:
        for query, grades in qrels.items():
            _check_ids(grades, "Document id")
            file.writelines(f"{query} 0 {name} {grade}\n" for name, grade in grades.items())


def _rows(path: str | os.PathLike, form: str) -> Iterator[tuple[str, list[str]]]:
    """Yields (where, fields) of the lines that are not blank."""
    if not pathlib.Path(path).is_file():
        raise ValueError(f"{path} is no file; give one with lines of {form!r}.")
    count = 0
    for number, line in enumerate(read_lines(path), 1):
        if not (fields := line.split()):
            continue
        where = f"{path} line {number}"
        if len(fields) != len(form.split()):
            raise ValueError(f"{where} has {len(fields)} fields: {line!r:.100}; expected {form!r}.")
        count += 1
        yield where, fields
    if not count:
        raise ValueError(f"{path} is empty; expected lines of {form!r}.")


def _add(values: dict[str, Any], query: str, document: str, value: Any, where: str) -> None:
    if document in values:
        raise ValueError(
            f"{where}: document {document!r} stands twice for query {query!r}; keep one line."
        )
    values[document] = value


def _check_ids(names: Iterable[str], what: str) -> None:
    for name in names:
        if not name or len(name.split()) != 1 or name != name.strip():
            raise ValueError(
                f"{what} {name!r} is empty or holds white space, which separates the fields of a "
                "TREC file; rename it."
            )
