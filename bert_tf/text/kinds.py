"""The kinds of vocabularies; only this module of the package distinguishes them.

kind       file            a piece that begins a word  special tokens that stand in a text
wordpiece  vocab.txt       has no ## in front          are ordinary words: "[", "mask", "]"
byte_bpe   tokenizer.json  begins with the space       are special tokens: <mask>
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from bert_tf.config import ModelConfig
from bert_tf.text.bpe_vocab import AddedToken, BpeVocab
from bert_tf.text.byte_level import BYTE_OF_CHARACTER
from bert_tf.text.tokenization import AnyVocab, Tokenizer, read_vocab
from bert_tf.text.vocab import MASK, Vocab

WORDPIECE, BYTE_BPE = "wordpiece", "byte_bpe"
# In this order: folders of Hugging Face may have several.
VOCABULARY_FILES = ("vocab.txt", "tokenizer.json", "vocab.json")


def kind_of(vocab: AnyVocab) -> str:
    """Returns the kind of a vocabulary, as `ModelConfig.tokenizer` names it."""
    return WORDPIECE if isinstance(vocab, Vocab) else BYTE_BPE


def content_of(vocab: AnyVocab) -> str:
    """Returns all that decides a vocabulary's pieces as text, for its hash: of WordPiece the lines
    of vocab.txt."""
    if isinstance(vocab, Vocab):
        return "\n".join(vocab.tokens)
    return json.dumps(dataclasses.asdict(vocab), sort_keys=True)


def to_config(vocab: AnyVocab) -> Any:
    """Returns a vocabulary as JSON has it: of WordPiece a list of pieces, else a dict of fields."""
    return list(vocab.tokens) if isinstance(vocab, Vocab) else dataclasses.asdict(vocab)


def vocab_from_config(config: Any) -> AnyVocab:
    """Makes a vocabulary of what `to_config` gave."""
    if isinstance(config, list):
        return Vocab(tuple(config))
    added = tuple(AddedToken(**token) for token in config["added_tokens"])
    return BpeVocab(**{**config, "added_tokens": added})


def find_vocabulary(folder: str | os.PathLike) -> pathlib.Path | None:
    """Returns the vocabulary that lies in a folder; None if there is none."""
    paths = (pathlib.Path(folder, name) for name in VOCABULARY_FILES)
    return next((path for path in paths if path.is_file()), None)


def read_vocabulary_in(folder: str | os.PathLike) -> AnyVocab:
    """Reads the vocabulary that lies in a folder.

    Raises:
      ValueError: if there is none, or it is damaged.
    """
    path = find_vocabulary(folder)
    if path is None:
        raise ValueError(f"{folder} has no {' and no '.join(VOCABULARY_FILES)}.")
    return read_vocab(path)


def with_vocabulary(config: ModelConfig, vocab: AnyVocab) -> ModelConfig:
    """Returns the configuration with all that follows from the vocabulary, but its size.

    Byte-level BPE keeps all letters as they are: `do_lower_case` is false.
    """
    kind = kind_of(vocab)
    lower = config.do_lower_case and kind == WORDPIECE
    return dataclasses.replace(
        config, tokenizer=kind, pad_token_id=vocab.pad_id, do_lower_case=lower
    )


def check_kind(vocab: AnyVocab, given: dict[str, Any], source: str | os.PathLike) -> None:
    """Raises ValueError if a vocabulary is not of the kind that the user states.

    Args:
      vocab: as read.
      given: the fields of the model's configuration that the user stated.
      source: the vocabulary's file.
    """
    kind = kind_of(vocab)
    if given.get("tokenizer", kind) != kind:
        raise ValueError(
            f"{source} is a {kind} vocabulary, but --tokenizer={given['tokenizer']}: leave the "
            "flag out, or give another --vocab_file."
        )


def with_trimmed_offsets(vocab: AnyVocab) -> AnyVocab:
    """Returns the vocabulary so that no piece's place in the text includes the space before it."""
    if isinstance(vocab, Vocab) or vocab.trim_offsets:
        return vocab
    return dataclasses.replace(vocab, trim_offsets=True)


def piece_texts(vocab: AnyVocab) -> tuple[str, ...]:
    """Returns the pieces for people: of byte-level BPE the bytes as text, a space in front of a
    piece that begins a word, U+FFFD for parts of a character."""
    if isinstance(vocab, Vocab):
        return vocab.tokens
    added = {token.content for token in vocab.added_tokens}
    return tuple(token if token in added else _decode(token) for token in vocab.tokens)


def _decode(token: str) -> str:
    return bytes(map(BYTE_OF_CHARACTER.__getitem__, token)).decode("utf8", errors="replace")


def space_before_sentences(vocab: AnyVocab) -> str:
    """Returns what a sentence gets in front that follows another one of its document.

    In running text a space stands there; of byte-level BPE it belongs to the sentence's first
    piece.
    """
    return "" if isinstance(vocab, Vocab) else " "


def encode_sentences(tokenizer: Tokenizer, sentences: Iterable[str]) -> Iterator[list[int]]:
    """Yields the pieces of the sentences of a document; see `space_before_sentences`."""
    space = space_before_sentences(tokenizer.vocab)
    if not space:
        yield from map(tokenizer.encode, sentences)
        return
    for number, sentence in enumerate(sentences):
        yield tokenizer.encode(space + sentence if number else sentence)


def encode_with_masks(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the pieces of a text in which [MASK], of either kind, means the special token.

    Byte-level BPE's own name of it, <mask> say, does so anyway; it takes the space before it.
    """
    vocab = tokenizer.vocab
    if not isinstance(vocab, Vocab):
        return tokenizer.encode(text.replace(MASK, vocab.tokens[vocab.mask_id]))
    first, *others = (tokenizer.encode(part) for part in text.split(MASK))
    return first + [piece for part in others for piece in (vocab.mask_id, *part)]
