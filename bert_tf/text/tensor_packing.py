"""Packs tokens inside the TensorFlow graph: `packing.py` for ragged tensors.

token ids of texts, ragged int32 [B, (tokens)] -> truncated -> [CLS] a [SEP] b [SEP]
  -> input_word_ids, input_mask, input_type_ids, int32 [B, T], T the longest row or a given length

The class token may be the last one instead: see `packing.py`.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.text.packing import num_special_tokens, packs_as_google
from bert_tf.text.tokenization import AnyVocab

MIN_LENGTH = 2  # [CLS] and [SEP]; the length of an empty batch.


def cut(tokens: tf.RaggedTensor, lengths: tf.Tensor, keep_tail: bool = False) -> tf.RaggedTensor:
    """Returns the first tokens of each text, or the last: as many as `lengths` int64 [B] says."""
    # [B]: the index of the first token that is kept, in its text and then in the flat tokens.
    firsts = tokens.row_lengths() - lengths if keep_tail else tf.zeros_like(lengths)
    starts = tokens.row_splits[:-1] + firsts
    return tf.gather(tokens.values, tf.ragged.range(starts, starts + lengths))


def _num_special(vocab: AnyVocab, second: tf.Tensor, as_tokenizers: bool = False) -> tf.Tensor:
    """Returns the number of special tokens of pairs, int64 [B], by lengths of the second texts."""
    pair = tf.constant(num_special_tokens(True, vocab.num_separators), tf.int64)
    is_pair = (second > 0) | (as_tokenizers or not packs_as_google(vocab))
    return tf.where(is_pair, pair, num_special_tokens(False))


def longest_first_lengths(
    vocab: AnyVocab,
    first: tf.Tensor,
    second: tf.Tensor,
    max_seq_length: int,
    as_tokenizers: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the truncated lengths of pairs, each int64 [B]; see `truncate_longest_first`.

    Args:
      first, second: int64 [B], lengths of the first and second texts.
      max_seq_length: the most tokens of the sequence.
      as_tokenizers: whether to truncate like `pack_pair` instead of `pack`.
    """
    room = max_seq_length - _num_special(vocab, second, as_tokenizers)
    half = -(-room // 2)
    if as_tokenizers or not packs_as_google(vocab):
        half = tf.where(first <= second, room // 2, half)
    # The first text keeps half of the room, and all that the second leaves.
    kept = tf.minimum(first, tf.maximum(half, room - second))
    return kept, tf.minimum(second, room - kept)


class TextWindows(NamedTuple):
    """Parts of texts or pairs, R of them in all."""

    first: tf.RaggedTensor  # int32 [R, (tokens)]
    second: tf.RaggedTensor | None  # of pairs
    owners: tf.Tensor  # int64 [R], ascending: the text or pair of each part


def cut_windows(
    vocab: AnyVocab,
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    max_seq_length: int,
) -> TextWindows:
    """Cuts texts, or the longer of two, into windows that overlap by half, as `pack_windows` does.

    Args:
      first: tokens of the first texts, int32 [B, (tokens)].
      second: tokens of the second texts; None for single texts.
      max_seq_length: maximum number of tokens of a row, special tokens included.
    """
    lengths = first.row_lengths()  # [B]
    if second is None:
        other_lengths = tf.zeros_like(lengths)
        room = max_seq_length - num_special_tokens(False) + other_lengths
    else:
        other_lengths = second.row_lengths()
        room = max_seq_length - _num_special(vocab, other_lengths)
    long = tf.maximum(lengths, other_lengths)
    short = tf.minimum(tf.minimum(lengths, other_lengths), room // 2)
    size = room - short
    half = (size + 1) // 2
    step = tf.maximum(tf.constant(1, tf.int64), half)
    # [B], the number of windows of each text: the length of the range in `pack_windows`.
    counts = -(-tf.maximum(tf.constant(1, tf.int64), long - size + half) // step)
    owners = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)  # [R]
    # [R] each, from here on: the windows of all texts, one after the other.
    starts = tf.ragged.range(counts).values * tf.gather(step, owners)
    sizes = tf.minimum(tf.gather(size, owners), tf.gather(long, owners) - starts)
    # Every window has the start of the shorter text; only the longer one is cut into parts.
    is_first_longer = tf.gather(lengths >= other_lengths, owners)
    nothing = tf.zeros_like(starts)
    shorts = tf.gather(short, owners)

    def part(tokens: tf.RaggedTensor, is_longer: tf.Tensor) -> tf.RaggedTensor:
        begin = tf.where(is_longer, starts, nothing) + tf.gather(tokens.row_starts(), owners)
        end = begin + tf.where(is_longer, sizes, shorts)
        return tf.gather(tokens.values, tf.ragged.range(begin, end))

    seconds = None if second is None else part(second, ~is_first_longer)
    return TextWindows(part(first, is_first_longer), seconds, owners)


def pack_rows(
    vocab: AnyVocab,
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None = None,
    length: int | None = None,
    as_tokenizers: bool = False,
) -> dict[str, tf.Tensor]:
    """Packs texts that are truncated already.

    Args:
      first: token ids of the first texts, [B, (tokens)].
      second: token ids of the second texts; of an empty one see `packs_as_google`.
      length: T; None for the longest row of the batch.
      as_tokenizers: whether to pack pairs like `pack_pair`.

    Returns:
      The encoder's inputs, padded: int32 [B, T].
    """
    ones = tf.ones([first.nrows(), 1], tf.int32)  # [B, 1]
    cls = ones * vocab.cls_id
    sep = ones * vocab.sep_id
    start = [] if vocab.class_at_end else [cls]
    parts = [tf.concat([*start, first, sep], axis=1)]
    if second is not None:
        keeps_empty = as_tokenizers or not packs_as_google(vocab)
        has_second = tf.cast((second.row_lengths() > 0) | keeps_empty, tf.int64)
        # [B, (0 or 1)]: a text that is ignored gets no separator.
        last = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(has_second)], vocab.sep_id), has_second, validate=False
        )
        between = vocab.num_separators - 1
        if between:
            counts = has_second * between
            more = tf.fill([tf.reduce_sum(counts)], vocab.sep_id)
            parts.append(tf.RaggedTensor.from_row_lengths(more, counts, validate=False))
        parts.append(tf.concat([second, last], axis=1))
    if vocab.class_at_end:
        parts.append(cls)
    ids = tf.concat(parts, axis=1)
    lengths = ids.row_lengths()  # [B]
    width = tf.reduce_max(tf.concat([lengths, [MIN_LENGTH]], 0)) if length is None else length
    positions = tf.range(width, dtype=tf.int64)[tf.newaxis, :]  # [1, T]
    is_token = positions < lengths[:, tf.newaxis]  # [B, T]
    # parts[0] ends with the first separator; all that follows is of the second type.
    is_second = is_token & (positions >= parts[0].row_lengths()[:, tf.newaxis])
    if not vocab.second_type:
        is_second = tf.zeros_like(is_token)
    type_ids = tf.cast(is_second, tf.int32)
    if vocab.class_at_end:
        is_class = positions == lengths[:, tf.newaxis] - 1
        type_ids = tf.where(is_class, vocab.class_type, type_ids)
    shape = tf.stack([tf.constant(-1, tf.int64), width]) if length is None else [None, length]
    return {
        "input_word_ids": tf.ensure_shape(
            ids.to_tensor(vocab.pad_id or None, shape=shape), [None, length]
        ),
        "input_mask": tf.cast(is_token, tf.int32),
        "input_type_ids": type_ids,
    }
