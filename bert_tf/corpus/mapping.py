"""Maps numbers of steps to batches: several at once, in order; a worker makes its own rows."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

MAX_PARALLEL = 8  # Elements in work at once; each is a whole batch in memory.
NUM_AHEAD = 2  # Results kept ready.


class InputShard(NamedTuple):
    """The part of every global batch that this worker makes."""

    worker_index: int = 0
    num_workers: int = 1

    def rows(self, batch_size: int) -> np.ndarray:
        """Returns the indices of its rows in the global batch, int64 [B / W].

        Raises:
          ValueError: if the batch cannot be dealt evenly.
        """
        if batch_size % self.num_workers:
            raise ValueError(
                f"The batch size {batch_size} is not a multiple of the {self.num_workers} workers; "
                "change one of them."
            )
        return np.arange(batch_size).reshape(self.num_workers, -1)[self.worker_index]


ALL = InputShard()


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


def steps_from(first: int) -> tf.data.Dataset:
    """Returns the numbers of all steps from one on, int64 []."""
    return tf.data.Dataset.range(first, np.iinfo(np.int64).max)


def map_in_numpy(
    steps: tf.data.Dataset,
    make: Callable[[int], dict[str, np.ndarray]],
    sample: Mapping[str, np.ndarray],
    free_axes: Mapping[str, Sequence[int]],
) -> tf.data.Dataset:
    """Maps numbers of steps to batches that NumPy makes.

    Args:
      steps: int64 [].
      make: from a step to the arrays of its batch, by name.
      sample: arrays of the types and shapes of all batches, in the order of `make`.
      free_axes: by name of an array, the axes in which batches differ.
    """
    shapes = {}
    for name, values in sample.items():
        shape: list[int | None] = list(values.shape)
        for axis in free_axes.get(name, ()):
            shape[axis] = None
        shapes[name] = shape

    @tf.autograph.experimental.do_not_convert
    def load(step: tf.Tensor) -> dict[str, tf.Tensor]:
        types = [values.dtype for values in sample.values()]
        arrays = tf.numpy_function(lambda step: list(make(int(step)).values()), [step], types)
        named = zip(shapes.items(), arrays, strict=True)
        return {name: tf.ensure_shape(array, shape) for (name, shape), array in named}

    return map_in_order(steps, load)
