"""Maps datasets: several elements at once, in order, with a few results prefetched."""

import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

MAX_PARALLEL = 8  # Elements in work at once; each is a whole batch in memory.
NUM_AHEAD = 2  # Results kept ready.


def map_in_order(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    """Maps a dataset with as many threads as there are cores, eight at most.

    The numbers are fixed: tf.data would tune them in a thread that the end of an iterator waits
    for, and that sleeps longer the longer the iterator has lived.

    The elements are not sharded over workers: each worker already makes its own rows.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    num_parallel = min(MAX_PARALLEL, os.cpu_count() or 1)
    mapped = dataset.map(function, num_parallel_calls=num_parallel)
    return mapped.prefetch(NUM_AHEAD).with_options(options)
