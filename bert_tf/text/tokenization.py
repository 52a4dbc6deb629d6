"""The interface of the tokenizers in plain Python, WordPiece and byte-level BPE.

TensorFlow is not imported, so worker processes start quickly.
"""

import os
import pathlib
from typing import Protocol

from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.byte_bpe import ByteBpe
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece

AnyVocab = Vocab | BpeVocab


class Tokenizer(Protocol):
    """Splits text into tokens; it can be pickled."""

    @property
    def vocab(self) -> AnyVocab: ...

    def __hash__(self) -> int: ...

    def encode(self, text: str) -> list[int]:
        """Returns the ids of the tokens of the text."""

    def encode_uncached(self, text: str) -> list[int]:
        """Returns the same ids as `encode`, without the cache."""

    def encode_word(self, word: str) -> list[int]:
        """Returns the token ids of one word of a sentence that was split into words."""

    def tokenize(self, text: str) -> list[str]:
        """Returns the tokens of the text."""

    def tokenize_with_offsets(self, text: str) -> tuple[list[str], list[int], list[int]]:
        """Returns the tokens, and the start and end character of each."""


def read_vocab(path: str | os.PathLike) -> AnyVocab:
    """Reads a vocabulary: byte-level BPE from JSON, WordPiece from text.

    Args:
      path: a vocab.txt; a tokenizer.json; or one of vocab.json and merges.txt, which have to be in
        the same folder. ~ is expanded.

    Raises:
      ValueError: see `Vocab` and `BpeVocab`.
    """
    path = pathlib.Path(path).expanduser()  # A shell does not expand --vocab_file=~/x.
    if path.suffix == ".json" or path.name == "merges.txt":
        return BpeVocab.read(path)
    return Vocab.read(path)


def make_tokenizer(vocab: AnyVocab, do_lower_case: bool) -> WordPiece | ByteBpe:
    """Returns the vocabulary's tokenizer.

    Args:
      vocab: the vocabulary, which determines the kind of tokenizer.
      do_lower_case: whether WordPiece lower-cases; byte-level BPE never does.
    """
    return ByteBpe(vocab) if isinstance(vocab, BpeVocab) else WordPiece(vocab, do_lower_case)
