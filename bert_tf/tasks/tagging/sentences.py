"""Sentences: with their tags, or passed from Python as lists of words or as texts."""

from typing import Any, NamedTuple

import numpy as np

from bert_tf.system.type_names import Texts
from bert_tf.tasks.base.examples.columns import read_column, read_texts


class TaggedSentence(NamedTuple):
    """A sentence."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None  # one tag per word; None if the file has no tags
    source: str  # "FILE line N" of the first word, for messages
    # Start and end of each word in the text of a table's row; () without such a text.
    offsets: tuple[tuple[int, int], ...] = ()


def read_sentences(x: Texts) -> list[list[str]]:
    """Returns the words of sentences to train on, given as lists of words or as texts.

    Texts are split at white space.
    """
    column = read_column(x, "texts")
    if isinstance(column[0], str):
        words = list(map(str.split, read_texts(column)))
    else:
        words = read_words(column)
    for index, row in enumerate(words):
        if not row:
            raise ValueError(f"texts[{index}] has no words; leave it out.")
    return words


def read_words(column: list[Any]) -> list[list[str]]:
    """Returns the words of sentences given as lists of words, which may be empty."""
    sentences = []
    for index, row in enumerate(column):
        if not isinstance(row, list | tuple | np.ndarray):
            expected = "a list of words, like texts[0]" if index else "a text or a list of words"
            raise ValueError(f"texts[{index}] is {row!r:.80}, expected {expected}.")
        # `read_texts` rejects empty columns, but a sentence to tag may be empty.
        sentences.append(read_texts(row, f"texts[{index}]") if len(row) else [])
    return sentences
