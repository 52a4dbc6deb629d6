"""Finds the words of a raw text and their offsets, as a tagger needs them."""

import unicodedata

from bert_tf.text.byte_level import SPACES, split_words
from bert_tf.text.tokenization import Tokenizer
from bert_tf.text.vocab import CONTINUATION_PREFIX, Vocab


def word_places(text: str, tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """Returns first character and end of each word: text[start:end].

    A word is what the tokenizer parts at white space and punctuation. Marks after a character
    belong to its word, also where the uncased rules dropped them or the cased rules part them from
    punctuation; marks that stand alone are no word.

    Example: "In Oslo, Ada." has the words In, Oslo, the comma, Ada and the full stop.
    """
    found: list[tuple[int, int]] = []
    if isinstance(tokenizer.vocab, Vocab):
        for token, start, end in zip(*tokenizer.tokenize_with_offsets(text), strict=True):
            if token.startswith(CONTINUATION_PREFIX) and found:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
    else:
        first = 0
        for word in split_words(text):
            start, end = (
                first + len(word) - len(word.lstrip(SPACES)),
                first + len(word.rstrip(SPACES)),
            )
            first += len(word)
            if start < end:
                found.append((start, end))
    return [
        (start, _after_marks(text, end))
        for start, end in found
        if not all(map(_is_mark, text[start:end]))
    ]


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) == "Mn"


def _after_marks(text: str, end: int) -> int:
    while end < len(text) and _is_mark(text[end]):
        end += 1
    return end
