"""Order, number of threads and end of a mapped dataset."""

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
    assert [int(index) for index in dataset] == list(range(40))
    assert 1 <= most[0] <= MAX_PARALLEL
    assert most[0] > 1 or tf.config.threading.get_inter_op_parallelism_threads() == 1


def test_nothing_is_tuned_and_the_end_of_an_iterator_waits_for_nothing():
    dataset = map_in_order(tf.data.Dataset.range(10**9), lambda index: index + 1)
    assert dataset.options().autotune.enabled is False
    # Also behind what others do with the dataset: one thread tunes for all of it.
    iterator = iter(dataset.map(lambda index: index * 2).prefetch(2))
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        next(iterator)
        time.sleep(0.001)
    start = time.monotonic()
    del iterator
    assert time.monotonic() - start < 0.5
