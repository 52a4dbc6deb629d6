"""The moving average of the weights against NumPy: kept, restored, evaluated, read by others."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.google import with_averages
from bert_tf.config import OptimizerConfig
from bert_tf.training.checkpointing import RunDirectory
from bert_tf.training.optimizers import LAMB, AdamW, build_optimizer
from tests.reference.optimizers import Twin
from tests.training.optimizers_test import make_gradients, make_variables, two_replicas


@pytest.mark.parametrize(
    ("decay", "kind"),
    [
        pytest.param(0.9, "adamw", marks=pytest.mark.slow),
        (0.9, "lamb"),
        (0.2, "adamw"),
        (0.2, "lamb"),
    ],
)
def test_thirty_steps_equal_numpy(kind, decay):
    variables = make_variables()
    twins = [Twin(kind, v.numpy(), v.name != "bias", decay) for v in variables]
    optimizer = {"adamw": AdamW, "lamb": LAMB}[kind](0.1, clip_norm=0.0, ema_decay=decay)
    step_once = tf.function(lambda g: optimizer.apply_summed(g, variables))
    optimizer.build(variables)
    for step in range(30):
        gradients = make_gradients(step)
        step_once([tf.constant(gradient) for gradient in gradients])
        averages = [average.numpy() for average in optimizer._averages]
        for variable, average, twin, gradient in zip(
            variables, averages, twins, gradients, strict=True
        ):
            twin.step(gradient, 0.1)
            np.testing.assert_allclose(average, twin.average, rtol=2e-5, atol=2e-5)
            if step == 0:
                np.testing.assert_array_equal(average, variable.numpy())


def test_averages_take_the_place_of_the_weights_and_leave_it():
    variables = make_variables()
    optimizer = AdamW(0.1, ema_decay=0.9)
    optimizer.build(variables)
    with optimizer.averaged_weights():  # No update yet: there are none.
        np.testing.assert_array_equal(variables[0].numpy(), make_variables()[0].numpy())
    for step in range(5):
        optimizer.apply_summed([tf.constant(g) for g in make_gradients(step)], variables)
    weights = [variable.numpy() for variable in variables]
    averages = [average.numpy() for average in optimizer._averages]
    with pytest.raises(KeyError), optimizer.averaged_weights():
        for variable, average, weight in zip(variables, averages, weights, strict=True):
            np.testing.assert_array_equal(variable.numpy(), average)
            assert np.abs(average - weight).max() > 1e-3
        raise KeyError
    for variable, weight in zip(variables, weights, strict=True):
        np.testing.assert_array_equal(variable.numpy(), weight)


def test_two_replicas_keep_the_average_of_one_device():
    strategy = two_replicas()
    with strategy.scope():
        variables = make_variables()
        optimizer = AdamW(0.1, ema_decay=0.5)
        optimizer.build(variables)
    halves = tf.function(
        lambda g: strategy.run(lambda x: optimizer.apply([v / 2 for v in x], variables), (g,))
    )
    single, one_device = make_variables(), AdamW(0.1, ema_decay=0.5)
    for step in range(4):
        gradients = [tf.constant(g) for g in make_gradients(step)]
        halves(gradients)
        one_device.apply_summed(gradients, single)
    with optimizer.averaged_weights(), one_device.averaged_weights():
        for one, two in zip(variables, single, strict=True):
            for copy in strategy.experimental_local_results(one.value):
                np.testing.assert_allclose(copy, two.numpy(), rtol=1e-5, atol=1e-6)
    for average, other in zip(optimizer._averages, one_device._averages, strict=True):
        for copy in strategy.experimental_local_results(average.value):
            np.testing.assert_allclose(copy, other.numpy(), rtol=1e-5, atol=1e-6)


def test_a_checkpoint_holds_them_under_tf1s_name_and_readers_take_them(tmp_path):
    variables = make_variables()
    optimizer = AdamW(0.1, ema_decay=0.5)
    optimizer.build(variables)
    state = {v.path: v.value for v in variables} | optimizer.named_variables()
    directory = RunDirectory(tmp_path, state)

    def read(step):
        directory.save(step, {})
        reader = tf.train.load_checkpoint(directory.prefix(step))
        return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}

    before = with_averages(read(0))
    np.testing.assert_array_equal(before["kernel"], variables[0].numpy())
    for step in range(3):
        optimizer.apply_summed([tf.constant(g) for g in make_gradients(step)], variables)
    values = read(3)
    expected = values["kernel/ExponentialMovingAverage"]
    np.testing.assert_array_equal(expected, optimizer._averages[0].numpy())
    assert values["kernel/ExponentialMovingAverage"].dtype == np.float32
    after = with_averages(values)
    np.testing.assert_array_equal(after["kernel"], expected)
    assert np.abs(after["kernel"] - values["kernel"]).max() > 1e-3
    assert not any("ExponentialMovingAverage" in name for name in after)

    optimizer.apply_summed([tf.constant(g) for g in make_gradients(3)], variables)
    directory.restore()
    optimizer.apply_summed([tf.constant(g) for g in make_gradients(3)], variables)
    resumed = optimizer._averages[0].numpy()
    directory.restore()
    optimizer.apply_summed([tf.constant(g) for g in make_gradients(3)], variables)
    np.testing.assert_array_equal(optimizer._averages[0].numpy(), resumed)


def test_none_are_kept_unless_asked_for():
    optimizer = build_optimizer(OptimizerConfig())
    optimizer.build(make_variables())
    assert not any("Average" in name for name in optimizer.named_variables())
    again = keras.optimizers.deserialize(keras.optimizers.serialize(AdamW(ema_decay=0.7)))
    assert again.ema_decay == 0.7
    assert build_optimizer(OptimizerConfig(ema_decay=0.5)).ema_decay == 0.5
