"""Reads the texts of a request to a trained model as `columns` does; lists may be empty."""

from collections.abc import Sequence
from typing import Any

from bert_tf.system.type_names import Column, TextColumn, Texts
from bert_tf.tasks.base.examples.columns import read_column, read_pair_columns, read_texts


def text_column(texts: TextColumn, name: str = "texts") -> list[str]:
    """Returns texts as a list; see `read_texts`."""
    return read_texts(texts, name, may_be_empty=True)


def text_columns(texts: Texts, names: Sequence[str], name: str = "texts") -> list[list[str]]:
    """Returns a column for each text that a model takes.

    Args:
      texts: single texts, or pairs as for `read_pair_columns`.
      names: names of the model's inputs: one, or the two keys of a pair.
      name: name of the argument, for messages.

    Raises:
      ValueError: as `read_texts` or `read_pair_columns`.
    """
    if len(names) == 1:
        return [text_column(texts, name)]
    return list(read_pair_columns(texts, names, name, may_be_empty=True))


def word_lists(sentences: Column, name: str) -> list[list[str]]:
    """Returns sentences of words as lists.

    Raises:
      ValueError: if a sentence is not a list of words, or a word is empty: it would end the
        sentence.
    """
    found: list[list[str]] = []
    for index, sentence in enumerate(as_list(sentences, name)):
        words = text_column(sentence, f"{name}[{index}]")
        if "" in words:
            raise ValueError(f"{name}[{index}][{words.index('')}] is empty; leave empty words out.")
        found.append(words)
    return found


def as_list(values: Column, name: str) -> list[Any]:
    """Returns the values of a column; see `read_column`."""
    return read_column(values, name, may_be_empty=True)
