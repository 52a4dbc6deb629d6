"""The kinds of vocabularies; only this module of the package distinguishes them.

kind               file            first token of a word    special tokens written in a text
wordpiece          vocab.txt       has no ## prefix         are ordinary words: "[", "mask", "]"
                                                            (or special tokens: `WordPieceOptions`)
byte_bpe           tokenizer.json  starts with the space    are special tokens: <mask>
unigram            tokenizer.json  starts with the space    are special tokens: <mask>
sentencepiece_bpe  tokenizer.json  starts with the space    are special tokens: <mask>
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from bert_tf.config import ModelConfig
from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.byte_level import BYTE_OF_CHARACTER
from bert_tf.text.sentencepiece_vocab import SPACE_SYMBOL, SentencePieceVocab
from bert_tf.text.tokenization import AnyVocab, Tokenizer, read_vocab
from bert_tf.text.vocab import MASK, Vocab
from bert_tf.text.wordpiece_options import DEFAULT_OPTIONS, WordPieceOptions

WORDPIECE = "wordpiece"
BYTE_BPE = "byte_bpe"
UNIGRAM = "unigram"
SENTENCEPIECE_BPE = "sentencepiece_bpe"
TOKENIZER_TITLES = {
    WORDPIECE: "WordPiece",
    BYTE_BPE: "byte-level BPE",
    UNIGRAM: "SentencePiece Unigram",
    SENTENCEPIECE_BPE: "SentencePiece BPE with bytes",
}
OPTIONS = "wordpiece_options"  # the key of `to_config`
# The first that exists is read; folders of Hugging Face may have several.
VOCABULARY_FILES = ("vocab.txt", "tokenizer.json", "vocab.json")


def kind_of(vocab: AnyVocab) -> str:
    """Returns the kind of a vocabulary, as `ModelConfig.tokenizer` names it."""
    if isinstance(vocab, Vocab):
        return WORDPIECE
    if isinstance(vocab, BpeVocab):
        return BYTE_BPE
    return UNIGRAM if vocab.is_unigram else SENTENCEPIECE_BPE


def content_of(vocab: AnyVocab) -> str:
    """Returns the text to hash for a vocabulary: the lines of vocab.txt, or all fields as JSON."""
    if isinstance(vocab, Vocab) and vocab.options == DEFAULT_OPTIONS:
        return "\n".join(vocab.tokens)
    return json.dumps(to_config(vocab), sort_keys=True)


def to_config(vocab: AnyVocab) -> Any:
    """Returns a vocabulary for JSON: a dict of fields, or a list of tokens.

    It is the list for WordPiece with default options.
    """
    if isinstance(vocab, Vocab):
        if vocab.options == DEFAULT_OPTIONS:
            return list(vocab.tokens)
        return {"tokens": list(vocab.tokens), OPTIONS: vocab.options.to_config()}
    fields = dataclasses.asdict(vocab)
    fields["added_tokens"] = [token.to_config() for token in vocab.added_tokens]
    if not vocab.class_at_end:
        # They have no effect then.
        fields.pop("class_at_end", None)
        fields.pop("class_type", None)
    return fields


def vocab_from_config(config: list[str] | dict[str, Any]) -> AnyVocab:
    """Makes a vocabulary from the result of `to_config`."""
    if isinstance(config, list):
        return Vocab(tuple(config))
    if OPTIONS in config:
        options = WordPieceOptions.from_config(config[OPTIONS], "the vocabulary's options")
        return Vocab(tuple(config["tokens"]), options)
    added = tuple(AddedToken(**token) for token in config["added_tokens"])
    kind = SentencePieceVocab if "scores" in config else BpeVocab
    return kind(**{**config, "added_tokens": added})


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


def with_vocabulary(config: ModelConfig, vocab: AnyVocab) -> ModelConfig:
    """Returns the configuration with the fields that the vocabulary determines, except its size.

    Only WordPiece lower-cases by the configuration; otherwise `do_lower_case` is False.
    """
    kind = kind_of(vocab)
    lower = config.do_lower_case and kind == WORDPIECE
    return dataclasses.replace(
        config, tokenizer=kind, pad_token_id=vocab.pad_id, do_lower_case=lower
    )


def check_kind(vocab: AnyVocab, given: dict[str, Any], source: str | os.PathLike) -> None:
    """Raises ValueError if a vocabulary is not of the kind that the user gave.

    Args:
      vocab: the vocabulary of `source`.
      given: the fields of the model's configuration that the user gave.
      source: the vocabulary's file.
    """
    kind = kind_of(vocab)
    if given.get("tokenizer", kind) != kind:
        raise ValueError(
            f"{source} is a {kind} vocabulary, but --tokenizer={given['tokenizer']}: leave the "
            "flag out, or give another --vocab_file."
        )


def with_trimmed_offsets(vocab: AnyVocab) -> AnyVocab:
    """Returns the vocabulary with `trim_offsets`: offsets exclude the space before a token."""
    if isinstance(vocab, Vocab) or vocab.trim_offsets:
        return vocab
    return dataclasses.replace(vocab, trim_offsets=True)


def token_texts(vocab: AnyVocab) -> tuple[str, ...]:
    """Returns the tokens as readable text.

    The first token of a word starts with a space, except in WordPiece. Bytes of byte-level BPE are
    decoded, where a part of a character is U+FFFD.
    """
    if isinstance(vocab, Vocab):
        return vocab.tokens
    if isinstance(vocab, SentencePieceVocab):
        return tuple(token.replace(SPACE_SYMBOL, " ") for token in vocab.tokens)
    added = {token.content for token in vocab.added_tokens}
    texts = []
    for token in vocab.tokens:
        texts.append(token if token in added else _decode(token))
    return tuple(texts)


def _decode(token: str) -> str:
    """Returns the text of a byte-level BPE token."""
    return bytes(map(BYTE_OF_CHARACTER.__getitem__, token)).decode("utf8", errors="replace")


def space_before_sentences(vocab: AnyVocab) -> str:
    """Returns the separator between the sentences of a document.

    In BPE the space between two sentences belongs to the first token of the second. Unigram puts a
    space before every text.
    """
    return " " if kind_of(vocab) in (BYTE_BPE, SENTENCEPIECE_BPE) else ""


def encode_sentences(tokenizer: Tokenizer, sentences: Iterable[str]) -> Iterator[list[int]]:
    """Yields the token ids of each sentence of a document; see `space_before_sentences`."""
    space = space_before_sentences(tokenizer.vocab)
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
    if not isinstance(vocab, Vocab):
        return tokenizer.encode(text.replace(MASK, vocab.tokens[vocab.mask_id]))
    # WordPiece would read a written [MASK] as three words.
    first, *others = text.split(MASK)
    token_ids = tokenizer.encode(first)
    for part in others:
        token_ids.append(vocab.mask_id)
        token_ids.extend(tokenizer.encode(part))
    return token_ids
