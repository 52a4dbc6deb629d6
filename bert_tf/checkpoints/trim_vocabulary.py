"""Removes the tokens of a vocabulary that given texts do not need, and their rows.

A kept token keeps its row, so the outputs for these texts do not change. Every kind of vocabulary
has one function, which returns the tokens to keep; `TRIMMED` lists them by the vocabulary's class.

    kind        kept for the texts                      kept for other texts
    WordPiece   tokens; those before a failed match     the characters of the texts, and ASCII
    byte BPE    tokens; the merges that make them       all bytes
    Unigram     tokens; the least probable one          the characters of the texts, and ASCII
    BPE         tokens; the merges that make them       all bytes, as <0x00>

Reference: Abdaoui et al. 2020, Load What You Need: Smaller Versions of Multilingual BERT.
"""

import dataclasses
import re
import string
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from absl import logging

from bert_tf.checkpoints.adapt import WORD_TABLES
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.byte_bpe import ByteBpe
from bert_tf.text.byte_level import BYTE_CHARACTERS
from bert_tf.text.sentencepiece import SentencePiece
from bert_tf.text.sentencepiece_vocab import SentencePieceVocab
from bert_tf.text.tokenization import AnyVocab, Tokenizer, make_tokenizer
from bert_tf.text.vocab import CONTINUATION_PREFIX, Vocab
from bert_tf.text.wordpiece import WordPiece, split_words

_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
ReadTexts = Callable[[], Iterable[str]]


def trim_vocabulary(checkpoint: Checkpoint, read_texts: ReadTexts) -> Checkpoint:
    """Returns the checkpoint with only the tokens that the texts need, in their order.

    Special and added tokens are kept. The numbers of tokens and parameters before and after are
    logged. `read_texts` is called twice.

    Raises:
      ValueError: if there is no text or no known vocabulary, or a text would have other tokens.
    """
    vocab = checkpoint.vocab
    source = checkpoint.source
    if vocab is None:
        raise ValueError(f"{source} has no vocabulary to trim; give --vocab_file.")
    if type(vocab) not in TRIMMED:
        kinds = ", ".join(kind.__name__ for kind in TRIMMED)
        raise ValueError(f"{source}: its vocabulary is a {type(vocab).__name__}, not {kinds}.")
    lower = checkpoint.config.do_lower_case
    tokenizer = make_tokenizer(vocab, lower)
    trimmed = TRIMMED[type(vocab)](tokenizer, read_texts())
    # A second pass over the texts proves the claim instead of trusting the rules.
    _check_same_tokens(tokenizer, make_tokenizer(trimmed, lower), read_texts())
    result = keep_tokens(checkpoint, trimmed)
    logging.info(
        "Trimmed vocabulary: %d tokens, were %d; %s parameters, were %s.",
        len(trimmed),
        len(vocab),
        f"{count_parameters(result):,}",
        f"{count_parameters(checkpoint):,}",
    )
    return result


def keep_tokens(checkpoint: Checkpoint, vocab: AnyVocab) -> Checkpoint:
    """Returns the checkpoint with a part of its vocabulary, and the rows of these tokens."""
    if checkpoint.vocab is None:
        raise ValueError(f"{checkpoint.source} has no vocabulary.")
    rows = [checkpoint.vocab.ids[token] for token in vocab.tokens]
    weights = dict(checkpoint.weights)
    for name in WORD_TABLES:
        if name in weights:
            weights[name] = weights[name][rows]
    config = dataclasses.replace(
        checkpoint.config,
        vocab_size=len(vocab),
        pad_token_id=vocab.pad_id,
    )
    return dataclasses.replace(checkpoint, vocab=vocab, weights=weights, config=config)


def count_parameters(checkpoint: Checkpoint) -> int:
    """Returns the number of values in all weights."""
    return sum(weight.size for weight in checkpoint.weights.values())


def forms_of(text: str) -> Iterator[str]:
    """Yields a text as programs may pass it to the tokenizer: some strip it."""
    yield text
    stripped = text.strip()
    if stripped != text:
        yield stripped


# Kinds of vocabularies ------------------------------------------------------------------------


def trim_wordpiece(tokenizer: WordPiece, texts: Iterable[str]) -> Vocab:
    """Returns the tokens of the texts, and the characters of their words.

    With the single characters, most words of other texts are spelled instead of [UNK].
    """
    vocab = tokenizer.vocab
    lower = tokenizer.do_lower_case
    options = vocab.options
    # Ids and not tokens: sorted ids keep the order of the rows.
    kept = set(vocab.special_ids)
    kept.update(vocab.ids[token.content] for token in options.added_tokens)
    words: set[str] = set()
    for text in texts:
        words.update(split_words(text, lower, options))
    _check_not_empty(words)
    for word in words:
        kept.update(_word_tokens(tokenizer, word))
    characters = spelling_characters("".join(words), not lower)
    for char in characters:
        for token in (char, CONTINUATION_PREFIX + char):
            if token in vocab.ids:
                kept.add(vocab.ids[token])
    tokens = tuple(vocab.tokens[index] for index in sorted(kept))
    return dataclasses.replace(vocab, tokens=tokens)


def _word_tokens(tokenizer: WordPiece, word: str) -> list[int]:
    """Returns the tokens of a word; of an unknown word, the tokens before the failed match.

    Without the latter a shorter match could succeed, and the word would no longer be [UNK].
    """
    unk_id = tokenizer.vocab.unk_id
    if len(word) > tokenizer.vocab.options.max_word_characters:  # [UNK] with any vocabulary.
        return []
    for end in range(len(word), 0, -1):
        ids = tokenizer.encode_uncached(word[:end])
        if unk_id not in ids:
            return ids
    return []


