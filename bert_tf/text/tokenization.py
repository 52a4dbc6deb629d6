"""The tokenizers in plain Python, WordPiece and byte-level BPE, behind one interface.

No TensorFlow is imported, so worker processes start at once.
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
    """Turns text into pieces; can be pickled."""

    @property
    def vocab(self) -> AnyVocab: ...

    def __hash__(self) -> int: ...

    def encode(self, text: str) -> list[int]:
        """Returns the ids of the pieces of the text."""

    def encode_uncached(self, text: str) -> list[int]:
        """Does what `encode` does, without memory."""

    def encode_word(self, word: str) -> list[int]:
        """Returns the ids of the pieces of a word of a sentence that is already split."""

    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of the text."""

    def tokenize_with_offsets(self, text: str) -> tuple[list[str], list[int], list[int]]:
        """Returns pieces, their first characters, and the characters after the last ones."""


def read_vocab(path: str | os.PathLike) -> AnyVocab:
    """Reads the vocabulary of either tokenizer: JSON is byte-level BPE's, text WordPiece's.

    Args:
      path: a vocab.txt; a tokenizer.json; or a vocab.json or merges.txt, beside the other. ~ is
        expanded.

    Raises:
      ValueError: see `Vocab` and `BpeVocab`.
    """
    path = pathlib.Path(path).expanduser()  # A shell leaves --vocab_file=~/x as it is.
    if path.suffix == ".json" or path.name == "merges.txt":
        return BpeVocab.read(path)
    return Vocab.read(path)


def make_tokenizer(vocab: AnyVocab, do_lower_case: bool) -> WordPiece | ByteBpe:
    """Returns the vocabulary's tokenizer.

    Args:
      vocab: says which.
      do_lower_case: whether WordPiece lower-cases; byte-level BPE never does.
    """
    return ByteBpe(vocab) if isinstance(vocab, BpeVocab) else WordPiece(vocab, do_lower_case)
