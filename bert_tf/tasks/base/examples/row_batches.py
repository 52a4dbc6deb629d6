"""Batches of examples in memory as `tf.data` datasets.

A training batch is a pure function of (seed, step), as in pre-training: there is no shuffle buffer,
and a run can resume at any step. Evaluation takes each example once, the longest first, so that
examples of similar length share a batch.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.corpus.example_order import order_examples
from bert_tf.corpus.mapping import ALL, InputShard, map_in_numpy, steps_from
from bert_tf.system.number_arguments import check_numbers
from bert_tf.tasks.base.examples.rows import TokenizedDataset, bucket_of, longest_first


def training_batches(
    rows: TokenizedDataset,
    batch_size: int,
    start_step: int,
    seed: int,
    buckets: Sequence[int],
    shard: InputShard,
) -> tf.data.Dataset:
    """Returns an endless dataset of `TokenizedDataset.batch`, shuffled in each epoch.

    Args:
      batch_size: B of the global batch, of which the shard's part is returned.
      buckets: lengths that batches are padded to, ascending; see `length_buckets`.
    """

    def choose(step: int) -> tuple[np.ndarray, int]:
        # Positions count on over the epochs: a batch may contain the end of one.
        positions = np.arange(step * batch_size, (step + 1) * batch_size)
        row_ids, _ = order_examples(positions, len(rows), seed)
        return row_ids, int(rows.lengths[row_ids].max())

    return _batches(rows, steps_from(start_step), choose, batch_size, buckets, shard)


def evaluation_batches(
    rows: TokenizedDataset,
    batch_size: int,
    max_steps: int,
    buckets: Sequence[int],
    shard: InputShard = ALL,
    is_filled: bool = True,
) -> tf.data.Dataset:
    """Returns every example once, the longest first, in at most `max_steps` batches (0: all).

    The other arguments are those of `training_batches`. `row_ids` are the indices of the examples.
    The last batch is filled up with examples of weight 0 unless `is_filled` is false.
    """
    check_numbers(1, batch_size=batch_size)
    order = longest_first(rows)

    def choose(step: int) -> tuple[np.ndarray, int]:
        row_ids = order[step * batch_size : (step + 1) * batch_size]
        # The first example of a batch is its longest.
        return row_ids, int(rows.lengths[row_ids[0]])

    num_steps = -(-len(rows) // batch_size)
    steps = tf.data.Dataset.range(min(num_steps, max_steps) if max_steps else num_steps)
    return _batches(rows, steps, choose, batch_size, buckets, shard, is_filled)


def epoch_batches(
    rows: TokenizedDataset,
    batch_size: int,
    first_step: int,
    seed: int | None,
    buckets: Sequence[int],
) -> tuple[tf.data.Dataset, int]:
    """Returns an endless dataset of batches and the number of batches per epoch.

    As in Keras' `fit`, every epoch contains every example once, and its last batch may be smaller.
    Without a seed, the order is that of the examples; otherwise it differs between epochs.
    """
    num_steps = -(-len(rows) // batch_size)

    def choose(step: int) -> tuple[np.ndarray, int]:
        epoch, index = divmod(step, num_steps)
        ids = np.arange(index * batch_size, min((index + 1) * batch_size, len(rows)))
        if seed is not None:
            # Each epoch has another order of the same examples.
            ids, _ = order_examples(epoch * len(rows) + ids, len(rows), seed)
        return ids, int(rows.lengths[ids].max())

    steps = steps_from(first_step)
    return _batches(rows, steps, choose, batch_size, buckets, ALL, is_filled=False), num_steps


def _batches(
    rows: TokenizedDataset,
    steps: tf.data.Dataset,
    choose: Callable[[int], tuple[np.ndarray, int]],
    batch_size: int,
    buckets: Sequence[int],
    shard: InputShard,
    is_filled: bool = True,
) -> tf.data.Dataset:
    """Returns the shard's part of the batches whose example indices `choose` returns."""
    shard_rows = shard.rows(batch_size)
    # A batch without examples has the names, types and shapes of all batches.
    sample = rows.batch(np.zeros([0], np.int64), len(shard_rows), buckets[-1])
    free_axes = {}
    for name in sample:
        # Batches that are not filled up differ in size.
        axes = [] if is_filled else [0]
        # The features with an axis of tokens, whose size differs from batch to batch.
        if name not in {*rows.labels, "row_ids", "example_weights"} and len(buckets) > 1:
            axes.append(-2 if name in rows.token_scores else -1)
        free_axes[name] = axes

    def make(step: int) -> dict[str, np.ndarray]:
        row_ids, longest = choose(step)
        local_ids = row_ids[shard_rows[shard_rows < len(row_ids)]]
        num_rows = len(shard_rows) if is_filled else len(local_ids)
        return rows.batch(local_ids, num_rows, bucket_of(longest, buckets))

    return map_in_numpy(steps, make, sample, free_axes)
