"""Reads labelled texts, or pairs of texts, from tables.

`glue.py` reads the files of GLUE into the same examples.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.data.tables import list_tables, read_rows

SEPARATOR = "|"  # between the labels of one example
MAX_SHOWN = 10
MAX_COUNTS = 20
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LARGEST = float(np.finfo(np.float32).max)


class TextExample(NamedTuple):
    """One row of a table.

    Attributes:
      text_a, text_b: as they stand in the file; `text_b` is "" if there is no second text.
      label: the label's text; several are separated by "|", none of them is ""; None: unlabelled.
      id: GLUE's index, or the number of the row, from 0.
      source: where it stands, for messages: "dev.tsv line 7".
    """

    text_a: str
    text_b: str
    label: str | None
    id: str
    source: str


def read_text_examples(
    path: str,
    text_column: str,
    text_b_column: str = "",
    label_column: str = "",
    *,
    must_label: bool = True,
) -> list[TextExample]:
    """Reads texts and labels from the columns of tables.

    Args:
      path: comma-separated files and globs (see `data/tables.py`) or tfds:NAME[:SPLIT], whose
        features are the columns; without a split, train.
      text_column, text_b_column: columns of the texts; the second may be "".
      label_column: column of the label, or "". White space around a label is dropped. In JSON it
        is a string, a number, true or false, a list of such for several labels, or null or missing
        for an unlabelled row; a number's text is Python's, true is "true".
      must_label: whether a missing column of the label, or a label that is none of the above, is an
        error; if not, the rows are unlabelled.

    Raises:
      ValueError: naming file and line, if a file cannot be read as a table, a column is missing, a
        text is no string or a label none of the above; also if there is no row.
    """
    if not text_column:
        raise ValueError("--text_column is empty; name the column with the texts.")
    examples: list[TextExample] = []
    for table in list_tables(path, "the path of the examples"):
        has_label = False
        row: dict[str, Any] = {}
        for where, row in read_rows(table):
            text_a = _text(row, text_column, "--text_column", where)
            text_b = text_b_column and _text(row, text_b_column, "--text_b_column", where)
            try:
                label = _label(row.get(label_column), where) if label_column else None
            except ValueError:
                if must_label:
                    raise
                label = None
            has_label |= label_column in row
            examples.append(TextExample(text_a, text_b, label, str(len(examples)), where))
        if must_label and label_column and row and not has_label:
            raise ValueError(_missing_column(row, label_column, "--label_column", table))
    if not examples:
        raise ValueError(f"{path} has no row; expected rows of texts after the header.")
    return examples


def _missing_column(row: dict[str, Any], column: str, flag: str, where: str) -> str:
    return (
        f"{where}: {flag} is {column!r}, but the columns are {', '.join(map(repr, row))}. Set "
        "--text_column, --text_b_column and --label_column to names among them (empty: none, for "
        "the last two); the first line of a .csv or .tsv names the columns."
    )


def _text(row: dict[str, Any], column: str, flag: str, where: str) -> str:
    if column not in row:
        raise ValueError(_missing_column(row, column, flag, where))
    if not isinstance(row[column], str):
        raise ValueError(f"{where}: {column!r} is {row[column]!r:.80}, expected a text.")
    return row[column]


def _label(value: Any, where: str) -> str | None:
    """Returns the text of a label of a table, or of a list of them."""
    if value is None:
        return None
    if not isinstance(value, list):
        return _label_text(value, where)
    names = [_label_text(item, where) for item in value]
    if bad := [name for name in names if not name or SEPARATOR in name]:
        raise ValueError(
            f"{where}: label {bad[0]!r} in a list; expected a text without {SEPARATOR!r}."
        )
    return SEPARATOR.join(names)


def _label_text(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value).strip()
    raise ValueError(
        f"{where}: label {value!r:.80}, expected a string, a number, true, false, null or a list "
        "of labels."
    )


# Labels as numbers ------------------------------------------------------------------------------


def label_names(examples: Iterable[TextExample], is_multi_label: bool = False) -> tuple[str, ...]:
    """Returns the labels that occur: by value if all are integers, else in the order of text.

    Args:
      examples: unlabelled ones do not count.
      is_multi_label: a label is several, separated by "|"; "" is none of them.

    Raises:
      ValueError: if no example has a label or, of single labels, one is empty.
    """
    names: dict[str, None] = {}
    for example in examples:
        for name in _split(example.label) if is_multi_label else (example.label,):
            if name == "":
                raise ValueError(
                    f"{example.source}: the label is empty; name the class, or delete the row."
                )
            if name is not None:
                names[name] = None
    if not names:
        raise ValueError("no example has a label; check --label_column.")
    if all(map(_INTEGER.fullmatch, names)):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def label_ids(examples: Sequence[TextExample], labels: Sequence[str]) -> np.ndarray:
    """Returns the place of each example's label among `labels`: int32 [n]; -1: unlabelled.

    Raises:
      ValueError: naming the first label that is not among them, its line, and how many there are.
    """
    places = {label: place for place, label in enumerate(labels)}
    _check_known([(example, (example.label,)) for example in examples], places)
    ids = [-1 if example.label is None else places[example.label] for example in examples]
    return np.array(ids, np.int32)


def label_rows(examples: Sequence[TextExample], labels: Sequence[str]) -> np.ndarray:
    """Returns 1 where an example has a label, which are separated by "|", else 0: float32 [n, C].

    Unlabelled examples have no row to be told apart by: theirs is 0, as that of "", no label.

    Raises:
      ValueError: see `label_ids`.
    """
    places = {label: place for place, label in enumerate(labels)}
    names = [_split(example.label) for example in examples]
    _check_known(list(zip(examples, names, strict=True)), places)
    rows = np.zeros((len(examples), len(labels)), np.float32)
    for index, of_row in enumerate(names):
        rows[index, [places[name] for name in of_row]] = 1
    return rows


def label_values(examples: Sequence[TextExample]) -> np.ndarray:
    """Returns the labels as numbers, for regression: float32 [n]; NaN: unlabelled.

    Raises:
      ValueError: naming the line of a label that is not a finite number.
    """
    return np.array([_value(example) for example in examples], np.float32)


def _value(example: TextExample) -> float:
    if example.label is None:
        return math.nan
    try:
        value = float(example.label.replace("_", "?"))  # Python takes 1_0 for ten.
    except ValueError:
        value = math.nan
    if not abs(value) <= _LARGEST:
        raise ValueError(
            f"{example.source}: label {example.label!r}; regression expects a finite number."
        )
    return value


def _split(label: str | None) -> tuple[str, ...]:
    """Returns the labels of one example."""
    return tuple(name.strip() for name in label.split(SEPARATOR)) if label else ()


def _check_known(
    rows: Sequence[tuple[TextExample, Sequence[str | None]]], known: dict[str, int]
) -> None:
    """Raises ValueError if a label of a row is unknown."""
    unknown = [
        (example, bad[0])
        for example, names in rows
        if (bad := [name for name in names if name is not None and name not in known])
    ]
    if unknown:
        example, name = unknown[0]
        shown = ", ".join(map(repr, list(known)[:MAX_SHOWN]))
        more = f" and {len(known) - MAX_SHOWN} more" if len(known) > MAX_SHOWN else ""
        raise ValueError(
            f"{example.source}: label {name!r} is not one of the known labels, {shown}{more}; "
            f"{len(unknown)} of {len(rows)} rows have such a label. Correct them, or add the label."
        )


def describe(examples: Sequence[TextExample], labels: Sequence[str]) -> str:
    """Returns a line for the log: how many examples, of each label, unlabelled, and without text.

    A pair counts as empty if one of its texts is blank.

    Args:
      examples: what is described.
      labels: those counted, the first 20 of them; () for regression.
    """
    known = set(labels)
    counts: Counter[str] = Counter()
    for example in examples:
        counts.update([example.label] if example.label in known else _split(example.label))
    parts = [f"{len(examples):,} examples"]
    if labels and counts:
        listed = ", ".join(f"{name} {counts[name]:,}" for name in labels[:MAX_COUNTS])
        more = f", {len(labels) - MAX_COUNTS} more" if len(labels) > MAX_COUNTS else ""
        parts.append(f"labels: {listed}{more}")
    if unlabelled := sum(example.label is None for example in examples):
        parts.append(f"{unlabelled:,} unlabelled")
    has_pairs = any(example.text_b for example in examples)
    empty = sum(
        not example.text_a.strip() or (has_pairs and not example.text_b.strip())
        for example in examples
    )
    return "; ".join([*parts, f"{empty:,} with an empty text"])
