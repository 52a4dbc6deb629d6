"""Order, number of threads and end of a mapped dataset."""

import os
import threading
import time

import numpy as np
import tensorflow as tf

from bert_tf.corpus.mapping import MAX_PARALLEL, map_in_order


def test_order_is_kept_and_several_are_at_work():
    running, most, lock = [0], [0], threading.Lock()

    def slow(index: np.ndarray) -> np.ndarray:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.03 if index % 3 == 0 else 0.001)  # Later ones are done first.
        with lock:
            running[0] -= 1
        return index

    dataset = map_in_order(
        tf.data.Dataset.range(40), lambda index: tf.numpy_function(slow, [index], tf.int64)
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = 4  # On one core, too.
    assert [int(index) for index in dataset.with_options(options)] == list(range(40))
    assert 1 <= most[0] <= MAX_PARALLEL
    assert most[0] > 1 or os.cpu_count() == 1


def test_nothing_is_tuned():
    """Else the end of an iterator may wait for seconds, for the thread that tunes."""
    dataset = map_in_order(tf.data.Dataset.range(9), lambda index: index + 1)
    assert dataset.options().autotune.enabled is False
    # Also behind what others do with the dataset: one thread tunes for all of it.
    dataset = dataset.map(lambda index: index * 2).prefetch(2)
    assert dataset.options().autotune.enabled is False
    assert list(dataset.as_numpy_iterator()) == list(range(2, 20, 2))
