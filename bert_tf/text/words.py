"""The words of a raw text and their offsets, for taggers."""

import functools
import unicodedata

from bert_tf.text.byte_level import SPACES, split_words
from bert_tf.text.tokenization import Tokenizer
from bert_tf.text.vocab import CONTINUATION_PREFIX, SPECIAL_TOKENS, WORDPIECE, Vocab
from bert_tf.text.wordpiece import WordPiece


def word_offsets(text: str, tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """Returns start and end of each word: text[start:end].

    Words are separated as the tokenizer does, at white space and punctuation. Marks after a
    character belong to its word, also where the uncased rules drop them or the cased rules separate
    them from punctuation. Marks without a character are not words.

    Example: "In Oslo, Ada." has the words In, Oslo, the comma, Ada and the full stop.
    """
    words: list[tuple[int, int]] = []
    splitter = tokenizer
    if not tokenizer.vocab.separates_punctuation:
        # Its words end at spaces alone.
        splitter = _punctuation_splitter()
    if splitter.vocab.kind == WORDPIECE:
        for token, start, end in zip(*splitter.tokenize_with_offsets(text), strict=True):
            if token.startswith(CONTINUATION_PREFIX) and words:
                words[-1] = (words[-1][0], end)
            else:
                words.append((start, end))
    else:
        first = 0
        for word in split_words(text):
            # A word of byte-level BPE includes the space before it.
            start = first + len(word) - len(word.lstrip(SPACES))
            end = first + len(word.rstrip(SPACES))
            first += len(word)
            if start < end:
                words.append((start, end))
    offsets = []
    for start, end in words:
        if not all(map(_is_mark, text[start:end])):
            offsets.append((start, _after_marks(text, end)))
    return offsets


@functools.cache
def _punctuation_splitter() -> WordPiece:
    """Returns a tokenizer without other tokens: each word is one [UNK]."""
    return WordPiece(Vocab(SPECIAL_TOKENS), do_lower_case=False)


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) == "Mn"


def _after_marks(text: str, end: int) -> int:
    while end < len(text) and _is_mark(text[end]):
        end += 1
    return end
