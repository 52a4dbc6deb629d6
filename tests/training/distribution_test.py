"""Strategies, and which rows of a batch each replica gets."""

import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import TrainingConfig
from bert_tf.corpus.mapping import ALL
from bert_tf.system.hosts import tf_config, worker_index
from bert_tf.training import distribution
from bert_tf.training.distribution import (
    any_worker,
    check_batch_sizes,
    distribute,
    is_chief,
    make_strategy,
    worker_of,
)

ONE = tf.distribute.get_strategy()


def config(**options):
    return TrainingConfig(output_dir="unused", **options)


def numbers(shard):
    assert shard == ALL
    return tf.data.Dataset.range(12).batch(6, drop_remainder=True).map(lambda x: {"x": x})


def test_one_device_reads_the_dataset_itself():
    strategy = make_strategy(config())
    assert strategy.num_replicas_in_sync == 1
    assert worker_of(strategy) == (0, 1) and is_chief(strategy)
    rows = [batch["x"].numpy().tolist() for batch in distribute(strategy, numbers)]
    assert rows == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_a_single_device_has_the_default_strategy(monkeypatch):
    """MirroredStrategy's merge_call cannot be used in the function that one device compiles."""
    assert make_strategy(config(distribution="mirrored", num_devices=1)) is ONE
    monkeypatch.setenv("TF_CONFIG", tf_config(["localhost:1"], 0))
    assert make_strategy(config(distribution="multi_worker")) is ONE


def test_equal_numbers_of_many_replicas_are_equal(monkeypatch):
    def sums(_, values):
        return np.add.accumulate(np.full([48, len(values)], values), axis=0)[-1].tolist()

    monkeypatch.setattr(distribution, "_sum", sums)
    numbers = np.random.default_rng(0).integers(1 << 24, size=100)
    assert all(distribution._is_same(ONE, int(number)) for number in numbers)


def test_the_size_of_an_evaluations_batch_matters_only_with_evaluations():
    sizes = {"train_batch_size": 32, "eval_batch_size": 8}
    check_batch_sizes(config(do_train=True, **sizes), 16)
    for wanted in ({"do_train": True, "do_eval": True}, {"do_train": True, "eval_steps": 5}, {}):
        with pytest.raises(ValueError, match=r"eval_batch_size=8 .*16 \(replicas 16\)"):
            check_batch_sizes(config(**wanted, **sizes), 16)


def test_replicas_get_their_rows_of_one_batch():
    strategy = make_strategy(config(distribution="mirrored", num_devices=2))
    assert strategy.num_replicas_in_sync == 2
    batches = [
        [part.numpy().tolist() for part in strategy.experimental_local_results(batch["x"])]
        for batch in distribute(strategy, numbers)
    ]
    assert batches == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]


def test_devices_beyond_those_set_up_are_refused():
    tf.constant(0)  # TensorFlow has started with the two devices of the tests.
    with pytest.raises(ValueError, match="num_devices=9 .*TensorFlow"):
        make_strategy(config(distribution="mirrored", num_devices=9))


@pytest.mark.parametrize("flag", [True, False])
def test_any_worker_of_one(flag):
    assert any_worker(make_strategy(config()), flag) is flag


@pytest.mark.parametrize(
    ("hosts", "task", "expected"),
    [
        ({"worker": ["a", "b"]}, ("worker", 1), (1, 2)),
        ({"chief": ["a"], "worker": ["b"]}, ("chief", 0), (0, 2)),
        ({"chief": ["a"], "worker": ["b"]}, ("worker", 0), (1, 2)),
        ({"chief": ["a"], "worker": ["b", "c"], "ps": ["d"]}, ("worker", 1), (2, 3)),
    ],
)
def test_one_host_is_first(hosts, task, expected):
    assert worker_index(hosts, *task) == expected


@pytest.mark.parametrize("text", ["", "{}", '{"cluster": {}}', "host1:12345", "[1]"])
def test_missing_hosts_are_said(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text) if text else monkeypatch.delenv("TF_CONFIG", False)
    with pytest.raises(ValueError, match="TF_CONFIG"):
        make_strategy(config(distribution="multi_worker"))


def test_missing_tpu_is_said(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(ValueError, match="--distribution=tpu.*'local'.*--tpu_name"):
        make_strategy(config(distribution="tpu"))


@pytest.mark.parametrize(
    ("options", "replicas", "message"),
    [
        ({}, 4, None),
        ({"gradient_accumulation_steps": 2}, 2, None),
        ({"train_batch_size": 6}, 4, "--train_batch_size=6.*4"),
        ({"gradient_accumulation_steps": 3}, 4, "--train_batch_size=8.*12"),
        ({"eval_batch_size": 5}, 2, "--eval_batch_size=5.*2"),
        ({"eval_batch_size": 5, "gradient_accumulation_steps": 2}, 1, None),
    ],
)
def test_batches_must_be_dealt_evenly(options, replicas, message):
    training = config(**{"train_batch_size": 8, "eval_batch_size": 8, **options})
    if message is None:
        check_batch_sizes(training, replicas)
    else:
        with pytest.raises(ValueError, match=message):
            check_batch_sizes(training, replicas)


@pytest.mark.slow
def test_a_start_that_keeps_the_interpreters_lock_is_ended():
    # PyDLL keeps the lock, as TensorFlow does while it waits for a worker that died.
    code = """
import ctypes
from bert_tf.training.distribution import _time_limit
with _time_limit(60):
    pass
with _time_limit(1):
    ctypes.PyDLL(None).sleep(30)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.returncode == -signal.SIGALRM, done.stderr.decode()
