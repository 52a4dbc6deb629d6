"""Selects spans of words to predict, in the graph, on whole batches.

The words of a sequence are a circle, on which spans and the words between them are laid out in a
random order, and which is then turned by a random angle. So each position is selected as often as
any other. The number of spans is drawn such that their mean length is that of the distribution, and
their lengths are drawn on condition that they add up to the number of words to predict:

    layout   . # # # . . # . # # . . .       N spans, at least one word between two of them
    turned   # . . . . # # # . . # . #       the last span of the layout is cut at the end

Spans that are cut, by the turn or by a special token, are counted as two.

Differs from SpanBERT and ALBERT, which draw a position and a length until enough tokens are
masked. There, spans next to special tokens are rarer, and the last span is cut or skipped.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.corpus.random_bits import random_integers

# Columns of the rounding numbers.
_WORDS, _SPANS, _TURN = range(3)
_RESOLUTION = 1 << 30


class SpanBits(NamedTuple):
    """Random bits, uint64 [B, T] each: of the lengths, the layout, and the numbers of a row."""

    lengths: tf.Tensor
    layout: tf.Tensor
    rounding: tf.Tensor


def select_spans(
    bits: SpanBits,
    candidates: tf.Tensor,
    continues: tf.Tensor,
    counts: tf.Tensor,
    shares: Sequence[float],
    max_predictions: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Selects spans of words; special tokens also end a span.

    Args:
      candidates: bool [B, T], tokens that may be selected.
      continues: bool [B, T], true for tokens that continue a word.
      counts: int32 [B], the largest number of tokens to select.
      shares: probabilities of spans of 1, 2, ... words.
      max_predictions: the largest count.

    Returns:
      Whether each token is selected, bool [B, T], and the number of its span, int32 [B, T].
    """
    trimmed: np.ndarray = np.trim_zeros(np.array(shares), "b")
    before = tf.pad(candidates[:, :-1], [[0, 0], [1, 0]])
    begins_segment = candidates & ~before
    is_word = candidates & (~continues | ~before)
    words = tf.maximum(tf.cumsum(_int(is_word), axis=1) - 1, 0)  # [B, T], the word of each token
    sizes = sum_by_index(_int(candidates), words)  # [B, T], tokens of each word
    num_words = tf.reduce_sum(_int(is_word), axis=1)  # [B]

    wanted, num_spans = _draw_numbers(
        bits.rounding,
        counts,
        num_words,
        tf.reduce_sum(_int(candidates), axis=1),
        tf.reduce_sum(_int(begins_segment), axis=1),
        trimmed,
    )
    lengths = _draw_lengths(bits.lengths, wanted, num_spans, trimmed, max_predictions)
    spans, is_last = _lay_out(bits.layout, lengths, num_words - wanted, num_spans, len(trimmed))
    # Word k of the sequence is the word (k - turn) of the layout.
    indices = tf.range(tf.shape(candidates)[1])[None]
    modulus = tf.maximum(num_words, 1)[:, None]
    drawn = tf.cast(
        _uniform(bits.rounding[:, _TURN, None]) * tf.cast(modulus, tf.float64), tf.int32
    )
    sizes_in_layout = tf.gather(sizes, (indices + drawn) % modulus, batch_dims=1)
    # The last span ends where the count of tokens is reached, which is not known from the words.
    is_planned = ((spans > 0) | is_last) & (indices < num_words[:, None])
    used = tf.cumsum(tf.where(is_planned, sizes_in_layout, 0), axis=1)
    taken = is_planned & (used <= counts[:, None])
    spans = tf.where(is_last, num_spans[:, None], spans)
    slot_of_token = (words - drawn) % modulus
    selected = candidates & tf.gather(taken, slot_of_token, batch_dims=1)
    span_of_token = tf.gather(spans, slot_of_token, batch_dims=1)
    changes = span_of_token != tf.pad(span_of_token[:, :-1], [[0, 0], [1, 0]])
    # A cut span is two spans: the word at the turn is the first of the layout, or a segment's.
    return selected, tf.cumsum(_int(changes | begins_segment), axis=1)


