"""Reads columns of texts and labels in any Python form, and checks them before computing.

A column is a list or tuple, a NumPy array (str, bytes or object), a column of pandas, Arrow or
Hugging Face's datasets, or a tensor of strings. Missing values, and values that are not texts, are
reported with their index.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set, Sized
from typing import Any

import numpy as np

from bert_tf.system.type_names import Column, Labels, TextColumn, Texts
from bert_tf.tasks.base.examples.cells import as_list
from bert_tf.tasks.base.examples.labels import SEPARATOR, LabelNames

# How columns of other libraries give their values as Python's: NumPy, pandas, Arrow, Polars.
TO_LIST = ("tolist", "to_pylist", "to_list")
PAIR_KEYS = ("text", "text_b")
WITH_IDS = (
    "Pass ids as a dict of input_word_ids, input_mask and input_type_ids, or make the model with "
    "preprocessor=None."
)


class CheckedTexts(list[str]):
    """Texts that `read_texts` or `read_pair_columns` returned: they are not read a second time."""


def read_column(values: object, name: str, may_be_empty: bool = False) -> list[Any]:
    """Returns the values of a column as Python objects, texts as str.

    Raises:
      ValueError: if it is not a column, is empty, or holds bytes that are not UTF-8.
    """
    if isinstance(values, str | bytes):
        raise ValueError(f"{name} is the string {_shown(values)}, expected a list of them.")
    # Iterated, these would give the names of their columns.
    if isinstance(values, Mapping) or hasattr(values, "columns") and hasattr(values, "iloc"):
        kind = type(values).__name__
        raise ValueError(f"{name} is a {kind}, expected one column: a list, or frame['text'].")
    if hasattr(values, "numpy"):  # a tensor
        values = values.numpy()
    method = next((m for m in TO_LIST if hasattr(values, m)), None)
    if method:
        values = getattr(values, method)()
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise ValueError(f"{name} is {_shown(values)}, expected a list.")
    column = list(values)
    if not column and not may_be_empty:
        raise ValueError(f"{name} is empty, expected one or more.")
    return [_as_text(value, f"{name}[{index}]") for index, value in enumerate(column)]


def read_texts(values: object, name: str = "texts", may_be_empty: bool = False) -> list[str]:
    """Returns a column of texts.

    Raises:
      ValueError: as `read_column`; also if a value is missing, is not a text, or has no UTF-8.
    """
    if isinstance(values, CheckedTexts) and (values or may_be_empty):
        return values
    column = read_column(values, name, may_be_empty)
    others = [index for index, value in enumerate(column) if not isinstance(value, str)]
    if not others:
        return CheckedTexts(check_text(text, f"{name}[{i}]") for i, text in enumerate(column))
    value = column[others[0]]
    where = f"{name}[{others[0]}]"
    share = f"{len(others):,} of {len(column):,}"
    if is_missing(value):
        raise ValueError(
            f"{where} is {value!r}, expected a text; {share} are missing or not text. Leave these "
            'rows out, or give "" instead.'
        )
    if _holds_numbers(value):
        raise ValueError(f"{where} is {_shown(value)}, expected a text. {WITH_IDS}")
    raise ValueError(
        f"{where} is {_shown(value)}, expected a text; {share} are not text. For a model of pairs, "
        "give a list of pairs or a tuple of two lists: (first texts, second texts)."
    )


def check_text(text: str, where: str) -> str:
    """Returns the text; raises ValueError if it has a lone surrogate, which has no UTF-8."""
    try:
        text.encode("utf8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: character {error.start} is a lone surrogate.") from None
    return text


def read_pairs(values: Texts) -> tuple[list[str], list[str] | None]:
    """Returns texts and, for pairs, the second texts.

    Args:
      values: a column of texts; or pairs as for `read_pair_columns`, of which a list begins with a
        tuple or a dict.
    """
    # A tuple of strings is a column of texts; any other tuple is two columns.
    is_columns = isinstance(values, tuple) and not all(isinstance(v, str | bytes) for v in values)
    if is_columns or isinstance(values, list) and values and _begins_pairs(values[0]):
        return read_pair_columns(values)
    return read_texts(values), None


def read_pair_columns(
    values: Texts, keys: Sequence[str] = PAIR_KEYS, name: str = "texts", may_be_empty: bool = False
) -> tuple[list[str], list[str]]:
    """Returns the first and the second texts of pairs.

    Args:
      values: a tuple of two columns; or a list of pairs, each a tuple, a list, or a dict.
      keys: of the two texts in a dict.

    Raises:
      ValueError: naming the first row that is not a pair of texts; if there are not as many second
        texts as first, or two columns cannot be told from two pairs.
    """
    # A tuple of two strings or dicts is a list of rows, which is read below.
    if (
        isinstance(values, tuple)
        and len(values) == 2
        and not any(isinstance(value, str | bytes | Mapping) for value in values)
    ):
        return _read_two_columns(values[0], values[1], name, may_be_empty)
    firsts = CheckedTexts()
    seconds = CheckedTexts()
    for index, row in enumerate(read_column(values, name, may_be_empty)):
        where = f"{name}[{index}]"
        parts: list[Any] = []
        if isinstance(row, Mapping) and all(key in row for key in keys):
            parts = [row[key] for key in keys]
        elif isinstance(row, Iterable) and not isinstance(row, str | Mapping | Set):
            parts = list(row)
        if len(parts) != 2:
            raise ValueError(
                f"{where} is {_shown(row)}, expected a pair such as ('A text.', 'Another.')."
            )
        texts: list[str] = []
        for part in parts:
            text = _as_text(part, where)
            if not isinstance(text, str):
                raise ValueError(f"{where} is {_shown(row)}, expected a pair of two texts.")
            texts.append(check_text(text, where))
        firsts.append(texts[0])
        seconds.append(texts[1])
    return firsts, seconds


def _read_two_columns(
    firsts: TextColumn, seconds: TextColumn, name: str, may_be_empty: bool
) -> tuple[list[str], list[str]]:
    """Reads a tuple of two columns; the arguments and errors are those of `read_pair_columns`."""
    if _is_pair(firsts) and _is_pair(seconds):
        raise ValueError(
            f"{name} is {_shown((firsts, seconds))}: are these two pairs, or the first and the "
            "second texts? Give a list of pairs, or a tuple of two lists."
        )
    first = read_texts(firsts, f"first {name}", may_be_empty)
    second = read_texts(seconds, f"second {name}", may_be_empty)
    if len(first) != len(second):
        raise ValueError(
            f"{len(first):,} first {name} and {len(second):,} second {name}; expected equal "
            "numbers."
        )
    return first, second


def as_two_columns(x: object, expected: str) -> tuple[Any, Any]:
    """Returns two columns, given as a tuple of them or as a list of pairs."""
    # The type tells them apart: ([q1, q2], [c1, c2]) would fit both.
    if isinstance(x, list) and x and all(map(_has_two, x)):
        x = tuple(zip(*x, strict=True))
    if not isinstance(x, tuple) or len(x) != 2:
        raise ValueError(f"Expected {expected}.")
    return x[0], x[1]


def text_column(texts: TextColumn) -> list[str]:
    """Returns the texts of a request, which may be none; see `read_texts`."""
    return read_texts(texts, may_be_empty=True)


def text_columns(texts: Texts, names: Sequence[str]) -> list[list[str]]:
    """Returns a column for each text that a model takes, of a request, which may be empty.

    `names` are those of the model's inputs: one, or the two keys of a pair.
    """
    if len(names) == 1:
        return [text_column(texts)]
    return list(read_pair_columns(texts, names, may_be_empty=True))


def read_tuples(x: Column) -> list[list[Any]]:
    """Returns the columns of examples of several texts, each of the same length.

    Args:
      x: a tuple of columns; or a list of tuples, an example each; or a single column of texts.
    """
    if isinstance(x, list) and x and isinstance(x[0], tuple):
        sizes = {len(row) if isinstance(row, tuple) else 0 for row in x}
        if len(sizes) > 1 or min(sizes) < 2:
            raise ValueError(
                f"x is a list of tuples with {', '.join(map(str, sorted(sizes)))} values; expected "
                "tuples of the same length, of two values or more."
            )
        # Rows become columns.
        return list(map(list, zip(*x, strict=True)))
    is_columns = isinstance(x, tuple) and not all(isinstance(value, str | bytes) for value in x)
    given = x if is_columns else (x,)
    columns = [
        read_column(column, f"x[{number}]" if is_columns else "x")
        for number, column in enumerate(given)
    ]
    sizes = set(map(len, columns))
    if len(sizes) > 1:
        raise ValueError(
            f"x has columns of {min(sizes):,} and of {max(sizes):,} values; expected the same "
            "length."
        )
    return columns


def as_cell(value: object) -> object:
    """Returns a value of a column as tables have it: several values are a list."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def read_label_ids(
    values: Labels, labels: Sequence[str], count: int, name: str = "y"
) -> np.ndarray:
    """Returns the indices of labels: int32 [count].

    Args:
      values: names or numbers, [N] or [N, 1], or one-hot rows [N, C]. A number is the index of its
        label, from 0, unless the names are numbers themselves: with the labels "1" to "5", 1 is
        the first.
      labels: the known names; an empty one is a class without a name.

    Raises:
      ValueError: naming the first missing or unknown label, and their number.
    """
    values = _frame_by_labels(values, labels, name)
    column = read_column(values, name)
    check_count(column, count, name)
    # A list with one name may be one of several labels; a matrix [N, 1] is a column.
    is_matrix = hasattr(values, "shape")
    if all(_is_alone(value) and (is_matrix or not isinstance(value[0], str)) for value in column):
        column = [value[0] for value in column]
    if len(labels) > 1 and all(is_row_of_bits(value, len(labels)) for value in column):
        return _one_hot_indices(column, name)
    known = LabelNames(labels)
    # Empty unless all names are numbers; otherwise a number is an index.
    numbers = {value: index for index, value in enumerate(numbers_of(labels) or ())}
    indices = [_label_index(value, known, numbers) for value in column]
    unknown = [row for row, index in enumerate(indices) if index is None]
    if unknown:
        value = column[unknown[0]]
        share = f"{len(unknown):,} of {count:,} are not labels"
        names = list(filter(None, labels))
        shown = ", ".join(map(repr, names[:10])) or f"0 to {len(labels) - 1}"
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        kind = ""
        if isinstance(value, list | tuple):
            kind = " Several labels per text need problem_type='multi_label'."
        elif isinstance(value, float) and not is_missing(value):
            kind = " To predict numbers, give num_labels=1, problem_type='regression'."
        raise ValueError(
            f"{name}[{unknown[0]}] is {_shown(value)}, expected one of the labels {shown}{more}; "
            f"{share}.{kind}"
        )
    return np.array(indices, np.int32)


