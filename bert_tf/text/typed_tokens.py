"""Counts special tokens that are written in texts, and says how WordPiece reads them.

Hugging Face's tokenizers turn a written "[SEP]" into the special token. google-research/bert and
this package read "[", "sep", "]", so that no text can forge a separator. A model whose texts were
joined with a written [SEP] gets different tokens here, which the user should know before training.
Where `WordPieceOptions.reads_special_tokens` is set they are special tokens, so a text can forge
them, which the user should know as well.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from absl import logging

from bert_tf.text.tokenization import AnyVocab, Tokenizer
from bert_tf.text.vocab import WORDPIECE

WITHOUT_TEXTS = (bytes, dict)
# The methods of a tokenizer that take a text.
READING = ("encode", "encode_uncached", "encode_word", "tokenize", "tokenize_with_offsets")


class TypedTokens:
    """Counts texts, and the texts in which each special token is written."""

    def __init__(self, vocab: AnyVocab) -> None:
        self._tokens = vocab.special_tokens if vocab.kind == WORDPIECE else ()
        self._first_characters = {token[0] for token in self._tokens}  # a bracket
        self.are_read = vocab.options.reads_special_tokens
        self.num_texts = 0
        self.counts: dict[str, int] = {}

    def add(self, text: str) -> None:
        """Counts a text, unless it is empty."""
        if not text:
            return
        self.num_texts += 1
        # Most texts have no bracket, and need no search for the tokens.
        if not any(character in text for character in self._first_characters):
            return
        for token in self._tokens:
            if token in text:
                self.counts[token] = self.counts.get(token, 0) + 1

    def notes(self) -> list[str]:
        """Returns a sentence for each special token that is written in a text."""
        reading = (
            "is read as ordinary text, not as the special token; give the two parts of a pair as "
            "two columns"
        )
        if self.are_read:
            reading = "is read as the special token, as in transformers"
        notes = []
        for token, count in self.counts.items():
            notes.append(
                f"{token} is written in {count} of {self.num_texts} texts "
                f"({100 * count / self.num_texts:.3g} %) and {reading}."
            )
        return notes

    def log(self) -> None:
        """Logs the notes."""
        for note in self.notes():
            logging.warning(note)


class CountingTokenizer:
    """A tokenizer that counts the special tokens written in the texts that it reads.

    Attributes:
      typed: the counts.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.typed = TypedTokens(tokenizer.vocab)

    def __reduce__(self) -> tuple:
        return CountingTokenizer, (self._tokenizer,)

    def __getattr__(self, name: str) -> Any:
        # copy and pickle ask for such names before `__init__` has run: no endless recursion.
        if name.startswith("__") or name == "_tokenizer":
            raise AttributeError(name)
        value = getattr(self._tokenizer, name)
        if name not in READING:
            return value

        def count_and_read(text: str) -> Any:
            self.typed.add(text)
            return value(text)

        return count_and_read


def texts_in(values: object) -> Iterator[str]:
    """Yields the strings in a column, a list of columns, or lists of words."""
    if hasattr(values, "numpy"):  # a tensor of strings
        values = map(bytes.decode, np.ravel(values.numpy()))
    if isinstance(values, str):
        yield values
    elif isinstance(values, Iterable) and not isinstance(values, WITHOUT_TEXTS):
        for value in values:
            yield from texts_in(value)


def log_typed_tokens(values: object, vocab: AnyVocab) -> None:
    """Logs which special tokens are written in texts, and in how many.

    Args:
      values: see `texts_in`.
    """
    typed = TypedTokens(vocab)
    for text in texts_in(values):
        typed.add(text)
    typed.log()
