"""Packs several short texts into one row, so that little of a batch is padding.

    batch [B, T] --lengths--> plan --> the same batch, with two features that say where texts stand

    lengths 5, 2, 3 in rows of 5:    packed_places          packed_starts
                                     0  1  2  3  4          0, 8, 5
                                     10 11 12 5  6

A packed row is as long as a row of the batch. The texts stay in the batch as they are: the encoder
takes their pieces from it, computes on R rows instead of B, and puts its output back, so labels,
heads and losses know nothing of it; see `bert_tf/network/layout.py`.

References: Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination"; Johnson
1973 for first-fit decreasing.
"""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

Batch = dict[str, tf.Tensor]
EMPTY = -1


class Plan(NamedTuple):
    """Where the texts of a batch stand in packed rows, part for part.

    A part is what is computed at once: a micro-batch. Its places count from its own beginning.
    """

    order: np.ndarray  # int32 [B], the examples of the first part, then of the second, ...
    places: np.ndarray  # int32 [parts * R, T], places in the part's flat batch; EMPTY: none
    starts: np.ndarray  # int32 [B] or [B, C], each text's first place in the part's flat rows


@tf.autograph.experimental.do_not_convert  # no Python control flow on tensors: traced faster
def pack_batch(batch: Batch, num_parts: int = 1) -> Batch:
    """Adds where the texts of a batch stand in packed rows.

    Args:
      batch: features of B examples, among them `input_mask` int32 [B, T] or [B, C, T] with the
        pieces of a text before its padding.
      num_parts: equal parts, along the first axis, that the batch will be cut in.

    Returns:
      The features, with `packed_places` and `packed_starts` of `Plan`; the examples are in their
      order if there is one part, else dealt to the parts so that these need like numbers of rows.
    """
    mask = batch["input_mask"]
    plan = functools.partial(_plan_batch, num_parts=num_parts)
    order, places, starts = tf.numpy_function(plan, [mask], [tf.int32] * len(Plan._fields))
    order = tf.ensure_shape(order, mask.shape[:1])
    dealt = {name: tf.gather(values, order) for name, values in batch.items()}
    return dealt | {
        "packed_places": tf.ensure_shape(places, [None, mask.shape[-1]]),
        "packed_starts": tf.ensure_shape(starts, mask.shape[:-1]),
    }


def _plan_batch(mask: np.ndarray, num_parts: int) -> Plan:
    if (mask[..., 1:] > mask[..., :-1]).any():
        raise ValueError(
            "input_mask has a 1 after a 0; --pack_rows expects all padding after the pieces."
        )
    return plan_rows(mask.sum(axis=-1), mask.shape[-1], num_parts)


def plan_rows(lengths: np.ndarray, row_length: int, num_parts: int = 1) -> Plan:
    """Places texts in rows.

    Args:
      lengths: int [B] or [B, C], pieces of each text, at most T; 0: nowhere.
      row_length: T.
      num_parts: divides B.
    """
    examples = lengths.reshape(len(lengths), -1)  # [B, C]
    order = _deal(examples.sum(axis=1), num_parts)
    parts = examples[order].reshape(num_parts, -1)  # [parts, B / parts * C]
    starts, needed = zip(*(first_fit(part, row_length) for part in parts), strict=True)
    num_rows = round_up(max(needed))
    places = np.full([num_parts, num_rows * row_length], EMPTY, np.int32)
    for row, part, first in zip(places, parts, starts, strict=True):
        text = np.repeat(np.arange(len(part)), part)
        piece = np.arange(len(text)) - np.repeat(np.cumsum(part) - part, part)
        row[first[text] + piece] = text * row_length + piece
    return Plan(
        order.astype(np.int32),
        places.reshape(-1, row_length),
        np.array(starts, np.int32).reshape(lengths.shape),
    )


def _deal(sizes: np.ndarray, num_parts: int) -> np.ndarray:
    """Deals examples to parts, the longest first, back and forth; in a part they keep their order.

    Example: sizes 9, 1, 5, 6 in two parts: 0 and 1, 2 and 3.
    """
    turns = np.argsort(-sizes, kind="stable").reshape(-1, num_parts)
    turns[1::2] = turns[1::2, ::-1].copy()
    return np.sort(turns.T, axis=1).ravel()


def first_fit(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, int]:
    """Puts texts, the longest first, each in the first row that has room.

    Args:
      lengths: int [n], at most `row_length`.
      row_length: T.

    Returns:
      Each text's first place in the flat rows, int64 [n], 0 for a text of no pieces; and the number
      of rows.

    Example: lengths 5, 2, 3 in rows of 5: places 0, 8, 5 of two rows.
    """
    free = np.full(len(lengths), row_length)
    starts = np.zeros(len(lengths), np.int64)
    order = np.argsort(-lengths, kind="stable")
    for index in order[lengths[order] > 0]:
        row = int(np.argmax(free >= lengths[index]))
        starts[index] = (row + 1) * row_length - free[row]
        free[row] -= lengths[index]
    return starts, int(np.count_nonzero(free < row_length))


def round_up(num_rows: int) -> int:
    """Returns the next number of rows of which a few are possible: XLA compiles each anew.

    All up to 63 are, then every second, above 127 every fourth, and so on: at most 3 % more.
    """
    step = 1 << max(0, num_rows.bit_length() - 6)
    return max(1, -(-num_rows // step) * step)
