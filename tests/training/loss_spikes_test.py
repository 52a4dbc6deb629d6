"""Steps with bad losses: judged as NumPy does, skipped, rewound, and the same when resumed."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import OptimizerConfig
from bert_tf.corpus.mapping import ALL
from bert_tf.training.loss_spikes import LossGuard
from bert_tf.training.metrics_log import read_metrics
from bert_tf.training.optimizers import build_optimizer
from bert_tf.training.train_step import TrainStep
from tests.float_bounds import close_to
from tests.training.toy_task import ToyTask
from tests.training.trainer_test import DROPPING, STEPS, make_trainer

NAN = float("nan")


class ShortGuard(LossGuard):
    WINDOW = 4


class SpikyTask(ToyTask):
    """`ToyTask` whose MLM loss is multiplied by the largest weight of the batch."""

    def loss_and_metric_sums(self, batch, outputs):
        sums = super().loss_and_metric_sums(batch, outputs)
        loss = sums["masked_lm_loss"]
        factor = tf.reduce_max(batch["masked_lm_weights"])
        return {**sums, "masked_lm_loss": loss._replace(total=loss.total * factor)}


def trainer_of(path, weights_at=None, task=ToyTask, **options):
    keras.utils.set_random_seed(5)
    made = task(DROPPING, weights_at=weights_at or {})
    return make_trainer(path, made, jit_compile=False, **options)


def reference_weights(parts):
    """Returns the weights after steps on some batches: pairs (first step, first batch, number)."""
    keras.utils.set_random_seed(5)
    task = ToyTask(DROPPING)
    optimizer = build_optimizer(OptimizerConfig(learning_rate=1e-2, num_warmup_steps=2))
    optimizer.build(task.model.trainable_variables)
    step = TrainStep(task, optimizer, tf.distribute.get_strategy(), random_seed=5,
                     jit_compile=False)  # fmt: skip
    for first_step, first_batch, number in parts:
        data = iter(task.train_dataset(8, first_batch, ALL))
        step(data, tf.constant(first_step), tf.constant(number))
    return [variable.numpy() for variable in task.model.trainable_variables]


def check_weights(trainer, parts):
    weights = [variable.numpy() for variable in trainer.task.model.trainable_variables]
    for ours, expected in zip(weights, reference_weights(parts), strict=True):
        np.testing.assert_array_equal(ours, expected)


def events(path):
    return read_metrics(path / "events.jsonl")


def test_the_guard_judges_as_numpy_does():
    random = np.random.default_rng(0)
    guard, accepted = ShortGuard(2.0), []
    for index in range(200):
        loss = np.float32(random.choice([random.normal(5, 1), 9.0, NAN, math.inf], p=P))
        is_finite = random.random() > 0.1
        limit = math.inf
        if len(accepted) >= 4:
            limit = np.mean(accepted[-4:]) + 2.0 * np.std(accepted[-4:])
        expected = is_finite and math.isfinite(loss) and loss <= limit
        if index == 100:  # As a checkpoint does.
            before, guard = guard.state(), ShortGuard(2.0)
            guard.restore(before)
        is_good, found = guard.check(tf.constant(loss), tf.constant(is_finite))
        assert is_good.numpy() == expected
        assert found.numpy() == close_to(limit)
        if expected:
            accepted.append(loss)
    assert 50 < len(accepted) < 150


P = [0.6, 0.2, 0.1, 0.1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factor", "what"), [(NAN, "masked_lm_loss, gradient_norm "), (50.0, " is a spike, ")]
)
@pytest.mark.parametrize(
    ("policy", "parts"),
    [("skip", [(0, 0, 7), (8, 8, 4)]), ("rewind", [(0, 0, 5), (5, 8, 7)])],
)
def test_a_bad_loss_is_left_out(tmp_path, monkeypatch, policy, parts, factor, what):
    monkeypatch.setattr("bert_tf.training.trainer.LossGuard", ShortGuard)
    options = {"on_bad_loss": policy, "spike_sigmas": 30.0, "task": SpikyTask, "log_steps": 1}
    trainer = trainer_of(tmp_path, {7: factor}, **options)
    trainer.train()
    assert trainer.step == STEPS
    check_weights(trainer, parts)
    (event,) = events(tmp_path)
    assert (event["step"], event["done"]) == (8, policy)
    assert event.get("number") == (1 if policy == "rewind" else None)
    assert what in event["event"]
    if factor > 1:
        assert event["loss"] > 50 and event["loss"] > event["loss_limit"]
    else:
        assert event["loss"] == "nan"
    steps = [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")]
    assert steps == [step for step in range(1, STEPS + 1) if step != 8 or policy == "rewind"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "dies_at"),
    [("skip", 8), ("rewind", 6), ("rewind", 11)],
)
def test_a_killed_run_ends_with_the_same_bits(tmp_path, policy, dies_at):
    """Dies in the second try of step 6, after the rewind, or after the checkpoint after it."""
    bad = {6: NAN} if policy == "skip" else {6: NAN, 8: NAN}
    options = {"on_bad_loss": policy, "spike_sigmas": 1000.0, "log_steps": 1}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    trainer_of(whole, bad, **options).train()
    trainer = trainer_of(broken, bad, **options)
    add = trainer.log.add

    def die(step, row):
        if step == dies_at and len(events(broken)) == (1 if policy == "skip" else 2):
            raise KeyboardInterrupt
        return add(step, row)

    trainer.log.add = die
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer_of(broken, bad, **options).train()
    for name in ("metrics.jsonl", "events.jsonl", f"model.ckpt-{STEPS}.data-00000-of-00001"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
    assert len(events(whole)) == len(bad)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [pytest.param("skip", marks=pytest.mark.slow), "rewind"])
def test_too_many_end_the_run(tmp_path, policy):
    task = ToyTask(DROPPING, nan_from_step=6)
    trainer = make_trainer(tmp_path, task, jit_compile=False, on_bad_loss=policy, max_bad_losses=2)
    message = f"masked_lm_loss.*ckpt-5.*--on_bad_loss={policy} .*2 "
    with pytest.raises(FloatingPointError, match=message):
        trainer.train()
    assert [event["done"] for event in events(tmp_path)] == [policy, policy, "stop"]


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    trainer = trainer_of(tmp_path, on_bad_loss="skip")
    trainer.save()
    trainer.directory.wait()
    trainer.step = 1
    variable = trainer.task.model.trainable_variables[0]
    variable.assign(tf.fill(variable.shape, NAN))
    with pytest.raises(FloatingPointError):
        trainer.save()
    trainer.directory.wait()
    assert trainer.directory.steps() == [0]


def test_weights_that_are_too_large_are_never_saved(tmp_path):
    """Finite weights whose squares are not: nothing can be computed with them."""
    trainer = trainer_of(tmp_path, on_bad_loss="skip")
    trainer.step = 1
    variable = trainer.task.model.trainable_variables[0]
    variable.assign(tf.fill(variable.shape, 1e30))
    with pytest.raises(FloatingPointError):
        trainer.save()
    assert not trainer.directory.steps()


@pytest.mark.slow
def test_a_run_does_not_end_with_skipped_steps(tmp_path):
    """Fewer steps than `max_bad_losses`, and a kill among them: they are counted on."""
    options = {"task": lambda *_, **__: ToyTask(DROPPING, nan_from_step=8), "on_bad_loss": "skip"}
    trainer = trainer_of(tmp_path, **options)
    trainer.num_train_steps = 10
    trainer.save = lambda **_: None
    with pytest.raises(FloatingPointError):
        trainer.train()
    assert not trainer.directory.steps()


def test_the_count_of_skipped_steps_is_part_of_a_checkpoint(tmp_path):
    trainer = trainer_of(tmp_path, on_bad_loss="skip")
    trainer.loss_spikes.not_finite_in_a_row = 3
    trainer.step = 5
    trainer.save()
    trainer.directory.wait()
    assert trainer_of(tmp_path, on_bad_loss="skip").loss_spikes.not_finite_in_a_row == 3


def test_an_evaluation_without_a_value_is_an_error(tmp_path):
    trainer = trainer_of(tmp_path)
    variable = trainer.task.model.trainable_variables[0]
    variable.assign(tf.fill(variable.shape, NAN))
    with pytest.raises(FloatingPointError):
        trainer.evaluate()
