"""Reads multiple-choice examples, texts with several endings, from SWAG's tables or JSONL."""

from typing import Any, NamedTuple

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.tasks.base.examples.cells import as_list
from bert_tf.tasks.base.examples.columns import is_missing
from bert_tf.tasks.base.examples.labels import LabelNames
from bert_tf.tasks.base.examples.row_errors import RowError, RowErrors, Unlabelled
from bert_tf.tasks.base.examples.tables import list_tables, read_rows


class ChoiceExample(NamedTuple):
    """A context with its choices."""

    context: str  # the first text of every pair
    start: str  # the beginning of the second text of every pair, before the choice; may be ""
    choices: tuple[str, ...]  # two or more texts, the same number in all examples
    label: int | None  # index of the correct choice; None: unlabelled
    id: str  # index of the example
    source: str  # file and line, for messages: "val.csv line 7"


def read_swag(
    path: str, *, is_needed: bool = False, reading: TableConfig | None = None
) -> list[ChoiceExample]:
    """Reads examples in one of two formats, which differ in their columns.

    SWAG: sent1 (the context), sent2 (the start), ending0, ending1 and so on, and label, which may
    be empty or, as in the test set, missing. Other columns, such as video-id, are ignored. SWAG's
    files are CSV; other tables may have these columns as well.

    JSONL: `choices`, a list of texts; `context`, `question` or both, where the question is the
    start, as in RACE; `label`, an index from 0, which may be null or missing. In tables `choices`
    is a list written in its cell.

    Reference: Zellers et al. 2018, "SWAG", whose pairs are (sent1, sent2 + ending).

    Args:
      path: comma-separated files and globs, see `examples/tables.py`.
      is_needed: whether a label that is not the index of a choice, such as -1, is an error, and
        so is a missing one unless `reading` skips such rows; otherwise the example is unlabelled.
      reading: options for reading tables; None: the defaults.

    Raises:
      ValueError: naming files and lines, if a file cannot be read as a table, a column is missing,
        a value is not a text, the label is not the index of a choice, or a row has fewer than two
        choices or a different number than the first row; also if there are no rows.
    """
    examples: list[ChoiceExample] = []
    errors = RowErrors(reading)
    for table in list_tables(path, "the path of the examples"):
        for where, row in read_rows(table, reading, errors=errors):
            if is_needed and errors.leaves_out(row, ("label",)):
                continue
            with errors:
                read = _read_list if "choices" in row else _read_columns
                context, start, choices = read(row, where)
                # The logits of a batch are [B, C], so that C cannot change.
                expected = len(examples[0].choices) if examples else max(2, len(choices))
                if len(choices) != expected:
                    as_first = f", as in {examples[0].source}" if examples else " or more"
                    raise RowError(
                        f"{where}: {len(choices)} choices, expected {expected}{as_first}."
                    )
                try:
                    label = _label(row.get("label"), len(choices), where)
                except ValueError:
                    if is_needed:
                        raise
                    label = None
                # SWAG's test set has no labels: they are missing there, or the column is empty.
                if label is None and is_needed:
                    raise Unlabelled(
                        f"{where}: no label; expected the index of the correct choice",
                        "--skip_unlabelled leaves rows without a label out.",
                    )
                example = ChoiceExample(context, start, choices, label, str(len(examples)), where)
                examples.append(example)
    errors.finish(path)
    if not examples:
        raise ValueError(f"{path} has no rows; expected SWAG's columns or JSONL with choices.")
    return examples


def _read_columns(row: dict[str, Any], where: str) -> tuple[str, str, tuple[str, ...]]:
    """Returns context, start and choices of a row with SWAG's columns."""
    if missing := [name for name in ("sent1", "sent2", "ending0") if name not in row]:
        raise ValueError(
            f"{where} has no column {missing[0]!r}; its columns are {', '.join(map(repr, row))}. "
            "Expected SWAG's columns sent1, sent2, ending0, ending1 ..., label, or JSONL with "
            "context, choices, label."
        )
    endings: list[str] = []
    # ending0, ending1 and so on, up to the first number that is missing.
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
            f"{where} has neither 'context' nor 'question', but {', '.join(map(repr, row))}; one "
            "of them must give the text before the choices."
        )
    # In RACE, the question is the beginning of each second text.
    return texts[0], texts[1] if len(texts) > 1 else "", tuple(choices)


def _text(row: dict[str, Any], name: str, where: str) -> str:
    if not isinstance(row[name], str):
        raise RowError(f"{where}: {name!r} is {row[name]!r:.80}, expected a text.")
    return row[name]


def _label(value: object, num_choices: int, where: str) -> int | None:
    """Returns the index of the correct choice; None if there is no label."""
    if is_missing(value) or value == "":
        return None
    # Finds "1", 1 and 1.0, but not True.
    label = LabelNames(map(str, range(num_choices))).find(str(value))
    if label is None:
        raise RowError(f"{where}: label {value!r}, expected a number from 0 to {num_choices - 1}.")
    return label
