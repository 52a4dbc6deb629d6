"""Selects spans of words to predict, in the graph, on whole batches.

The words of a sequence are a circle, on which spans and the words between them are laid out in a
random order, and which is then turned by a random angle. So each position is selected as often as
any other. The number of spans is drawn such that their mean length is that of the distribution, and
their lengths are drawn on condition that they add up to the number of words to predict:

    layout   . # # # . . # . # # . . .       N spans, at least one word between two of them
    turned   # . . . . # # # . . # . #       the last span of the layout is cut at the end

Spans that are cut, by the turn or by a special token, are counted as two.

How many tokens these words have is known only now. Where they are too many, the spans lose their
last words, one word each before any loses a second; where they are too few, spans are extended in
the same way. No span is lost, so the mean length stays.

Differs from SpanBERT and ALBERT, which draw a position and a length until enough tokens are
masked. There, spans next to special tokens are rarer, and the last span is cut or skipped.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.corpus.random_bits import random_integers

# Columns of the rounding numbers.
NUM_ROUNDED = 3
_WORDS, _SPANS, _TURN = range(NUM_ROUNDED)
_RESOLUTION = 1 << 30


class SpanBits(NamedTuple):
    """Random bits; each number is drawn from its own index, so unused ones need not be drawn."""

    lengths: tf.Tensor  # uint64 [B, at least the most spans of a row]
    layout: tf.Tensor  # uint64 [B, T]
    rounding: tf.Tensor  # uint64 [B, NUM_ROUNDED]


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
    num_segments = tf.reduce_sum(_int(begins_segment), axis=1)
    wanted, num_spans = _draw_numbers(
        bits.rounding, counts, num_words, sizes, num_segments, trimmed
    )
    lengths = _draw_lengths(bits.lengths, wanted, num_spans, trimmed, max_predictions)
    spans, from_end = _lay_out(
        bits.layout, lengths, num_words - wanted, num_spans, max_predictions, len(trimmed)
    )
    # Word k of the sequence is the word (k - turn) of the layout.
    size = tf.shape(candidates)[1]
    indices = tf.range(size)[None]
    modulus = tf.maximum(num_words, 1)[:, None]
    drawn = tf.cast(
        _uniform(bits.rounding[:, _TURN, None]) * tf.cast(modulus, tf.float64), tf.int32
    )
    sizes_in_layout = tf.gather(sizes, (indices + drawn) % modulus, batch_dims=1)
    is_planned = (spans > 0) & (indices < num_words[:, None])
    # Words are taken from the beginnings of spans to their ends, then beyond, up to the count.
    keys = tf.where(is_planned, from_end * size - indices, -size * size)  # [B, T], all different
    first = tf.math.top_k(keys, tf.minimum(max_predictions, size))  # [B, P]
    used = tf.cumsum(tf.gather(sizes_in_layout, first.indices, batch_dims=1), axis=1)
    num_taken = tf.reduce_sum(_int(used <= counts[:, None]), axis=1)  # [B]
    last = tf.gather(first.values, tf.maximum(num_taken - 1, 0), batch_dims=1)
    taken = is_planned & (keys >= last[:, None]) & (num_taken > 0)[:, None]
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
    sizes: tf.Tensor,
    num_segments: tf.Tensor,
    shares: np.ndarray,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the numbers of words and spans to select, int32 [B] each."""
    all_words = tf.cast(tf.maximum(num_words, 1), tf.float64)
    all_tokens = tf.cast(tf.maximum(tf.reduce_sum(sizes, axis=1), 1), tf.float64)
    squares = tf.cast(tf.reduce_sum(sizes * sizes, axis=1), tf.float64)
    # Words are taken until one does not fit. With that word, they exceed the count by half of
    # squares / tokens + 1 on average, 1 where each word is one token.
    exceeded = tf.cast(counts, tf.float64) + (squares / all_tokens + 1) / 2
    exact = exceeded * all_words / all_tokens - 1
    exact = tf.where(tf.cast(counts, tf.float64) >= all_tokens, all_words, exact)
    # Rounded at random, so that the mean is exact; 1e-9 for errors of rounding.
    wanted = tf.cast(exact + _uniform(bits[:, _WORDS]) + 1e-9, tf.int32)
    wanted = tf.minimum(tf.maximum(wanted, 1), tf.minimum(num_words, counts))
    drawn = _uniform(bits[:, _SPANS])
    num_spans = _draw_num_spans(drawn, wanted, num_words, num_segments, shares)
    # No span is longer than the longest of the shares. Where each word is one token, the count is
    # reached by more spans; otherwise, where it is not exact anyway, by fewer words.
    least = -(-wanted // len(shares))
    num_spans = tf.where(all_tokens > all_words, num_spans, tf.maximum(num_spans, least))
    return tf.minimum(wanted, num_spans * len(shares)), num_spans


def _draw_num_spans(
    drawn: tf.Tensor,
    wanted: tf.Tensor,
    num_words: tf.Tensor,
    num_segments: tf.Tensor,
    shares: np.ndarray,
) -> tf.Tensor:
    """Draws the number of spans, int32 [B], such that their mean length is that of the shares."""
    mean = float(np.dot(np.arange(1, len(shares) + 1), shares))
    all_words = tf.cast(tf.maximum(num_words, 1), tf.float64)
    masked = tf.cast(wanted, tf.float64)
    # A span is cut where two neighbours on the circle are of different segments: that many more
    # spans result, which the number of spans allows for.
    cuts = tf.minimum(tf.cast(num_segments, tf.float64) / all_words, 0.5)
    exact = tf.maximum(masked / mean - cuts * masked, 0) / (1 - cuts)
    fewer = tf.floor(exact + 1e-9)  # 1e-9 for errors of rounding

    def excess(spans: tf.Tensor) -> tf.Tensor:
        """Returns by how many words so many spans are longer than as many of the mean length."""
        selected = tf.minimum(masked, spans * len(shares))
        return selected - mean * (spans + cuts * (selected - spans))

    # Drawn between two numbers such that the excess is 0 on average.
    above = excess(fewer)
    share_of_more = above / tf.maximum(above - excess(fewer + 1), 1e-9)
    num_spans = tf.cast(fewer, tf.int32) + _int(drawn < share_of_more)
    return tf.minimum(tf.maximum(num_spans, 1), wanted)


def _draw_lengths(
    bits: tf.Tensor,
    wanted: tf.Tensor,
    num_spans: tf.Tensor,
    shares: np.ndarray,
    max_predictions: int,
) -> tf.Tensor:
    """Draws lengths of spans that add up to `wanted`, int32 [B, N]; 0 after the last span.

    N is the largest number of spans of a row, at least 1.
    """
    # table[k, s] is the probability that k spans have s words, up to a factor for each k.
    table = np.zeros((max_predictions + 1, max_predictions + 1))
    table[0, 0] = 1
    for number in range(1, max_predictions + 1):
        sums = np.convolve(table[number - 1], np.concatenate([[0.0], shares]))
        table[number] = sums[: max_predictions + 1]
        table[number] /= table[number].max() or 1
    chances = tf.constant(table)
    sizes = tf.range(1, len(shares) + 1)[None]  # [1, L]
    drawn = _uniform(bits)
    most = tf.maximum(tf.reduce_max(num_spans), 1)

    def draw(index: tf.Tensor, left: tf.Tensor, lengths: tf.TensorArray) -> tuple[tf.Tensor, ...]:
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
        return index + 1, left - length, lengths.write(index, length)

    state = (tf.constant(0), wanted, tf.TensorArray(tf.int32, most))
    lengths = tf.while_loop(lambda index, *_: index < most, draw, state)[2]
    return tf.transpose(lengths.stack())


def _lay_out(
    bits: tf.Tensor,
    lengths: tf.Tensor,
    num_between: tf.Tensor,
    num_spans: tf.Tensor,
    max_spans: int,
    longest: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Lays spans out among the words between them; no row has more than `max_spans` spans.

    Returns:
      The number of each word's span from 1, 0 for words that no span may have; and how many words
      of the span follow, negative for words to which it may be extended. The first word of a span
      has the size of the row, since it is never left out. int32 [B, T] each.
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
    chosen = has_largest_keys(keys, num_spans, max_spans)
    numbers = tf.cumsum(_int(chosen), axis=1)  # of the span in or before each slot
    length = tf.where(chosen, tf.gather(lengths, tf.maximum(numbers - 1, 0), batch_dims=1), 0)
    has_word = (indices < num_slots[:, None]) & (has_room | ~chosen)
    # The first word of each slot's span.
    begins = tf.cumsum(_int(has_word) + length, axis=1) - length
    starts = sum_by_index(_int(chosen), tf.minimum(begins, size - 1))
    spans = tf.cumsum(starts, axis=1)  # of each word, the last span that begins at or before it
    index = tf.maximum(spans - 1, 0)
    begin_of_span = sum_by_index(tf.where(chosen, begins, 0), tf.maximum(numbers - 1, 0))
    begin = tf.gather(begin_of_span, index, batch_dims=1)
    from_end = begin + tf.gather(lengths, index, batch_dims=1) - 1 - indices
    # A word stays between an extended span and the next.
    begins_next = tf.pad(starts[:, 1:], [[0, 0], [0, 1]]) > 0
    is_possible = (from_end >= 0) | ((indices < begin + longest) & ~begins_next)
    return tf.where(is_possible, spans, 0), tf.where(starts > 0, size, from_end)


def has_largest_keys(keys: tf.Tensor, counts: tf.Tensor, most: int) -> tf.Tensor:
    """Returns whether each key is among the largest of its row, bool [B, T].

    They are as many as its count, at most `most`; equal 64-bit keys practically do not occur.
    """
    largest = tf.math.top_k(keys, tf.minimum(most, tf.shape(keys)[1])).values
    last = tf.clip_by_value(counts, 1, tf.shape(largest)[1]) - 1
    bounds = tf.gather(largest, last, batch_dims=1)
    return (keys >= bounds[:, None]) & (counts > 0)[:, None]


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
