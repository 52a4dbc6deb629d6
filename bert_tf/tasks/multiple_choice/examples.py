"""Reads multiple-choice examples, texts with several endings, from SWAG's table or JSONL."""

from typing import Any, NamedTuple

from bert_tf.examples.cells import as_list
from bert_tf.examples.columns import is_missing
from bert_tf.examples.labels import LabelNames
from bert_tf.examples.tables import RowError, RowErrors, list_tables, read_rows
from bert_tf.fine_tuning_config import TableConfig


class ChoiceExample(NamedTuple):
    """One row: what comes first, and its choices.

    Attributes:
      context: the first text of every pair.
      start: how the second text of every pair begins, before the choice; "" if with the choice.
      choices: at least two; all rows have as many.
      label: index of the right choice; None: unlabelled.
      id: the number of the row, from 0.
      source: file and line, for messages: "val.csv line 7".
    """

    context: str
    start: str
    choices: tuple[str, ...]
    label: int | None
    id: str
    source: str


def read_swag(
    path: str,
    must_label: bool = True,
    *,
    is_needed: bool = False,
    reading: TableConfig | None = None,
) -> list[ChoiceExample]:
    """Reads examples in one of two forms, told apart by their columns.

    SWAG's: the columns sent1 (the context), sent2 (the start), ending0, ending1 and so on, and
    label, which is missing in its test set, or empty. Others, such as video-id, do not matter. Any
    table has them, SWAG's own is CSV.

    JSONL of one's own: `choices`, a list of texts; `context`, `question` or both, of which then the
    question is the start, as in RACE; `label`, a number from 0, or null or missing. In a table of
    cells `choices` is a list that is written out.

    Zellers et al. 2018, "SWAG", whose pairs are (sent1, sent2 + ending).

    Args:
      path: comma-separated files and globs, see `examples/tables.py`.
      must_label: whether a label that is not the index of a choice, such as -1, is an error; if
        not, the row is unlabelled.
      is_needed: whether a row without a label is an error, unless `reading` skips such rows.
      reading: how the user's tables are read; None: the defaults.

    Raises:
      ValueError: naming files and lines, if a file cannot be read as a table, a column is missing,
        a text is no string, the label is not the index of a choice, or a row has fewer than two
        choices, or not as many as the first; also if there is no row.
    """
    examples: list[ChoiceExample] = []
    errors = RowErrors()
    for table in list_tables(path, "the path of the examples"):
        for where, row in read_rows(table, reading, errors=errors):
            with errors:
                read = _read_list if "choices" in row else _read_columns
                context, start, choices = read(row, where)
                expected = len(examples[0].choices) if examples else max(2, len(choices))
                if len(choices) != expected:
                    as_first = f", as in {examples[0].source}" if examples else " or more"
                    raise RowError(
                        f"{where}: {len(choices)} choices, expected {expected}{as_first}."
                    )
                try:
                    label = _label(row.get("label"), len(choices), where)
                except ValueError:
                    if must_label:
                        raise
                    label = None
                if label is None and is_needed:
                    if reading and reading.skip_unlabelled:
                        errors.num_skipped += 1
                        continue
                    raise RowError(
                        f"{where}: no label; expected the index of the right choice.",
                        "--skip_unlabelled leaves rows without a label out.",
                    )
                example = ChoiceExample(context, start, choices, label, str(len(examples)), where)
                examples.append(example)
    errors.finish(path, len(examples))
    if not examples:
        raise ValueError(f"{path} has no row; expected SWAG's columns or JSONL with choices.")
    return examples


def _read_columns(row: dict[str, Any], where: str) -> tuple[str, str, tuple[str, ...]]:
    """Returns context, start and choices of a row with SWAG's columns."""
    if missing := [name for name in ("sent1", "sent2", "ending0") if name not in row]:
        raise ValueError(
            f"{where}: no {missing[0]!r} but {', '.join(map(repr, row))}; expected SWAG's columns "
            "sent1, sent2, ending0, ending1 ..., label, or JSONL with context, choices, label."
        )
    endings: list[str] = []
    while f"ending{len(endings)}" in row:
        endings.append(_text(row, f"ending{len(endings)}", where))
    return _text(row, "sent1", where), _text(row, "sent2", where), tuple(endings)


def _read_list(row: dict[str, Any], where: str) -> tuple[str, str, tuple[str, ...]]:
    """Returns context, start and choices of a JSON object."""
    choices = as_list(row["choices"])
    if not isinstance(choices, list) or not all(isinstance(text, str) for text in choices):
        raise RowError(f"{where}: choices is {choices!r:.80}, expected a list of texts.")
    texts = [_text(row, name, where) for name in ("context", "question") if name in row]
    if not texts:
        raise ValueError(
            f"{where}: neither 'context' nor 'question' but {', '.join(map(repr, row))}; expected "
            f"the text before the choices."
        )
    return texts[0], texts[1] if len(texts) > 1 else "", tuple(choices)


def _text(row: dict[str, Any], name: str, where: str) -> str:
    if not isinstance(row[name], str):
        raise RowError(f"{where}: {name!r} is {row[name]!r:.80}, expected a text.")
    return row[name]


def _label(value: object, num_choices: int, where: str) -> int | None:
    """Returns the index of the right choice."""
    if is_missing(value) or value == "":
        return None
    label = LabelNames(map(str, range(num_choices))).find(str(value))  # str(True) is no number.
    if label is None:
        raise RowError(f"{where}: label {value!r}, expected a number from 0 to {num_choices - 1}.")
    return label
