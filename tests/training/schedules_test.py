"""The learning rate at the corners by hand, and every step against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import OptimizerConfig
from bert_tf.training.schedules import (
    LinearWarmupCosineDecay,
    LinearWarmupLinearDecay,
    LinearWarmupPolynomialDecay,
    LinearWarmupTrapezoid,
    WarmupFactor,
    build_schedule,
)
from tests.float_bounds import assert_close
from tests.reference import optimizers as reference


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 0.0), (5, 0.5), (9, 0.9), (10, 0.9), (50, 0.5), (99, 0.01), (100, 0.0), (150, 0.0)],
)
def test_warm_up_then_decay_from_step_zero(step, rate):
    schedule = LinearWarmupLinearDecay(1.0, num_train_steps=100, num_warmup_steps=10)
    assert abs(float(schedule(step)) - rate) < 1e-6
    assert abs(float(schedule(step)) - reference.linear_schedule(1.0, step, 100, 10)) < 1e-6


@pytest.mark.parametrize(("steps", "warmup"), [(100, 10), (4, 0), (1, 0), (37, 3)])
def test_the_factor_is_the_schedule_to_the_bit(steps, warmup):
    schedule, factor = LinearWarmupLinearDecay(5e-5, steps, warmup), WarmupFactor()
    factor.set_steps(9, 5)  # Another run before.
    factor.set_steps(steps, warmup)
    for step in range(steps + 3):
        assert float(np.float32(5e-5) * factor(step).numpy()) == float(schedule(step))


def test_linear_is_that_of_google_to_the_bit():
    """Its graph in create_optimizer: polynomial_decay of power 1, and the warm-up by a mask."""
    steps, warmup, peak = 1000, 77, 1e-4
    decay = tf.compat.v1.train.polynomial_decay
    schedule = LinearWarmupLinearDecay(peak, steps, warmup)
    for step in range(0, 1100, 7):
        rate = decay(tf.constant(peak), tf.constant(step), steps, 0.0, 1.0)()
        is_warmup = np.float32(step < warmup)
        rising = np.float32(peak) * (np.float32(step) / np.float32(warmup))
        assert float(schedule(step)) == (1 - is_warmup) * float(rate) + is_warmup * float(rising)


CASES = {
    "root": (LinearWarmupPolynomialDecay, {"power": 0.5}),
    "polynomial": (LinearWarmupPolynomialDecay, {"end_learning_rate": 0.1, "power": 2.0}),
    "cosine": (LinearWarmupCosineDecay, {}),
    "cosine_to_a_tenth": (LinearWarmupCosineDecay, {"end_learning_rate": 0.1}),
    "trapezoid": (LinearWarmupTrapezoid, {"end_learning_rate": 0.1, "num_cooldown_steps": 30}),
    "constant": (LinearWarmupTrapezoid, {}),
}
# By hand: warm-up over 20 of 100 steps to a peak of 1.
CORNERS = {
    "root": {0: 0.0, 10: 0.5, 19: 0.95, 20: 0.8**0.5, 64: 0.6, 100: 0.0, 120: 0.0},
    "polynomial": {10: 0.5, 20: 0.1 + 0.9 * 0.64, 50: 0.1 + 0.9 * 0.25, 100: 0.1, 120: 0.1},
    "cosine": {0: 0.0, 20: 1.0, 40: 0.5 + 0.125**0.5, 60: 0.5, 100: 0.0, 120: 0.0},
    "cosine_to_a_tenth": {20: 1.0, 60: 0.55, 100: 0.1, 120: 0.1},
    "trapezoid": {10: 0.5, 20: 1.0, 70: 1.0, 80: 0.7, 100: 0.1, 120: 0.1},
    "constant": {0: 0.0, 10: 0.5, 20: 1.0, 100: 1.0, 120: 1.0},
}


@pytest.mark.parametrize("name", CASES)
def test_corners_by_hand_and_every_step_like_numpy(name):
    kind, options = CASES[name]
    schedule = kind(1.0, 100, 20, **options)
    for step, rate in CORNERS[name].items():
        assert_close(float(schedule(step)), rate)
    expected = [reference.schedule(kind.__name__, 1.0, s, 100, 20, **options) for s in range(130)]
    received = [float(schedule(step)) for step in range(130)]
    assert_close(received, expected)
    compiled = tf.function(schedule, jit_compile=True)
    assert_close([compiled(tf.constant(s)) for s in (0, 20, 77)], np.take(
        expected, [0, 20, 77]))  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_serialises(name):
    kind, options = CASES[name]
    schedule = kind(0.1, 70, 3, **options)
    config = keras.optimizers.schedules.serialize(schedule)
    twin = keras.optimizers.schedules.deserialize(config)
    assert type(twin) is kind
    assert float(twin(65)) == float(schedule(65)) > 0


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, LinearWarmupLinearDecay),
        ({"learning_rate_schedule": "polynomial", "decay_power": 0.5}, LinearWarmupPolynomialDecay),
        ({"learning_rate_schedule": "cosine", "end_learning_rate": 1e-5}, LinearWarmupCosineDecay),
        (
            {"learning_rate_schedule": "trapezoid", "num_cooldown_steps": 20},
            LinearWarmupTrapezoid,
        ),
    ],
)
def test_configuration_names_the_schedule(options, kind):
    schedule = build_schedule(OptimizerConfig(num_train_steps=100, num_warmup_steps=3, **options))
    assert type(schedule) is kind
    config = schedule.get_config()
    assert (config["num_train_steps"], config["num_warmup_steps"]) == (100, 3)
    names = {"decay_power": "power", "learning_rate_schedule": None}
    for name, value in options.items():
        if name := names.get(name, name):
            assert config[name] == value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay_power": 0.5}, "decay_power=0.5 .*learning_rate_schedule linear.*polynomial"),
        ({"end_learning_rate": 0.1}, "end_learning_rate=0.1 .*learning_rate_schedule linear"),
        (
            {"learning_rate_schedule": "cosine", "num_cooldown_steps": 9},
            "num_cooldown_steps=9 .*learning_rate_schedule cosine.*trapezoid",
        ),
    ],
)
def test_options_without_effect_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(**options)


def test_the_end_must_not_be_above_the_peak():
    rates = {"learning_rate": 1e-3, "learning_rate_schedule": "cosine"}
    OptimizerConfig(**rates, end_learning_rate=1e-3)
    with pytest.raises(ValueError, match=r"end_learning_rate 0.002 .*learning_rate 0.001"):
        OptimizerConfig(**rates, end_learning_rate=2e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"num_train_steps": 100, "num_warmup_steps": 50, "num_cooldown_steps": 60},
            "num_warmup_steps 50 .*num_cooldown_steps 60 .*100 steps",
        ),
        (
            {"num_train_steps": 100, "num_warmup_steps": 0, "num_cooldown_steps": 200},
            "num_cooldown_steps 200 .*100 steps",
        ),
        (
            {"train_minutes": 5.0, "warmup_proportion": 0.6, "cooldown_proportion": 0.5},
            "warmup_proportion 0.6 .*cooldown_proportion 0.5 .* 1;",
        ),
    ],
)
def test_warmup_and_cooldown_must_fit(options, message):
    config = OptimizerConfig(learning_rate_schedule="trapezoid", **options)
    with pytest.raises(ValueError, match=message):
        config.check_lengths()
    with pytest.raises(ValueError, match=message):
        build_schedule(config)
