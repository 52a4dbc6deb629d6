"""Changes a checkpoint's tables: resizes positions, extends or replaces the vocabulary.

Each function describes how new rows are initialized. The MLM head's bias also has one row per token
and changes with the word table.
"""

import dataclasses
import re

import numpy as np
from absl import logging

from bert_tf.checkpoints.casing import check_casing
from bert_tf.checkpoints.checkpoint import Checkpoint, Weights
from bert_tf.checkpoints.found_tokenizer import FoundTokenizer, fill_up
from bert_tf.system.files import read_lines
from bert_tf.text.tokenization import AnyVocab, read_vocab
from bert_tf.text.vocab import CONTINUATION_PREFIX, WORDPIECE
from bert_tf.text.wordpiece import WordPiece, split_words

POSITIONS = "bert/embeddings/position_embeddings"
WORD_TABLES = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")
UNUSED = re.compile(r"\[unused\d+\]")


def adapt(
    checkpoint: Checkpoint,
    max_position_embeddings: int = 0,
    vocab_file: str = "",
    added_words_file: str = "",
) -> Checkpoint:
    """Returns the checkpoint with changed tables; arguments that are 0 or empty change nothing.

    Args:
      max_position_embeddings: rows of the position table.
      vocab_file: the new vocabulary; it is added if the checkpoint has none.
      added_words_file: words to add to the vocabulary, one per line.

    Raises:
      ValueError: if a vocabulary is missing or does not fit.
    """
    if vocab_file:
        vocab = read_vocab(vocab_file)
        known = checkpoint.vocab is not None
        change = exchange_vocabulary if known else attach_vocabulary
        checkpoint = change(checkpoint, vocab)
    if added_words_file:
        checkpoint = add_words(checkpoint, read_words(checkpoint, added_words_file))
    if max_position_embeddings:
        checkpoint = resize_positions(checkpoint, max_position_embeddings)
    return checkpoint


def resize_positions(checkpoint: Checkpoint, rows: int) -> Checkpoint:
    """Truncates the position table, or extends it by repeating it from its start.

    Repeated rows encode the distances to their neighbours (Beltagy et al. 2020,
    Longformer, section 5); random ones would encode nothing.
    """
    table = checkpoint.weights.get(POSITIONS)
    first = checkpoint.config.position_offset
    if rows == checkpoint.config.max_position_embeddings:
        return checkpoint
    config = dataclasses.replace(checkpoint.config, max_position_embeddings=rows)
    if table is None:
        return dataclasses.replace(checkpoint, config=config)
    logging.info("Position table: %d rows, were %d.", rows, len(table))
    sources = np.arange(rows)
    if rows > len(table):
        # Rows before the first position are not repeated.
        sources[first:] = first + np.arange(rows - first) % (len(table) - first)
    weights = {**checkpoint.weights, POSITIONS: table[sources]}
    return dataclasses.replace(checkpoint, weights=weights, config=config)


def keep_layers(checkpoint: Checkpoint, layers: str) -> Checkpoint:
    """Drops all layers but some, in their order (Sanh et al. 2019, DistilBERT, section 3).

    `layers` are comma-separated numbers from 0.

    Raises:
      ValueError: if they are not ascending numbers of layers, or a layer cannot be moved.
    """
    config = checkpoint.config
    source = checkpoint.source
    count = config.num_hidden_layers
    if config.num_layer_groups:
        raise ValueError(
            f"--keep_layers={layers}: layers of {source} share their weights; leave it out, or "
            "start from a model whose layers have separate weights."
        )
    # -1 for anything but a number; the check below refuses it.
    kept = [int(part) if part.strip().isdecimal() else -1 for part in layers.split(",")]
    if kept != sorted(set(kept)) or not 0 <= kept[0] <= kept[-1] < count:
        raise ValueError(
            f"--keep_layers={layers}: expected ascending numbers from 0 to {count - 1}, the layers "
            f"of {source}."
        )
    # A layer must keep the kind of attention that it was trained with.
    moved = [old for new, old in enumerate(kept) if config.is_local(new) != config.is_local(old)]
    # Layer 0 of pre-norm blocks has no LayerNorm before its attention; all others have one.
    if moved or (config.block_type == "pre_norm" and kept[0]):
        raise ValueError(
            f"--keep_layers={layers}: in {source} layer {[*moved, kept[0]][0]} is built "
            "differently from a layer at its new position; keep layer 0 first, and local attention "
            "where it is."
        )
    weights: Weights = {}
    for name, weight in checkpoint.weights.items():
        found = re.match(r"bert/encoder/layer_(\d+)/", name)
        if found and int(found[1]) in kept:
            name = f"bert/encoder/layer_{kept.index(int(found[1]))}/{name[found.end() :]}"
        elif found:
            continue
        weights[name] = weight
    logging.info("Layers %s of %d are kept.", ", ".join(map(str, kept)), count)
    config = dataclasses.replace(config, num_hidden_layers=len(kept))
    return dataclasses.replace(checkpoint, config=config, weights=weights)


def attach_vocabulary(checkpoint: Checkpoint, vocab: AnyVocab) -> Checkpoint:
    """Adds a vocabulary, which determines the casing, to a checkpoint without one.

    Raises:
      ValueError: if it is longer than the word table, or contradicts the casing.
    """
    vocab, notes = fill_up(vocab, checkpoint.config.vocab_size, checkpoint.source)
    lower = check_casing(vocab, checkpoint.stated_casing, "the given vocabulary")
    tokenizer = FoundTokenizer(vocab, lower, checkpoint.stated_casing)
    config = tokenizer.applied_to(checkpoint.config, checkpoint.source)
    notes = (*checkpoint.notes, *notes)
    return dataclasses.replace(checkpoint, vocab=vocab, config=config, notes=notes)


