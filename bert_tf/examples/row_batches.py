"""Batches of rows in memory as `tf.data` datasets.

A training batch is a pure function of (seed, step), as in pre-training: nothing is shuffled in a
buffer, and a run resumes at any step. Evaluation takes each row once, long ones first, so that
rows of like length share a batch.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.corpus.example_order import order_examples
from bert_tf.corpus.input_shard import ALL, InputShard
from bert_tf.corpus.mapping import map_in_numpy
from bert_tf.examples.rows import TokenizedDataset, longest_first


def training_batches(
    rows: TokenizedDataset,
    batch_size: int,
    start_step: int,
    seed: int,
    buckets: Sequence[int],
    shares: InputShard,
) -> tf.data.Dataset:
    """Returns an endless dataset of `TokenizedDataset.batch`, each epoch in an order of its own.

    Args:
      rows: what to train on.
      batch_size: B of the global batch.
      start_step: number of the first batch.
      seed: of the order.
      buckets: lengths that batches are padded to, ascending; see `length_buckets`.
      shares: which rows of each batch are made.
    """

    def choose(step: int) -> tuple[np.ndarray, int]:
        places = np.arange(step * batch_size, (step + 1) * batch_size)
        row_ids, _ = order_examples(places, len(rows), seed)
        return row_ids, int(rows.lengths[row_ids].max())

    steps = tf.data.Dataset.range(start_step, np.iinfo(np.int64).max)
    return _batches(rows, steps, choose, batch_size, buckets, shares)


def evaluation_batches(
    rows: TokenizedDataset,
    batch_size: int,
    max_steps: int,
    buckets: Sequence[int],
    shares: InputShard = ALL,
    is_filled: bool = True,
) -> tf.data.Dataset:
    """Returns every row once, the longest first, in at most `max_steps` batches (0: all).

    Arguments are those of `training_batches`; `row_ids` tell which row is where. The last batch is
    filled up with rows of weight 0 unless `is_filled` is false.
    """
    order = longest_first(rows)

    def choose(step: int) -> tuple[np.ndarray, int]:
        row_ids = order[step * batch_size : (step + 1) * batch_size]
        return row_ids, int(rows.lengths[row_ids[0]])

    num_steps = -(-len(rows) // batch_size)
    steps = tf.data.Dataset.range(min(num_steps, max_steps) if max_steps else num_steps)
    return _batches(rows, steps, choose, batch_size, buckets, shares, is_filled)


def epoch_batches(
    rows: TokenizedDataset,
    batch_size: int,
    first_step: int,
    seed: int | None,
    buckets: Sequence[int],
) -> tuple[tf.data.Dataset, int]:
    """Returns an endless dataset of batches and the number of batches an epoch.

    Every epoch holds every row once, in an order of its own; its last batch may be smaller. That is
    what Keras' `fit` takes for an epoch.

    Args:
      rows: what to train on.
      batch_size: B.
      first_step: number of the first batch.
      seed: of the order; None for the order of the rows.
      buckets: see `training_batches`.
    """
    num_steps = -(-len(rows) // batch_size)

    def choose(step: int) -> tuple[np.ndarray, int]:
        epoch, place = divmod(step, num_steps)
        ids = np.arange(place * batch_size, min((place + 1) * batch_size, len(rows)))
        if seed is not None:
            ids, _ = order_examples(epoch * len(rows) + ids, len(rows), seed)
        return ids, int(rows.lengths[ids].max())

    steps = tf.data.Dataset.range(first_step, np.iinfo(np.int64).max)
    return _batches(rows, steps, choose, batch_size, buckets, ALL, is_filled=False), num_steps


def _batches(
    rows: TokenizedDataset,
    steps: tf.data.Dataset,
    choose: Callable[[int], tuple[np.ndarray, int]],
    batch_size: int,
    buckets: Sequence[int],
    shares: InputShard,
    is_filled: bool = True,
) -> tf.data.Dataset:
    """Makes the batches that `choose` names, each filled up to its size unless said otherwise."""
    own = shares.rows(batch_size)
    example = rows.batch(np.zeros([0], np.int64), len(own), buckets[-1])
    # Which axis holds pieces, whose number differs from batch to batch.
    axes = dict.fromkeys(example, -1) | dict.fromkeys(rows.piece_scores, -2)
    without = {*rows.labels, "row_ids", "example_weights"}

    def make(step: np.ndarray) -> list[np.ndarray]:
        row_ids, longest = choose(int(step))
        length = next((bucket for bucket in buckets if bucket >= longest), buckets[-1])
        mine = row_ids[own[own < len(row_ids)]]
        num_rows = len(own) if is_filled else len(mine)
        return list(rows.batch(mine, num_rows, length).values())

    def static_shape(name: str) -> list[int | None]:
        shape: list[int | None] = list(example[name].shape)
        if not is_filled:
            shape[0] = None
        if name not in without and len(buckets) > 1:
            shape[axes[name]] = None
        return shape

    return map_in_numpy(
        steps, make, {name: (example[name].dtype, static_shape(name)) for name in example}
    )
