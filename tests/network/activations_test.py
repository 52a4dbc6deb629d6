"""GELU's values and slopes, against the formulas in float64."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.network.activations import activation, inference_form
from tests.float_bounds import assert_close

POINTS = np.linspace(-9.0, 9.0, 2001)


def gelu_exact(x):
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def gelu_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("formula", [gelu_exact, gelu_tanh])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_values_and_slopes(formula, dtype, tolerance, jit_compile):
    @tf.function(jit_compile=jit_compile)
    def value_and_slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            values = activation(formula.__name__)(x)
        return values, tape.gradient(values, x, 3.0 * tf.ones_like(x))

    values, slopes = value_and_slope(tf.constant(POINTS, dtype))
    np.testing.assert_allclose(values, formula(POINTS), atol=tolerance)
    differences = (formula(POINTS + 1e-6) - formula(POINTS - 1e-6)) / 2e-6
    np.testing.assert_allclose(slopes, 3.0 * differences, atol=3.0 * tolerance)


@pytest.mark.parametrize("formula", [gelu_exact, gelu_tanh])
def test_form_for_inference_has_the_same_values_and_no_gradient_of_its_own(formula):
    function = inference_form(activation(formula.__name__))
    assert_close(function(tf.constant(POINTS)), formula(POINTS))
    graph = tf.function(function).get_concrete_function(tf.TensorSpec([None])).graph
    assert "IdentityN" not in {operation.type for operation in graph.get_operations()}


def test_other_functions_are_their_own_form_for_inference():
    assert inference_form(activation("relu")) is activation("relu")


def test_unknown_name():
    with pytest.raises(ValueError, match="hidden_act: .*'gelu', .*'gelu_exact'"):
        activation("gelu")


@pytest.mark.parametrize("name", ["gelu_tanh", "gelu_exact"])
def test_slopes_of_large_float16_numbers(name):
    x = tf.constant([-30000, -800, -300, 300, 800, 30000], tf.float16)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = activation(name)(x)
    np.testing.assert_array_equal(value, np.maximum(x, 0))
    np.testing.assert_array_equal(tape.gradient(value, x), [0, 0, 0, 1, 1, 1])
