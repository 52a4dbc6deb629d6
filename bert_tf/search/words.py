"""Words of a text, counted to cut it into passages."""

import regex

from bert_tf.corpus.unspaced_text import UNSPACED

_WORD = regex.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Returns start and end of each word: text between spaces, or one character without spaces.

    Example: word_spans("An 東京") == [(0, 2), (3, 4), (4, 5)]
    """
    return [match.span() for match in _WORD.finditer(text)]
