"""The growing batch: every example once, stages by hand, and the same bits after a stop."""

from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import TrainingConfig
from bert_tf.training.batch_ramp import batches_left, check_ramp, stage_of
from bert_tf.training.metrics_log import read_metrics
from tests.training import trainer_test
from tests.training.toy_task import TOY, ToyTask, toy_batch

RAMP = {"batch_ramp_start": 2, "batch_ramp_steps": 8}  # 4 batches of 2, 4 of 4, then of 8.


def config(**options):
    return TrainingConfig(
        output_dir="unused",
        **{"train_batch_size": 1024, "gradient_accumulation_steps": 1} | options,
    )


def test_stages_by_hand():
    training = config(batch_ramp_start=256, batch_ramp_steps=16)
    stages = {stage_of(training, batch) for batch in range(40)}
    assert stages == {(256, 0, 8, 0), (512, 8, 16, 4), (1024, 16, None, 6)}
    assert stage_of(config(), 77) == (1024, 0, None, 0)
    assert stage_of(config(), 77).position(77) == 77


@pytest.mark.parametrize(("start", "steps"), [(512, 2), (256, 24), (32, 5 * 32 * 3), (1, 10240)])
def test_no_example_is_left_out_or_repeated(start, steps):
    training = config(batch_ramp_start=start, batch_ramp_steps=steps)
    first = 0
    for batch in range(steps + 5):
        stage = stage_of(training, batch)
        # A dataset of batches of one size holds these examples at that place.
        assert stage.position(batch) * stage.batch_size == first
        first += stage.batch_size
    assert stage.batch_size == 1024


def test_batches_of_one_size_that_are_left():
    training = config(batch_ramp_start=256, batch_ramp_steps=16)
    # From 4 to 20: four of 256, eight of 512, four of 1,024.
    assert batches_left(training, 4, 20, 256) == 4 + 16 + 16
    assert batches_left(training, 12, 20, 512) == 4 + 8
    assert batches_left(config(), 4, 20, 64) == 16


@pytest.mark.parametrize(
    ("replicas", "accumulation", "counts"),
    [(1, 1, [1, 1, 1, 1]), (1, 4, [1, 1, 2, 4]), (2, 16, [2, 4, 8, 16]), (4, 32, [4, 8, 16, 32])],
)
def test_micro_batches_grow_no_larger_than_the_whole_ones(replicas, accumulation, counts):
    training = config(
        batch_ramp_start=128, batch_ramp_steps=24, gradient_accumulation_steps=accumulation
    )
    stages = [stage_of(training, batch) for batch in (0, 8, 16, 24)]
    assert [stage.micro_batches(training, replicas) for stage in stages] == counts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"batch_ramp_start": 100, "batch_ramp_steps": 8},
            "batch_ramp_start=100 .*--train_batch_size=1024",
        ),
        (
            {"batch_ramp_start": 1024, "batch_ramp_steps": 8},
            "batch_ramp_start=1024 .*--train_batch_size=1024",
        ),
        ({"batch_ramp_steps": 8}, "batch_ramp_start=0 .*--train_batch_size=1024"),
        ({"batch_ramp_start": 256}, "batch_ramp_steps=0.*8: 2 stages"),
        ({"batch_ramp_start": 128, "batch_ramp_steps": 16}, "batch_ramp_steps=16 .*24: 3 stages"),
    ],
)
def test_ramps_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        check_ramp(config(**options))


def test_no_ramp_is_no_fault():
    check_ramp(config())


class StreamTask(ToyTask):
    """A `ToyTask` whose batches are cut from one stream of rows; notes the rows it gave."""

    def __init__(self, model_config):
        super().__init__(model_config)
        rows = [toy_batch(row, 1) for row in range(200)]
        self.rows = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def train_dataset(self, batch_size, start_step, shard):
        rows = tf.data.Dataset.from_tensor_slices(self.rows).skip(start_step * batch_size)
        return rows.batch(batch_size, drop_remainder=True)


SMALL = TOY.from_dict(
    {**TOY.to_dict(), "num_hidden_layers": 1, "attention_probs_dropout_prob": 0.1}
)


def make_trainer(path):
    keras.utils.set_random_seed(5)
    options = {**RAMP, "log_steps": 1, "jit_compile": False}
    return trainer_test.make_trainer(path, StreamTask(SMALL), **options)


@pytest.mark.slow
def test_time_left_counts_the_larger_batches_to_come(tmp_path):
    trainer = make_trainer(tmp_path)
    with mock.patch.object(trainer.progress, "show") as show:
        trainer.train()
    left = {step: left for (step, _, left), _ in show.call_args_list}
    # Of 12 steps four are of 2, four of 4, the others of 8 examples.
    assert (left[1], left[5], left[9]) == (3 + 8 + 16, 3 + 8, 3)


@pytest.mark.slow
def test_a_run_resumed_within_the_ramp_ends_with_the_same_bits(tmp_path):
    """Steps 0 to 3, 4 to 7 and 8 to 11 are of 2, 4 and 8; dies in the second, after its save at 5.

    The weight of the NSP loss is the number of rows.
    """
    make_trainer(tmp_path / "whole").train()
    lines = read_metrics(tmp_path / "whole" / "metrics.jsonl")
    rows = trainer_test.kill_at(7, make_trainer(tmp_path / "cut"))
    assert [row["next_sentence_loss_weight"] for row in rows] == [2, 2, 2, 2, 4, 4, 4]
    again = make_trainer(tmp_path / "cut")
    assert again.step == 5
    again.train()
    assert read_metrics(tmp_path / "cut" / "metrics.jsonl") == lines
    name = f"model.ckpt-{trainer_test.STEPS}.data-00000-of-00001"
    assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