def read_numbers(values: Labels, count: int, name: str = "y") -> np.ndarray:
    """Returns a column of finite numbers, float32 [count]."""
    column = [v[0] if _is_alone(v) else v for v in read_column(values, name)]
    check_count(column, count, name)
    for index, value in enumerate(column):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise ValueError(f"{name}[{index}] is {_shown(value)}, expected a finite number.")
    return np.array(column, np.float32)


def read_label_sets(
    values: Labels, labels: Sequence[str], count: int, name: str = "y"
) -> np.ndarray:
    """Returns 1 where a row has a label, otherwise 0: float32 [count, C].

    Args:
      values: of each row a list of names or indices, which may be empty; or, of all rows, the text
        of such a list, or names joined by "|", as in tables; or a matrix of 0 and 1.

    Raises:
      ValueError: naming the first row that is neither.
    """
    values = _frame_by_labels(values, labels, name)
    matrix = np.asarray(values) if hasattr(values, "shape") else None
    if matrix is not None and matrix.ndim == 2:
        check_count(matrix, count, name)
        if matrix.shape[1] != len(labels) or not np.isin(matrix, (0, 1)).all():
            raise ValueError(
                f"{name} is a matrix of shape {matrix.shape}, expected 0 and 1 for each of the "
                f"{len(labels)} labels."
            )
        return matrix.astype(np.float32)
    column = read_column(values, name)
    check_count(column, count, name)
    if all(isinstance(value, str) for value in column):
        column = list(map(_labels_of, column))
    if len(labels) > 1 and column and all(is_row_of_bits(row, len(labels)) for row in column):
        raise ValueError(
            f"{name} has a list of {len(labels)} numbers, 0 or 1, in each row: are these indices "
            f"of labels, or a decision for each label? Give decisions as an array, "
            f"np.array({name}), and labels by name."
        )
    rows = np.zeros((count, len(labels)), np.float32)
    for index, value in enumerate(column):
        if not isinstance(value, list | tuple | set | frozenset | np.ndarray):
            raise ValueError(
                f"{name}[{index}] is {_shown(value)}, expected a list of labels, [] for none."
            )
        if len(value):
            here = f"{name}[{index}]"
            rows[index, read_label_ids(list(value), labels, len(value), here)] = 1
    return rows


