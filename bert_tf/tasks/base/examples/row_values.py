"""Texts and numbers in the columns of a row that has a query and documents."""

import math
import re
from collections.abc import Iterable
from typing import Any

from bert_tf.tasks.base.examples.cells import as_list
from bert_tf.tasks.base.examples.row_errors import RowError
from bert_tf.tasks.base.examples.tables import Row

# Columns in which a list may be written as text. In other columns a text that looks like a list,
# such as program code, stays a text.
_LIST_COLUMNS = ("documents", "positives", "pos", "negatives", "neg")
_NUMBERED = re.compile(r"negative_(\d+)")


def text_of(value: object, name: str, where: str) -> str:
    """Returns a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise RowError(f"{where}: {name} is {value!r:.80}, expected a text that is not empty.")
    return value


def texts_of(row: Row, names: Iterable[str], where: str) -> list[str]:
    """Returns the texts of several columns, each with a text or a list of texts."""
    texts = []
    for name in names:
        value = as_list(row[name]) if name in _LIST_COLUMNS else row[name]
        for text in value if isinstance(value, list) else [value]:
            texts.append(text_of(text, name, where))
    return texts


def number_of(value: Any, name: str, where: str) -> float:
    """Returns a finite number, which may be written as text."""
    try:
        # float(True) would be 1.
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise RowError(f"{where}: {name} is {value!r:.80}, expected a number.")
    return number


def numbered_negatives(row: Row) -> list[str]:
    """Returns the columns negative_1, negative_2 and so on, by number."""
    # Scores follow this order, and negative_10 comes after negative_2.
    numbered = filter(_NUMBERED.fullmatch, row)
    return sorted(numbered, key=lambda name: int(name.removeprefix("negative_")))
