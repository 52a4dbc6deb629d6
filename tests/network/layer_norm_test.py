"""LayerNorm against Keras' and its gradient against the one that TensorFlow derives."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.network.layer_norm import LayerNorm, normalize

EPSILON = 1e-3  # Large enough to be seen.


def make_values(*shape: int) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(3)
    inputs = generator.normal(2.0, 3.0, shape)
    inputs[0] *= 0.01  # A row whose variance is not far above epsilon.
    gamma, beta = generator.normal(1.0, 0.5, (2, shape[-1]))
    return inputs, gamma, beta, generator.normal(size=shape)


def derived(values: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """The formula of the paper, and what TensorFlow derives from it, in float64."""
    inputs, gamma, beta, upstream = map(tf.constant, values)
    with tf.GradientTape() as tape:
        tape.watch([inputs, gamma, beta])
        mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
        outputs = (inputs - mean) / tf.sqrt(variance + EPSILON) * gamma + beta
        loss = tf.reduce_sum(outputs * upstream)
    return outputs.numpy(), *(g.numpy() for g in tape.gradient(loss, [inputs, gamma, beta]))


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", [(50, 24), (4, 7, 24)])
def test_gradient_is_the_derived_one(shape, jit_compile):
    values = make_values(*shape)

    @tf.function(jit_compile=jit_compile)
    def run(inputs, gamma, beta, upstream):
        with tf.GradientTape() as tape:
            tape.watch([inputs, gamma, beta])
            outputs = normalize(inputs, gamma, beta, EPSILON)
            loss = tf.reduce_sum(outputs * upstream)
        return outputs, *tape.gradient(loss, [inputs, gamma, beta])

    received = run(*(tf.constant(value, tf.float32) for value in values))
    for one, two in zip(received, derived(values), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5 * np.abs(two).max())


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_layer_equals_keras(policy):
    inputs, gamma, beta, _ = make_values(30, 16)
    ours, theirs = (
        kind(epsilon=EPSILON, name="LayerNorm", dtype=policy)
        for kind in (LayerNorm, keras.layers.LayerNormalization)
    )
    for layer in (ours, theirs):
        layer.build((None, 16))
        layer.set_weights([gamma, beta])
    inputs = tf.constant(inputs, ours.compute_dtype)
    expected = theirs(inputs)
    for training in (False, True):
        received = ours(inputs, training=training)
        assert received.dtype == expected.dtype
        np.testing.assert_array_equal(received.numpy(), expected.numpy())
    assert [v.path for v in ours.weights] == ["LayerNorm/gamma", "LayerNorm/beta"]


def test_gradient_is_the_short_one_in_training_alone():
    layer = LayerNorm(epsilon=EPSILON)
    layer.build((None, 8))

    def count(training: bool) -> int:
        function = tf.function(lambda x: tf.gradients(layer(x, training=training), x))
        operations = function.get_concrete_function(tf.TensorSpec([None, 8])).graph.get_operations()
        return len(operations)

    assert count(True) < count(False)
