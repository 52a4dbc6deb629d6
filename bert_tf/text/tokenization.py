"""The interface of the tokenizers in plain Python: WordPiece, byte-level BPE and SentencePiece.

TensorFlow is not imported, so worker processes start quickly.
"""

import os
import pathlib
from typing import Protocol

from bert_tf.system.files import read_json
from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.byte_bpe import ByteBpe
from bert_tf.text.sentencepiece import SentencePiece
from bert_tf.text.sentencepiece_vocab import SentencePieceVocab, is_sentencepiece
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece

AnyVocab = Vocab | BpeVocab | SentencePieceVocab


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
    """Reads a vocabulary: byte-level BPE or SentencePiece from JSON, WordPiece from text.

    Args:
      path: a vocab.txt; a tokenizer.json; or one of vocab.json and merges.txt, which have to be in
        the same folder. ~ is expanded.

    Raises:
      ValueError: see `Vocab`, `BpeVocab` and `SentencePieceVocab`.
    """
    path = pathlib.Path(path).expanduser()  # A shell does not expand --vocab_file=~/x.
    if path.suffix == ".json" or path.name == "merges.txt":
        if is_sentencepiece(read_json(path) if path.suffix == ".json" else {}):
            return SentencePieceVocab.read(path)
        return BpeVocab.read(path)
    if path.suffix == ".model":
        raise ValueError(
            f"{path}: a .model does not say which row each token has; give the folder of the "
            "encoder, or save the tokenizer as tokenizer.json."
        )
    return Vocab.read(path)


def make_tokenizer(vocab: AnyVocab, do_lower_case: bool) -> WordPiece | ByteBpe | SentencePiece:
    """Returns the vocabulary's tokenizer.

    Args:
      vocab: the vocabulary, which determines the kind of tokenizer.
      do_lower_case: whether WordPiece lower-cases; the others do what their vocabulary says.
    """
    if isinstance(vocab, SentencePieceVocab):
        return SentencePiece(vocab)
    if isinstance(vocab, BpeVocab):
        return ByteBpe(vocab)
    return WordPiece(vocab, do_lower_case)