def is_empty(values: object) -> bool:
    """Returns whether a column, or a tuple of columns, has no values."""
    columns = values if isinstance(values, tuple) and values else (values,)
    for column in columns:
        if isinstance(column, str | bytes) or not isinstance(column, Sized):
            return False
        # An array without dimensions has no length, although its type is sized.
        if getattr(column, "shape", None) == () or len(column):
            return False
    return True


def _frame_by_labels(values: Labels, labels: Sequence[str], name: str) -> Labels:
    """Returns a frame with a column for each label as an array in the order of the labels.

    Anything else, and a frame of one column, is returned as it is.
    """
    if not (hasattr(values, "columns") and hasattr(values, "to_numpy")):
        return values
    given = list(values.columns)
    names = list(map(str, given))
    # Columns named 0, 1, 2 .. are in the order of the labels already.
    if len(names) < 2 or names == list(map(str, range(len(labels)))):
        return values.to_numpy() if len(names) > 1 else values
    if sorted(names) != sorted(labels):
        raise ValueError(
            f"{name} is a DataFrame with the columns {', '.join(names[:10])}, expected a column "
            f"of 0 and 1 for each of the labels {', '.join(labels[:10])}, or one column of labels."
        )
    frame: Any = values
    return frame[[given[names.index(label)] for label in labels]].to_numpy()