def state_casing(checkpoint: Checkpoint, do_lower_case: bool) -> Checkpoint:
    """Sets the casing that the user gives; ValueError if the vocabulary contradicts it."""
    if checkpoint.vocab is not None:
        check_casing(checkpoint.vocab, do_lower_case, checkpoint.source)
    config = dataclasses.replace(checkpoint.config, do_lower_case=do_lower_case)
    return dataclasses.replace(checkpoint, config=config, stated_casing=do_lower_case)


def exchange_vocabulary(checkpoint: Checkpoint, vocab: AnyVocab) -> Checkpoint:
    """Replaces the vocabulary of a checkpoint and reorders the rows of its tables.

    A new token starts from the mean of the rows of the old tokens that spelled it, or from the mean
    of all rows if it was [UNK]. Only a WordPiece vocabulary of the same casing can be replaced.
    """
    old = checkpoint.vocab
    if old is None:
        raise ValueError(f"{checkpoint.source} has no vocabulary to replace; give --vocab_file.")
    if vocab == old:
        return checkpoint
    if vocab.kind != WORDPIECE or old.kind != WORDPIECE:
        raise ValueError(
            f"{checkpoint.source}: its vocabulary differs from the given one, but only a WordPiece "
            f"vocabulary can be replaced by another; leave --vocab_file and --added_words_file out."
        )
    check_casing(vocab, checkpoint.config.do_lower_case, "the new vocabulary")
    tokenizer = WordPiece(old, checkpoint.config.do_lower_case)
    # The old rows of each token: its own, or those of the tokens that spelled it.
    sources = []
    for token in vocab.tokens:
        sources.append([old.ids[token]] if token in old.ids else tokens_of(token, tokenizer))
    num_new = sum(token not in old.ids for token in vocab.tokens)
    logging.info("Vocabulary: %d tokens, were %d; %d are new.", len(vocab), len(old), num_new)
    config = checkpoint.config
    config = dataclasses.replace(config, vocab_size=len(vocab), pad_token_id=vocab.pad_id)
    weights = {**checkpoint.weights, **_mean_rows(checkpoint.weights, sources)}
    return dataclasses.replace(checkpoint, vocab=vocab, config=config, weights=weights)


def tokens_of(token: str, tokenizer: WordPiece) -> list[int]:
    """Returns the ids of the tokens that spell a new token; [] if that needs [UNK]."""
    ids = tokenizer.encode_uncached(token.removeprefix(CONTINUATION_PREFIX))
    if tokenizer.vocab.unk_id in ids:
        return []
    return ids


def _mean_rows(weights: Weights, sources: list[list[int]]) -> Weights:
    """Returns the word tables with the mean of each list's rows; of all rows for an empty list."""
    tables = {}
    for name in WORD_TABLES:
        if name in weights:
            table = weights[name]
            rows = np.empty((len(sources), *table.shape[1:]), np.float32)
            rows[:] = table.mean(axis=0)
            for index, source in enumerate(sources):
                if source:
                    # float64: the mean of one row is that row, to the bit.
                    rows[index] = table[source].mean(axis=0, dtype=np.float64)
            tables[name] = rows
    return tables


def read_words(checkpoint: Checkpoint, path: str) -> list[str]:
    """Reads words to add, one per line; skips blank lines and words that exist already.

    A word that could never be a token of a text is an error with file and line.
    """
    if checkpoint.vocab is None or checkpoint.vocab.kind != WORDPIECE:
        kind = "no vocabulary" if checkpoint.vocab is None else "no WordPiece vocabulary"
        raise ValueError(f"{checkpoint.source} has {kind} to add to; give --vocab_file.")
    lower = checkpoint.config.do_lower_case
    options = checkpoint.vocab.options
    words: dict[str, None] = {}
    known = 0
    for number, line in enumerate(read_lines(path), start=1):
        word = line.strip()
        prefix = CONTINUATION_PREFIX if word.startswith(CONTINUATION_PREFIX) else ""
        parts = split_words(word.removeprefix(prefix), lower, options)
        if not word:
            continue
        if len(parts) != 1 or len(parts[0]) > options.max_word_characters:
            raise ValueError(
                f"{path}, line {number}: {word!r} is not one word to the tokenizer but "
                f"{parts[:5]}; give one word per line."
            )
        # As the tokenizer reads it: in lower case if the model is uncased.
        word = prefix + parts[0]
        if word in checkpoint.vocab.ids or word in words:
            known += 1
        else:
            words[word] = None
    logging.info("%s: %d new words, %d known.", path, len(words), known)
    return list(words)


def add_words(checkpoint: Checkpoint, words: list[str]) -> Checkpoint:
    """Adds words: first in the [unused] rows, then in new rows at the end.

    Every added word starts from the mean of the rows of its old tokens, even in an [unused] row,
    because [unused] rows are not trained.
    """
    old = checkpoint.vocab
    if old is None:
        raise ValueError(f"{checkpoint.source} has no vocabulary to add to; give --vocab_file.")
    tokens = list(old.tokens)
    # BERT's vocabulary has 994 [unused] tokens: words there do not change the shapes.
    free = [index for index, token in enumerate(tokens) if UNUSED.fullmatch(token)]
    for index, word in zip(free, words, strict=False):
        tokens[index] = word
    vocab = dataclasses.replace(old, tokens=(*tokens, *words[len(free) :]))
    return exchange_vocabulary(checkpoint, vocab)