def _draw_numbers(
    bits: tf.Tensor,
    counts: tf.Tensor,
    num_words: tf.Tensor,
    num_tokens: tf.Tensor,
    num_segments: tf.Tensor,
    shares: np.ndarray,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the numbers of words and spans to select, int32 [B] each."""
    mean = float(np.dot(np.arange(1, len(shares) + 1), shares))
    all_words = tf.cast(tf.maximum(num_words, 1), tf.float64)
    share = all_words / tf.cast(tf.maximum(num_tokens, 1), tf.float64)
    exact = tf.cast(counts, tf.float64) * share
    # Rounded at random, so that the mean is exact; 1e-9 for errors of rounding.
    wanted = tf.cast(exact + _uniform(bits[:, _WORDS]) + 1e-9, tf.int32)
    wanted = tf.minimum(tf.maximum(wanted, 1), tf.minimum(num_words, counts))
    # A span is cut where two neighbours on the circle are of different segments: that many more
    # spans result, which the number of spans allows for.
    masked = tf.cast(wanted, tf.float64)
    cuts = tf.minimum(tf.cast(num_segments, tf.float64) / all_words, 0.5)
    spans = (masked / mean - cuts * masked) / (1 - cuts)
    num_spans = tf.cast(tf.maximum(spans, 0) + _uniform(bits[:, _SPANS]) + 1e-9, tf.int32)
    least = -(-wanted // len(shares))
    return wanted, tf.minimum(tf.maximum(num_spans, least), wanted)


def _draw_lengths(
    bits: tf.Tensor,
    wanted: tf.Tensor,
    num_spans: tf.Tensor,
    shares: np.ndarray,
    max_predictions: int,
) -> tf.Tensor:
    """Draws lengths of spans that add up to `wanted`, int32 [B, T]; 0 after the last span."""
    # table[k, s] is the probability that k spans have s words, up to a factor for each k.
    table = np.zeros((max_predictions + 1, max_predictions + 1))
    table[0, 0] = 1
    for number in range(1, max_predictions + 1):
        sums = np.convolve(table[number - 1], np.concatenate([[0.0], shares]))
        table[number] = sums[: max_predictions + 1]
        table[number] /= table[number].max() or 1
    chances = tf.constant(table)
    sizes = tf.range(1, len(shares) + 1)[None]  # [1, L]
    drawn = _uniform(bits)  # [B, T]

    def draw(index: tf.Tensor, left: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.Tensor, ...]:
        spans_after = num_spans - 1 - index
        rest = left[:, None] - sizes  # [B, L], words after a span of each size
        indices = tf.stack(
            [tf.broadcast_to(tf.maximum(spans_after, 0)[:, None], tf.shape(rest)), rest], axis=-1
        )
        indices = tf.maximum(indices, 0)
        weights = tf.where(rest >= 0, shares * tf.gather_nd(chances, indices), 0.0)
        reached = tf.cumsum(weights, axis=1)
        bound = drawn[:, index, None] * reached[:, -1:]
        length = 1 + tf.reduce_sum(_int(reached[:, :-1] <= bound), axis=1)
        length = tf.where(spans_after >= 0, length, 0)
        lengths += length[:, None] * tf.one_hot(index, tf.shape(bits)[1], dtype=tf.int32)
        return index + 1, left - length, lengths

    state = (tf.constant(0), wanted, tf.zeros_like(bits, tf.int32))
    most = tf.reduce_max(num_spans)
    return tf.while_loop(lambda index, *_: index < most, draw, state)[2]


def _lay_out(
    bits: tf.Tensor,
    lengths: tf.Tensor,
    num_between: tf.Tensor,
    num_spans: tf.Tensor,
    longest: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Lays spans out among the words between them.

    Returns:
      The number of each word's span from 1, 0 between spans: int32 [B, T]; and the words to which
      the last span may extend, bool [B, T].
    """
    size = tf.shape(bits)[1]
    indices = tf.range(size)[None]
    # A span follows each of num_spans words between. With fewer words, spans may be neighbours.
    has_room = (num_between >= num_spans)[:, None]
    num_slots = tf.where(has_room[:, 0], num_between, num_between + num_spans)
    # The lowest bit marks slots, which come before all others.
    keys = tf.bitwise.bitwise_or(
        tf.bitwise.right_shift(bits, tf.ones_like(bits)),
        tf.where(indices < num_slots[:, None], tf.constant(1 << 63, bits.dtype), 0),
    )
    order = tf.argsort(tf.argsort(keys, axis=1, direction="DESCENDING"), axis=1)
    chosen = order < num_spans[:, None]
    numbers = tf.cumsum(_int(chosen), axis=1)  # of the span in or before each slot
    length = tf.where(chosen, tf.gather(lengths, tf.maximum(numbers - 1, 0), batch_dims=1), 0)
    has_word = (indices < num_slots[:, None]) & (has_room | ~chosen)
    ends = tf.cumsum(_int(has_word) + length, axis=1)
    begins = ends - length  # first word of the slot's span
    starts = sum_by_index(_int(chosen), tf.minimum(begins, size - 1))
    is_end = chosen & (ends < size)
    stops = sum_by_index(_int(is_end), tf.minimum(ends, size - 1))
    started = tf.cumsum(starts, axis=1)
    is_inside = started > tf.cumsum(stops, axis=1)
    last = tf.reduce_max(tf.where(chosen, begins, -1), axis=1)[:, None]
    is_last = (last >= 0) & (indices >= last) & (indices < last + longest)
    return tf.where(is_inside, started, 0), is_last


def sum_by_index(values: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Adds each value at its index in the same row; int32 [B, T]."""
    shape = tf.shape(values)
    # One segment for each index of each row.
    flat = tf.range(shape[0])[:, None] * shape[1] + indices
    sums = tf.math.unsorted_segment_sum(
        tf.reshape(values, [-1]), tf.reshape(flat, [-1]), shape[0] * shape[1]
    )
    return tf.reshape(sums, shape)


def _uniform(bits: tf.Tensor) -> tf.Tensor:
    """Returns numbers in (0, 1), float64."""
    return (tf.cast(random_integers(bits, _RESOLUTION), tf.float64) + 0.5) / _RESOLUTION


def _int(values: tf.Tensor) -> tf.Tensor:
    return tf.cast(values, tf.int32)
