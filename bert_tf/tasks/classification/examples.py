"""Reads labelled texts, or pairs of texts, from tables.

`glue.py` reads the files of GLUE into the same examples.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.tasks.base.examples.cells import looks_like_list, read_list
from bert_tf.tasks.base.examples.columns import is_missing
from bert_tf.tasks.base.examples.labels import SEPARATOR
from bert_tf.tasks.base.examples.row_errors import RowError, RowErrors, Unlabelled
from bert_tf.tasks.base.examples.tables import list_tables, read_rows, split_names

OTHER_SEPARATORS = ",;"  # between labels in other programs' files, or within names of classes
_LARGEST = float(np.finfo(np.float32).max)
# The decisions in a column of 0 and 1; -1 is an example without a judgment.
_DECISIONS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
_UNJUDGED = ("-1", "-1.0", "")


class TextExample(NamedTuple):
    """One row of a table."""

    # text_a, text_b: as in the file; `text_b` is None if there is no second text.
    text_a: str
    text_b: str | None
    # The label's text; several are separated by "|", none of them is ""; None: unlabelled.
    label: str | None
    id: str  # GLUE's index, or the number of the row, from 0
    source: str  # file and line, for messages: "dev.tsv line 7"


class LabelReading(NamedTuple):
    """How the label of a row is read."""

    # The column, or for several labels also columns of 0 and 1, separated by commas; "".
    column: str
    kind: str = ""  # one of `PROBLEM_TYPES`; "": not known, so that a list is several labels
    # Between several labels in a cell; "" is |, as long as no other can be meant.
    separator: str = ""


def read_text_examples(
    path: str,
    text_column: str,
    text_b_column: str = "",
    label_column: str = "",
    *,
    problem_type: str = "",
    label_separator: str = "",
    is_needed: bool = False,
    reading: TableConfig | None = None,
) -> list[TextExample]:
    """Reads texts and labels from the columns of tables.

    Args:
      path: comma-separated files and globs (see `examples/tables.py`) or tfds:NAME[:SPLIT], whose
        features are the columns; without a split, train.
      text_column, text_b_column: columns of the texts; the second may be "".
      label_column: column of the label, or "". White space around a label is dropped. In JSON it
        is a string, a number, true or false, a list of such for several labels, or null or missing
        for an unlabelled row; a number's text is Python's, true is "true". A list may also be
        written out in a cell, as pandas does. With several labels it may name several columns of 0
        and 1, one for each label.
      problem_type: one of `PROBLEM_TYPES`; "": not known, see `LabelReading`.
      label_separator: see `LabelReading`.
      is_needed: whether a missing label column, a label in another format, or a row without a
        label that `reading` does not skip is an error; otherwise these rows are unlabelled.
      reading: how the user's tables are read; None: the defaults.

    Raises:
      ValueError: naming files and lines of all rows that are wrong, if a file cannot be read as a
        table, a column is missing, a text is no string or a label none of the above; also if there
        is no row.
    """
    if not text_column:
        raise ValueError("--text_column is empty; name the column with the texts.")
    given = LabelReading(label_column, problem_type, label_separator)
    wanted = list(filter(None, (text_column, text_b_column)))
    examples: list[TextExample] = []
    errors = RowErrors(reading)
    for table in list_tables(path, "the path of the examples"):
        columns: list[str] | None = None
        has_label = False
        row: dict[str, Any] = {}
        for where, row in read_rows(table, reading, wanted, errors):
            # The first row decides for the whole table.
            if columns is None:
                columns = label_columns(row, given)
            # Objects of JSONL may lack the key in some rows, but not in all.
            has_label |= any(name in row for name in columns)
            if is_needed and errors.leaves_out(row, (*columns, *wanted)):
                continue
            with errors:
                text_a = _text(row, text_column, "--text_column", where)
                text_b = None
                if text_b_column:
                    text_b = _text(row, text_b_column, "--text_b_column", where)
                label = _label_of(row, columns, given, where, is_needed)
                examples.append(TextExample(text_a, text_b, label, str(len(examples)), where))
        if is_needed and columns and row and not has_label:
            raise ValueError(_missing_column(row, label_column, "--label_column", table))
    errors.finish(path)
    if not examples:
        raise ValueError(f"{path} has no row; expected rows of texts after the header.")
    if is_needed and problem_type == "multi_label" and not label_separator:
        _check_separator(examples)
    return examples


def _label_of(
    row: dict[str, Any], columns: Sequence[str], given: LabelReading, where: str, is_needed: bool
) -> str | None:
    """Returns the label of a row like `read_label`; None for another value, unless it is needed."""
    try:
        label = read_label(row, columns, given, where)
    except ValueError:
        if is_needed:
            raise
        return None
    if not is_needed:
        return label
    # An empty set of several labels is a label. Tables write a missing number as nan.
    is_empty = label is None or label == "" and given.kind != "multi_label"
    if is_empty or given.kind == "regression" and label and label.lower() == "nan":
        raise Unlabelled(
            f"{where}: the label is {label or 'empty'}",
            "Name it, delete the row, or leave all rows without a label out: --skip_unlabelled.",
        )
    if given.kind == "regression" and label:
        number_of(label, where)
    return label


def _check_separator(examples: Sequence[TextExample]) -> None:
    """Raises ValueError if labels seem to be separated by another sign than SEPARATOR."""
    names = _names_in(examples)
    for sign in OTHER_SEPARATORS:
        for example in examples:
            for name in split_labels(example.label):
                # "joy, love" is suspicious only if joy and love are labels elsewhere.
                parts = list(map(str.strip, name.split(sign)))
                if len(parts) > 1 and all(part in names or part.isdecimal() for part in parts):
                    raise ValueError(
                        f"{example.source}: is {name!r} one label, or {len(parts)}? Give "
                        f"--label_separator='{sign}' if these are several, and "
                        f"--label_separator='{SEPARATOR}' if it is one."
                    )


def _names_in(examples: Iterable[TextExample]) -> set[str]:
    names: set[str] = set()
    for example in examples:
        names.update(split_labels(example.label))
    return names


def label_columns(row: dict[str, Any], given: LabelReading) -> list[str]:
    """Returns the columns that hold the labels of a table."""
    # The whole name first: a column may have a comma in its name.
    if given.column in row or given.kind != "multi_label":
        return [given.column] if given.column else []
    return split_names(given.column)


def decision_names(column: str, kind: str, examples: Iterable[TextExample]) -> tuple[str, ...]:
    """Returns the labels whose columns of 0 and 1 --label_column names; () if it names one column.

    Args:
      column: --label_column.
      kind: --problem_type.
      examples: of the tables; a column may have a comma in its name.
    """
    names = tuple(split_names(column)) if kind == "multi_label" else ()
    if len(names) < 2:
        return ()
    # One column with commas in its name holds labels other than these names.
    return names if _names_in(examples) <= {*names} else ()


def _missing_column(row: dict[str, Any], column: str, flag: str, where: str) -> str:
    several = (
        " Several columns of 0 and 1 need --problem_type=multi_label." if "," in column else ""
    )
    return (
        f"{where}: {flag} is {column!r}, but the columns are {', '.join(map(repr, row))}. Set "
        "--text_column, --text_b_column and --label_column to names among them (empty: none, for "
        "the last two); the first line of a .csv or .tsv names the columns, unless --column_names "
        f"does.{several}"
    )


def _text(row: dict[str, Any], column: str, flag: str, where: str) -> str:
    if column not in row:
        raise ValueError(_missing_column(row, column, flag, where))
    if isinstance(row[column], dict):
        raise RowError(
            f"{where}: {column!r} is {row[column]!r:.80}, expected a text",
            "An object holds one row. With pandas: frame.to_json('new.jsonl', orient='records', "
            "lines=True).",
        )
    if not isinstance(row[column], str):
        raise RowError(f"{where}: {column!r} is {row[column]!r:.80}, expected a text")
    return row[column]


def read_label(
    row: dict[str, Any], columns: Sequence[str], given: LabelReading, where: str
) -> str | None:
    """Returns the label of a row, several separated by "|"; None for an unlabelled row."""
    if len(columns) > 1:
        return _decisions(row, columns, where)
    value = row.get(columns[0]) if columns else None
    if isinstance(value, str) and (
        looks_like_list(value) or value.strip()[:1] in ("(", "{") or value.strip() == "set()"
    ):
        # As Python and pandas write lists, tuples and sets.
        value = _listed(value, given.kind, where)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if is_missing(value):
        return None
    if not isinstance(value, list | tuple | set):
        label = label_text(value, where)
        if label and given.kind == "multi_label" and given.separator not in ("", SEPARATOR):
            return _joined(list(map(str.strip, label.split(given.separator))), where)
        return label
    names = [label_text(item, where) for item in value]
    if given.kind in ("single_label", "regression") and len(names) != 1:
        raise RowError(
            f"{where}: label {value!r:.80} is a list of {len(names)}, but --problem_type is "
            f"{given.kind}",
            "Several labels need --problem_type=multi_label.",
        )
    if len(set(names)) < len(names):
        raise RowError(
            f"{where}: label {value!r:.80} has {max(names, key=names.count)!r} twice",
            "If its items are decisions, 0 or 1, for each label, write the names of the labels "
            "instead, or a column for each label: --label_column=joy,love.",
        )
    return _joined(names, where)


def _joined(names: Sequence[str], where: str) -> str:
    for name in names:
        if not name or SEPARATOR in name:
            raise RowError(
                f"{where}: label {name!r} in a list; expected a text without {SEPARATOR!r}"
            )
    return SEPARATOR.join(names)


def _listed(cell: str, kind: str, where: str) -> Any:
    """Returns the list that is written out in a cell, or the cell if it is the name of a class."""
    items = read_list(cell)
    if items is not None:
        return items
    # {"a": 1} is never a list. [a] may be the name of a class, but hardly with commas or quotes.
    is_object = re.fullmatch(r"\{.*:.*\}", cell.strip(), re.DOTALL)
    if is_object or looks_like_list(cell) and (kind == "multi_label" or re.search("[,'\"]", cell)):
        raise RowError(
            f"{where}: label {cell!r:.80} is in brackets, but is not a list of quoted names",
            "Write joy|love, ['joy', 'love'], or a list in JSONL.",
        )
    return cell


def _decisions(row: dict[str, Any], columns: Sequence[str], where: str) -> str | None:
    """Returns the labels whose columns say 1; None for an example without a judgment."""
    if missing := [name for name in columns if name not in row]:
        raise ValueError(_missing_column(row, missing[0], "a name in --label_column", where))
    cells = [_decision_text(row[name]) for name in columns]
    # -1 in all columns, as in the test set of the Toxic Comment challenge.
    if all(cell in _UNJUDGED for cell in cells):
        return None
    for name, cell in zip(columns, cells, strict=True):
        if cell not in _DECISIONS:
            raise RowError(
                f"{where}: column {name!r} is {row[name]!r:.80}, expected 0 or 1",
                "Columns of several labels say 1 where the label applies; -1 in all of them is an "
                "unlabelled row.",
            )
    return _joined(
        [name for name, cell in zip(columns, cells, strict=True) if _DECISIONS[cell]], where
    )


def _decision_text(value: Any) -> str:
    return "" if value is None else str(value).strip().lower()


def label_text(value: Any, where: str) -> str:
    """Returns the text of one label."""
    # Before numbers, because bool is a subclass of int; "true" is JSON's spelling.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int) or isinstance(value, float) and math.isfinite(value):
        return str(value).strip()
    raise RowError(
        f"{where}: label {value!r:.80}, expected a string, a number, true, false, null or a list "
        "of labels"
    )


def number_of(label: str, where: str) -> float:
    """Returns a label as a number."""
    try:
        value = float(label.replace("_", "?"))  # Python takes 1_0 for ten.
    except ValueError:
        value = math.nan
    # Also true for NaN, for which every comparison is false.
    if not abs(value) <= _LARGEST:
        remedy = ""
        if re.fullmatch(r"[+-]?\d+,\d+", label):
            remedy = "Write a point instead of the comma."
        raise RowError(f"{where}: label {label!r}; regression expects a finite number", remedy)
    return value


def split_labels(label: str | None) -> tuple[str, ...]:
    """Returns the labels in a text that separates them by "|"; () for an unlabelled example."""
    if label:
        return tuple(map(str.strip, label.split(SEPARATOR)))
    return ()
