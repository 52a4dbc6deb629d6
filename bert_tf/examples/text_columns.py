"""Converts users' texts to columns of strings; errors name the index of a wrong value."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any


def text_column(texts: Any, name: str = "texts") -> list[str]:
    """Returns texts as a list.

    Args:
      texts: a list, tuple, NumPy array or pandas column of strings.
      name: what messages call it.

    Raises:
      ValueError: if one of them is no string, or has no UTF-8; if it is a string itself.
    """
    return [checked_text(text, f"{name}[{i}]") for i, text in enumerate(as_list(texts, name))]


def text_columns(texts: Any, names: Sequence[str], name: str = "texts") -> list[list[str]]:
    """Returns a column for each text that a model takes.

    Args:
      texts: strings; for a model of pairs (text, text_b) or dicts with these keys, or a tuple of
        two columns.
      names: of the model's inputs.
      name: what messages call the texts.

    Raises:
      ValueError: as `text_column`, or if one is no pair.
    """
    if len(names) == 1:
        return [text_column(texts, name)]
    is_two = isinstance(texts, tuple) and len(texts) == 2
    if is_two and not any(isinstance(row, str | tuple | Mapping) for row in texts):
        columns = [text_column(column, f"{name}[{i}]") for i, column in enumerate(texts)]
        if len(columns[0]) != len(columns[1]):
            raise ValueError(
                f"{name} has {len(columns[0])} first and {len(columns[1])} second texts; expected "
                "equal numbers."
            )
        return columns
    columns = [[] for _ in names]
    for i, row in enumerate(as_list(texts, name)):
        if isinstance(row, Mapping) and all(text in row for text in names):
            row = [row[text] for text in names]
        is_row = isinstance(row, Iterable) and not isinstance(row, str | Mapping | Set)
        if not is_row or len(parts := list(row)) != 2:
            raise ValueError(
                f"{name}[{i}] is {row!r:.60}; this model takes pairs such as ('A text.', "
                f"'Another.')."
            )
        for column, text in zip(columns, parts, strict=True):
            column.append(checked_text(text, f"{name}[{i}]"))
    return columns


def word_lists(sentences: Any, name: str) -> list[list[str]]:
    """Returns sentences of words as lists.

    Raises:
      ValueError: if a sentence is no list of words, or a word is empty: it would end the sentence.
    """
    found = [text_column(words, f"{name}[{i}]") for i, words in enumerate(as_list(sentences, name))]
    for i, words in enumerate(found):
        if "" in words:
            raise ValueError(f"{name}[{i}][{words.index('')}] is empty; leave empty words out.")
    return found


def as_list(values: Any, name: str) -> list[Any]:
    """Returns a list of what may be one.

    Raises:
      ValueError: if it is a string or nothing that can be gone through.
    """
    is_table = isinstance(values, Mapping) or hasattr(values, "columns")
    if isinstance(values, str | bytes) or is_table or not isinstance(values, Iterable):
        what = "a table; pass one of its columns" if is_table else f"{values!r:.60}"
        raise ValueError(f"{name} is {what}; expected a list such as ['A text.', 'Another.'].")
    return list(values)


def checked_text(text: Any, name: str) -> str:
    """Returns a text that can be tokenized.

    Raises:
      ValueError: if it is no string, None or NaN say, or holds a lone surrogate.
    """
    if not isinstance(text, str):
        pair = "; this model takes single texts" if isinstance(text, tuple | list) else ""
        raise ValueError(f"{name} is {text!r:.60}, expected a string{pair}.")
    try:
        text.encode("utf8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: character {error.start} is a lone surrogate.") from None
    return str(text)
