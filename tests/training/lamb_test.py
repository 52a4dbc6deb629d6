"""LAMB over 20 steps against NumPy and two public implementations."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.training.optimizers import LAMB
from tests.float_bounds import OTHER_FRAMEWORK, assert_close

STEPS = 20
SHAPES = {"kernel": (6, 5), "LayerNorm/gamma": (5,), "bias": (5,), "zeros/kernel": (3, 2)}
RATE = 0.02


def first_values() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    values = {name: draw.normal(size=shape) for name, shape in SHAPES.items()}
    return {name: np.float32(v * (name != "zeros/kernel")) for name, v in values.items()}


def gradients(step: int) -> dict[str, np.ndarray]:
    """Returns gradients whose global norm is above 1 in some steps and below in others."""
    draw = np.random.default_rng(50 + step)
    size = 0.02 if step % 3 else 3.0
    return {name: np.float32(draw.normal(size=shape) * size) for name, shape in SHAPES.items()}


def is_decayed(name: str) -> bool:
    return "LayerNorm" not in name and "bias" not in name


def train(weight_decay: float, clip_norm: float) -> list[dict[str, np.ndarray]]:
    """Returns the values after each of our steps."""
    variables = {}
    for name, value in first_values().items():
        with keras.name_scope(name.rpartition("/")[0] or "layer"):
            variables[name] = keras.Variable(value, name=name.rpartition("/")[2])
    optimizer = LAMB(RATE, weight_decay_rate=weight_decay, clip_norm=clip_norm)
    values = []
    for step in range(STEPS):
        given = [tf.constant(gradient) for gradient in gradients(step).values()]
        optimizer.apply_summed(given, list(variables.values()))
        values.append({name: variable.numpy() for name, variable in variables.items()})
    return values


def check(received, expected):
    assert len(received) == len(expected) == STEPS
    for step, (ours, theirs) in enumerate(zip(received, expected, strict=True)):
        for name in SHAPES:
            assert_close(ours[name], theirs[name], OTHER_FRAMEWORK, err_msg=f"{name}, step {step}")


def test_twenty_steps_equal_optax():
    """optax.lamb for what is decayed, its Adam for the rest, its clipping before both."""
    optax = pytest.importorskip("optax", reason="optax is not installed: pip install optax")
    parts = optax.partition(
        {
            True: optax.lamb(RATE, b1=0.9, b2=0.999, eps=1e-6, weight_decay=0.01),
            False: optax.adam(RATE, b1=0.9, b2=0.999, eps=1e-6),
        },
        {name: is_decayed(name) for name in SHAPES},
    )
    theirs = optax.chain(optax.clip_by_global_norm(1.0), parts)
    values = first_values()
    state, expected = theirs.init(values), []
    for step in range(STEPS):
        updates, state = theirs.update(gradients(step), state, values)
        values = optax.apply_updates(values, updates)
        expected.append({name: np.asarray(value) for name, value in values.items()})
    check(train(0.01, 1.0), expected)


def test_twenty_steps_equal_keras_where_both_are_alike():
    """Keras takes the decay after the ratio and a ratio for all variables: with no decay and the

    excluded variables left out it must be the same.
    """
    values = {name: keras.Variable(value) for name, value in first_values().items()}
    theirs, expected = keras.optimizers.Lamb(RATE, epsilon=1e-6), []
    for step in range(STEPS):
        theirs.apply([tf.constant(g) for g in gradients(step).values()], list(values.values()))
        expected.append({name: value.numpy() for name, value in values.items()})
    received = train(0.0, 0.0)
    for ours, other in zip(received, expected, strict=True):
        for name in filter(is_decayed, SHAPES):
            assert_close(ours[name], other[name])
    assert np.abs(received[-1]["bias"] - expected[-1]["bias"]).max() > 0.01