def spelling_characters(text: str, has_case: bool = True) -> set[str]:
    """Returns the characters of a text and of ASCII, with their capitals if there is case."""
    characters = {*text, *string.digits, *string.punctuation, *string.ascii_lowercase}
    if has_case:
        # A word may also begin a sentence, or be in a heading.
        characters.update(list(map(str.upper, characters)))
        characters.update(list(map(str.lower, characters)))
    return characters


def trim_byte_bpe(tokenizer: ByteBpe, texts: Iterable[str]) -> BpeVocab:
    """Returns the tokens of the texts with the merges that make them, and all bytes."""
    vocab = tokenizer.vocab
    used = _used_tokens(tokenizer, texts)
    tokens, merges = _with_merges(vocab, used | (vocab.ids.keys() & {*BYTE_CHARACTERS}))
    return dataclasses.replace(vocab, tokens=tokens, merges=merges)


def trim_sentencepiece(tokenizer: SentencePiece, texts: Iterable[str]) -> SentencePieceVocab:
    """Returns the tokens of the texts, and those that spell others.

    With BPE the bytes spell them. With Unigram the least probable token is kept as well: the score
    of an unknown character is relative to it.
    """
    vocab = tokenizer.vocab
    used = _used_tokens(tokenizer, texts)
    if not vocab.is_unigram:
        used.update(filter(_BYTE_TOKEN.fullmatch, vocab.tokens))
        tokens, merges = _with_merges(vocab, used)
        return dataclasses.replace(vocab, tokens=tokens, merges=merges)
    # The characters of tokens and not of texts, because tokens are normalized.
    used.update(spelling_characters("".join(used)))
    used.add(vocab.tokens[vocab.scores.index(min(vocab.scores))])
    kept = [index for index, token in enumerate(vocab.tokens) if token in used]
    return dataclasses.replace(
        vocab,
        tokens=tuple(vocab.tokens[index] for index in kept),
        scores=tuple(vocab.scores[index] for index in kept if index < len(vocab.scores)),
    )


def _used_tokens(tokenizer: ByteBpe | SentencePiece, texts: Iterable[str]) -> set[str]:
    """Returns the tokens of the texts, the special tokens and the added tokens."""
    vocab = tokenizer.vocab
    ids: set[int] = set()
    for text in texts:
        for form in forms_of(text):
            ids.update(tokenizer.encode(form))
            # As a word of a sentence, with a space before it.
            ids.update(tokenizer.encode_word(form))
    _check_not_empty(ids)
    special = {vocab.cls, vocab.sep, vocab.pad, vocab.unk, vocab.mask}
    added = {token.content for token in vocab.added_tokens}
    return {vocab.tokens[index] for index in ids} | special | added


def _with_merges(
    vocab: BpeVocab | SentencePieceVocab, used: set[str]
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Returns the tokens that are used or merged on the way to them, and these merges."""
    added = {token.content for token in vocab.added_tokens}
    ranks = {pair: rank for rank, pair in enumerate(vocab.merges)}
    kept = set(used)
    needed: set[tuple[str, str]] = set()
    for token in used - added:
        needed.update(_merges_of(token, ranks))
    for left, right in needed:
        kept.update((left, right, left + right))
    tokens = tuple(token for token in vocab.tokens if token in kept)
    return tokens, tuple(pair for pair in vocab.merges if pair in needed)


def _merges_of(token: str, ranks: dict[tuple[str, str], int]) -> Iterator[tuple[str, str]]:
    """Yields the merges that make a token from its bytes or characters, in their order.

    They are the same inside of a longer word: no merge reached across the ends of the token.
    """
    parts = list(token)
    while len(parts) > 1:
        pairs = list(zip(parts, parts[1:], strict=False))
        known = [pair for pair in pairs if pair in ranks]
        if not known:
            return
        pair = min(known, key=ranks.__getitem__)
        yield pair
        # The leftmost one, as in encoding.
        first = pairs.index(pair)
        parts[first : first + 2] = ["".join(pair)]


# By the class of a vocabulary: takes its tokenizer and the texts, returns the trimmed vocabulary.
TRIMMED: dict[type, Callable[[Any, Iterable[str]], AnyVocab]] = {
    Vocab: trim_wordpiece,
    BpeVocab: trim_byte_bpe,
    SentencePieceVocab: trim_sentencepiece,
}


def _check_not_empty(found: set[str] | set[int]) -> None:
    if not found:
        raise ValueError(
            "The texts to trim the vocabulary for have no word; give files with texts."
        )


def _check_same_tokens(before: Tokenizer, after: Tokenizer, texts: Iterable[str]) -> None:
    """Raises ValueError if a text has other tokens than before."""
    for text in texts:
        for form in forms_of(text):
            old = _all_tokens(before, form)
            new = _all_tokens(after, form)
            if old != new:
                raise ValueError(
                    f"With the trimmed vocabulary the tokens of {text[:200]!r} would be "
                    f"{new[:20]}, not {old[:20]}; leave this text out, or keep the vocabulary."
                )


def _all_tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    """Returns the tokens of a text, then those of the text as a word of a sentence."""
    ids = tokenizer.encode(text) + tokenizer.encode_word(text)
    return [tokenizer.vocab.tokens[index] for index in ids]