def _one_hot_indices(rows: list[Any], name: str) -> np.ndarray:
    """Returns the index of the 1 in each row of 0 and 1: int32 [N]."""
    found = []
    for index, row in enumerate(rows):
        bits = list(row)
        if sum(bits) != 1:
            raise ValueError(
                f"{name}[{index}] is {_shown(row)}, expected one-hot: one 1 in each row. Several "
                "labels per text need problem_type='multi_label'."
            )
        found.append(bits.index(1))
    return np.array(found, np.int32)


def check_count(column: Sized, count: int, name: str) -> None:
    """Raises ValueError unless a column has one value per text."""
    if len(column) != count:
        raise ValueError(f"{len(column):,} values of {name} for {count:,} texts; expected as many.")


def is_missing(value: object) -> bool:
    """Returns whether a value means a missing one: None, NaN, NA, NaT."""
    # By name, because pandas is not imported here.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)


def _as_text(value: object, where: str) -> object:
    """Decodes bytes to text and converts NumPy's values to Python's; others are unchanged."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf8")
        except UnicodeDecodeError:
            raise ValueError(f"{where} is {value!r:.60}, which is not UTF-8.") from None
    if isinstance(value, np.generic):
        return value.item()
    return value


def is_row_of_bits(value: object, count: int) -> bool:
    """Returns whether a value is a row of `count` numbers, all 0 or 1."""
    if not isinstance(value, list | tuple | np.ndarray) or len(value) != count:
        return False
    return all(not isinstance(bit, str) and bit in (0, 1) for bit in value)


def _begins_pairs(row: object) -> bool:
    """Returns whether the first row of a list is a pair; a list there may be one of ids."""
    if isinstance(row, Mapping):
        return True
    return isinstance(row, tuple) and any(isinstance(text, str) for text in row)


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(v, str) for v in value)


def _has_two(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) == 2


def _is_alone(value: object) -> bool:
    return isinstance(value, list | tuple | np.ndarray) and len(value) == 1


def _holds_numbers(value: object) -> bool:
    if isinstance(value, list | tuple) and value:
        value = value[0]
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iuf"
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integer_text(name: str) -> bool:
    """Returns whether a name is a whole number."""
    return name.removeprefix("-").isdecimal()


def numbers_of(labels: Sequence[str]) -> list[float] | None:
    """Returns the numbers that the names of labels are; None if a name is not a number."""
    are_numbers = all(re.fullmatch(r"[+-]?\d+(\.\d+)?", label) for label in labels)
    return list(map(float, labels)) if are_numbers else None


def _labels_of(cell: str) -> list[Any]:
    """Returns the labels of a row that are one text, as in a table."""
    labels = as_list(cell)
    if isinstance(labels, list):
        return labels
    if cell.strip():
        return list(map(str.strip, cell.split(SEPARATOR)))
    return []


def _label_index(value: object, known: LabelNames, numbers: Mapping[float, int]) -> int | None:
    """Returns the index of one label; None if it is unknown."""
    if isinstance(value, str):
        return known.find(value)
    if isinstance(value, bool):
        index = known.find(str(value))
        if index is not None:
            return index
    if not isinstance(value, int | float):
        return None
    if numbers:
        return numbers.get(value)
    is_index = value in range(len(known.names))  # Also 1.0: pandas' integers next to a missing one.
    return int(value) if is_index else None


def _shown(value: object) -> str:
    return f"{value!r:.80}"
