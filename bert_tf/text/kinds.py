"""Finds, reads and compares vocabularies of any kind; `BaseVocab` lists the kinds."""

import dataclasses
import os
import pathlib
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.sentencepiece_vocab import SentencePieceVocab
from bert_tf.text.tokenization import AnyVocab, Tokenizer, read_vocab
from bert_tf.text.vocab import MASK, OPTIONS, WORDPIECE, Vocab
from bert_tf.text.wordpiece_options import WordPieceOptions

if typing.TYPE_CHECKING:
    from bert_tf.config import ModelConfig

# The first that exists is read; folders of Hugging Face may have several.
VOCABULARY_FILES = ("vocab.txt", "tokenizer.json", "vocab.json")


def vocab_from_config(config: list[str] | dict[str, Any]) -> AnyVocab:
    """Makes a vocabulary from the result of `BaseVocab.to_config`."""
    if isinstance(config, list):
        return Vocab(tuple(config))
    if OPTIONS in config:
        options = WordPieceOptions.from_config(config[OPTIONS], "the vocabulary's options")
        return Vocab(tuple(config["tokens"]), options)
    added = tuple(AddedToken(**token) for token in config["added_tokens"])
    kind = SentencePieceVocab if "scores" in config else BpeVocab
    return kind(**{**config, "added_tokens": added})


def find_added_tokens(vocab: AnyVocab) -> tuple[AddedToken, ...]:
    """Returns the tokens that are cut out of a text before it is split into words."""
    return vocab.options.added_tokens if isinstance(vocab, Vocab) else vocab.added_tokens


def with_special_token(vocab: AnyVocab, content: str) -> AnyVocab:
    """Returns a vocabulary that finds one of its tokens in texts as typed, before normalization."""
    kept = [token for token in find_added_tokens(vocab) if token.content != content]
    return with_rules(vocab, added_tokens=(*kept, AddedToken(content)))


def with_rules(vocab: AnyVocab, **rules: Any) -> AnyVocab:
    """Returns a vocabulary that splits or packs texts otherwise, by fields of its rules."""
    if not isinstance(vocab, Vocab):
        return dataclasses.replace(vocab, **rules)
    return dataclasses.replace(vocab, options=dataclasses.replace(vocab.options, **rules))


def find_vocabulary(folder: str | os.PathLike) -> pathlib.Path | None:
    """Returns the vocabulary file in a folder, or None."""
    for name in VOCABULARY_FILES:
        path = pathlib.Path(folder, name)
        if path.is_file():
            return path
    return None


def read_vocabulary_in(folder: str | os.PathLike) -> AnyVocab:
    """Reads the vocabulary file in a folder.

    Raises:
      ValueError: if there is no vocabulary, or it is corrupt.
    """
    path = find_vocabulary(folder)
    if path is None:
        raise ValueError(f"{folder} has no {' and no '.join(VOCABULARY_FILES)}.")
    return read_vocab(path)


def with_vocabulary(config: "ModelConfig", vocab: AnyVocab) -> "ModelConfig":
    """Returns the configuration with the fields that the vocabulary determines, except its size.

    Only WordPiece lower-cases by the configuration; otherwise `do_lower_case` is False.
    """
    lower = config.do_lower_case and vocab.has_casing
    return dataclasses.replace(
        config, tokenizer=vocab.kind, pad_token_id=vocab.pad_id, do_lower_case=lower
    )


def check_kind(vocab: AnyVocab, given: dict[str, Any], source: str | os.PathLike) -> None:
    """Raises ValueError if a vocabulary is not of the kind that the user gave.

    Args:
      given: the fields of the model's configuration that the user gave.
    """
    if given.get("tokenizer", vocab.kind) != vocab.kind:
        raise ValueError(
            f"{source} is a {vocab.kind} vocabulary, but --tokenizer={given['tokenizer']}: leave "
            "the flag out, or give another --vocab_file."
        )


def encode_sentences(tokenizer: Tokenizer, sentences: Iterable[str]) -> Iterator[list[int]]:
    """Yields the token ids of each sentence of a document; see `BaseVocab.sentence_separator`."""
    space = tokenizer.vocab.sentence_separator
    if not space:
        yield from map(tokenizer.encode, sentences)
        return
    for number, sentence in enumerate(sentences):
        yield tokenizer.encode(space + sentence if number else sentence)


def encode_with_masks(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the token ids of a text in which [MASK] is the mask token of any kind.

    Except in WordPiece the name of the vocabulary, for example <mask>, works as well. The mask
    token includes the space before it.
    """
    vocab = tokenizer.vocab
    if vocab.kind != WORDPIECE:
        return tokenizer.encode(text.replace(MASK, vocab.mask))
    # WordPiece would read a written [MASK] as three words.
    first, *others = text.split(MASK)
    token_ids = tokenizer.encode(first)
    for part in others:
        token_ids.append(vocab.mask_id)
        token_ids.extend(tokenizer.encode(part))
    return token_ids
