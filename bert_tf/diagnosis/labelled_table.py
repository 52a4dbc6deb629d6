"""Examines a table of labelled examples: labels, copies, contradictions, rows that cannot be read.

Tables are recognised by their format: .csv and .tsv files, .txt files whose lines have the same
number of tabs, and JSON objects that have the label's column. Texts for pre-training have no such
format.
"""

import collections
import json
import pathlib
from typing import NamedTuple

from bert_tf.corpus.corpus_format import JSON_OBJECT, open_decompressed, plain_ending
from bert_tf.diagnosis import thresholds
from bert_tf.diagnosis.corpus import SHOWN, shorten
from bert_tf.diagnosis.findings import Diagnosis, percent
from bert_tf.tasks.base.examples.tables import Row, read_rows

HEAD_BYTES = 1 << 18
HEAD_LINES = 5  # first lines of a .txt file, which must have the same number of tabs
FEW_EXAMPLES = 5  # per class
MAX_CLASSES = 30  # classes that are listed


class Columns(NamedTuple):
    """The columns that are examined: of the texts, "" without a second one, and of the label."""

    text: str
    text_b: str
    label: str


def is_labelled_table(path: pathlib.Path, columns: Columns) -> bool:
    """Returns whether a file is a table of examples rather than text for pre-training."""
    ending = plain_ending(path)
    if not path.is_file() or ending not in (".csv", ".tsv", ".txt", ".json", ".jsonl"):
        return False
    if ending in (".csv", ".tsv"):
        return True
    try:
        with open_decompressed(str(path)) as file:
            head = file.read(HEAD_BYTES).decode("utf-8-sig", errors="replace")
    except ValueError:  # A damaged file is reported when it is read as text.
        return False
    lines = [line for line in head.split("\n") if line.strip()][:HEAD_LINES]
    if ending == ".txt":
        # Prose hardly has the same number of tabs on each line.
        counts = {line.count("\t") for line in lines}
        return len(lines) > 1 and len(counts) == 1 and min(counts) > 0
    return bool(lines) and columns.label in _first_keys(lines[0].strip())


def _first_keys(line: str) -> set[str]:
    """Returns the keys of the first JSON object in a line, which may begin a list."""
    text = line.removeprefix("[").strip()
    if not JSON_OBJECT.match(text):
        return set()
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return set()
    return set(value)


def diagnose_table(path: str, columns: Columns) -> Diagnosis:
    """Examines a table of labelled examples."""
    diagnosis = Diagnosis(path, "labelled table")
    table = _Table()
    problem = ""
    try:
        # The rows before a faulty one are examined as well.
        for where, row in read_rows(path):
            table.add(where, row, columns)
    except ValueError as error:
        problem = str(error)
    diagnosis.check(
        thresholds.ANY,
        bool(problem),
        "A row that cannot be read",
        "Repair or leave out the row: the program that reads the table stops there.",
        measured=problem,
        expected="none",
    )
    names = ", ".join(table.columns)
    diagnosis.facts = {
        "rows": f"{table.num_rows:,}",
        "columns": names,
        **_label_facts(table.labels),
    }
    missing = [column for column in columns if column and column not in table.columns]
    diagnosis.check(
        thresholds.ANY,
        bool(missing and table.columns),
        "Missing columns",
        "Name its columns with --text_column, --text_b_column and --label_column.",
        measured=f"no column {', '.join(missing)}",
        expected=f"some of {names}",
    )
    if not missing and table.num_rows:
        _check_rows(diagnosis, table)
        _check_texts(diagnosis, table)
    return diagnosis


class _Table:
    """Statistics of the rows of a table."""

    def __init__(self) -> None:
        self.num_rows = 0
        self.columns: dict[str, None] = {}  # in order of appearance
        self.labels: collections.Counter[str] = collections.Counter()
        self.unlabelled: list[str] = []  # "FILE line N"
        self.num_copies = 0
        self.labels_of_text: dict[str, set[str]] = {}

    def add(self, where: str, row: Row, columns: Columns) -> None:
        """Counts a row."""
        self.num_rows += 1
        self.columns |= dict.fromkeys(row)
        label = row.get(columns.label)
        if label is None or label == "":
            self.unlabelled.append(where)
        else:
            self.labels[str(label)] += 1
        if columns.text in row:
            text = "\t".join(str(row.get(name)) for name in columns[:2] if name)
            # Counted before the text is added, so that its first occurrence is not a copy.
            self.num_copies += text in self.labels_of_text
            self.labels_of_text.setdefault(text, set()).add(str(label))


def _label_facts(labels: collections.Counter[str]) -> dict[str, str]:
    shown = [f"{shorten(label)} {count:,}" for label, count in labels.most_common(MAX_CLASSES)]
    if len(labels) > MAX_CLASSES:
        shown = [*shown[:SHOWN], ".."]
    if not shown:
        return {"labels": "none"}
    return {"labels": f"{len(labels):,} ({', '.join(shown)})"}


def _check_rows(diagnosis: Diagnosis, table: _Table) -> None:
    labels = table.labels
    count = len(table.unlabelled)
    share = count / table.num_rows
    diagnosis.check(
        thresholds.UNLABELLED,
        share,
        "Rows without a label",
        "Label them, or leave them out of the training and evaluation files.",
        measured=f"{percent(share)} ({count:,} of {table.num_rows:,})",
        expected="none",
        details=tuple(table.unlabelled[:SHOWN]),
    )
    diagnosis.check(
        thresholds.ANY,
        len(labels) == 1,
        "All rows have the same label",
        "Give rows of each class: there is nothing to learn here.",
        measured=", ".join(map(shorten, labels)),
        expected="two classes or more",
    )
    rare = [label for label, count in labels.items() if count < FEW_EXAMPLES]
    is_classes = len(labels) <= table.num_rows / FEW_EXAMPLES  # otherwise numbers or texts
    diagnosis.check(
        thresholds.RARE_CLASSES,
        len(rare) if is_classes else 0,
        f"Classes of fewer than {FEW_EXAMPLES} examples",
        "Look for misspelt labels; give more examples, or merge small classes.",
        measured=f"{len(rare)} classes",
        expected="none",
        details=tuple(f"{labels[label]} x {shorten(label)}" for label in rare[:SHOWN]),
    )


def _check_texts(diagnosis: Diagnosis, table: _Table) -> None:
    share = table.num_copies / table.num_rows
    diagnosis.check(
        thresholds.DUPLICATE_DOCUMENTS,
        share,
        "Texts that occur more than once",
        "Remove the copies, above all those shared by training and evaluation.",
        measured=f"{percent(share)} ({table.num_copies:,} of {table.num_rows:,})",
    )
    disputed = [text for text, labels in table.labels_of_text.items() if len(labels) > 1]
    diagnosis.check(
        thresholds.DISPUTED,
        len(disputed) / max(1, len(table.labels_of_text)),
        "The same text with different labels",
        "Decide on one label per text.",
        measured=f"{len(disputed):,} of {len(table.labels_of_text):,} texts",
        details=tuple(map(shorten, disputed[:SHOWN])),
    )
