"""Packs several short texts into one row, so that a batch has little padding.

    batch [B, T] --lengths--> plan --> the same batch, with two features that describe the packing

    lengths 5, 2, 3 in rows of 5:    packed_positions       packed_starts
                                     0  1  2  3  4          0, 8, 5
                                     10 11 12 5  6

A packed row is as long as a row of the batch. The batch itself is unchanged: the encoder gathers
the tokens into R rows instead of B, and scatters its output back, so that labels, heads and losses
do not depend on packing; see `bert_tf/network/layout.py`.

References: Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination"; Johnson
1973 for first-fit decreasing.
"""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.system.type_names import Batch, Tensor

EMPTY = -1


class Plan(NamedTuple):
    """The positions of a batch's texts in packed rows, for each part.

    A part is a micro-batch. Positions count from the start of the part.
    """

    order: np.ndarray  # int32 [B], the examples of the first part, then of the second, ...
    positions: np.ndarray  # int32 [parts * R, T], positions in the part's flat batch, or EMPTY
    starts: np.ndarray  # int32 [B] or [B, C], each text's first position in the part's flat rows


@tf.autograph.experimental.do_not_convert  # Tracing is faster without this conversion.
def pack_batch(batch: Batch, num_parts: int = 1) -> dict[str, Tensor]:
    """Adds the positions of a batch's texts in packed rows.

    Args:
      batch: features of B examples, including `input_mask` int32 [B, T] or [B, C, T], in which
        padding follows the tokens of a text.
      num_parts: number of equal parts that the batch will be split into along the first axis.

    Returns:
      The features, with `packed_positions` and `packed_starts` of `Plan`. With several parts, the
      examples are reordered so that the parts need similar numbers of rows.
    """
    mask = batch["input_mask"]
    plan = functools.partial(_plan_batch, num_parts=num_parts)
    # First fit is a loop over texts: the input pipeline's threads run it while the device computes.
    order, positions, starts = tf.numpy_function(plan, [mask], [tf.int32] * len(Plan._fields))
    order = tf.ensure_shape(order, mask.shape[:1])
    packed = {name: tf.gather(values, order) for name, values in batch.items()}
    packed["packed_positions"] = tf.ensure_shape(positions, [None, mask.shape[-1]])
    packed["packed_starts"] = tf.ensure_shape(starts, mask.shape[:-1])
    return packed


def _plan_batch(mask: np.ndarray, num_parts: int) -> Plan:
    if (mask[..., 1:] > mask[..., :-1]).any():
        raise ValueError(
            "input_mask has a 1 after a 0; --pack_rows expects all padding after the tokens."
        )
    return plan_rows(mask.sum(axis=-1), mask.shape[-1], num_parts)


def plan_rows(lengths: np.ndarray, row_length: int, num_parts: int = 1) -> Plan:
    """Assigns texts to rows.

    Args:
      lengths: int [B] or [B, C], tokens of each text, at most T; 0 for an empty text.
      row_length: T.
      num_parts: divides B.
    """
    examples = lengths.reshape(len(lengths), -1)  # [B, C]
    order = _deal(examples.sum(axis=1), num_parts)
    parts = examples[order].reshape(num_parts, -1)  # [parts, B / parts * C]
    starts = []
    # All parts have as many rows as the fullest, so that they form one array.
    num_rows = 1
    for part in parts:
        part_starts, part_rows = first_fit(part, row_length)
        starts.append(part_starts)
        num_rows = max(num_rows, round_up(part_rows))
    positions = np.full([num_parts, num_rows * row_length], EMPTY, np.int32)  # [parts, R * T]
    for i, part in enumerate(parts):
        # Text and offset of each token in the part, both [tokens].
        text = np.repeat(np.arange(len(part)), part)
        offset = np.arange(len(text)) - np.repeat(np.cumsum(part) - part, part)
        # Position in the packed rows <- position in the padded batch.
        positions[i, starts[i][text] + offset] = text * row_length + offset
    return Plan(
        order.astype(np.int32),
        positions.reshape(-1, row_length),
        np.array(starts, np.int32).reshape(lengths.shape),
    )


def _deal(sizes: np.ndarray, num_parts: int) -> np.ndarray:
    """Distributes examples to parts in serpentine order, the longest first; parts keep the order.

    Example: sizes 9, 1, 5, 6 in two parts: 0 and 1, 2 and 3.
    """
    # [B / parts, parts]: each turn gives one example to every part.
    turns = np.argsort(-sizes, kind="stable").reshape(-1, num_parts)
    # Every second turn goes backwards: no part always gets the longer of two.
    turns[1::2] = turns[1::2, ::-1].copy()
    return np.sort(turns.T, axis=1).ravel()


def first_fit(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, int]:
    """Assigns each text, the longest first, to the first row with enough room.

    Args:
      lengths: int [n], at most `row_length`.
      row_length: T.

    Returns:
      Each text's first position in the flat rows, int64 [n], 0 for an empty text; and the number of
      rows.

    Example: lengths 5, 2, 3 in rows of 5: positions 0, 8, 5 of two rows.
    """
    free = np.full(len(lengths), row_length)
    starts = np.zeros(len(lengths), np.int64)
    order = np.argsort(-lengths, kind="stable")
    for index in order[lengths[order] > 0]:
        # The first row with enough room; an empty row is always left.
        row = int(np.argmax(free >= lengths[index]))
        # The used part of the row ends here: row * T + (T - free).
        starts[index] = (row + 1) * row_length - free[row]
        free[row] -= lengths[index]
    return starts, int(np.count_nonzero(free < row_length))


def round_up(num_rows: int) -> int:
    """Rounds up the number of rows, because XLA compiles a step for each number.

    Up to 63 all numbers are kept, up to 127 every second, then every fourth, and so on: this adds
    at most 3 %.
    """
    # Keeps the six leading bits, so that at most 1 / 32 is added.
    step = 1 << max(0, num_rows.bit_length() - 6)
    return max(1, -(-num_rows // step) * step)
