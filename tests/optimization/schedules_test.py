"""The learning rate at the corners, by hand."""

import keras
import numpy as np
import pytest

from bert_tf.optimization.schedules import LinearWarmupLinearDecay
from tests.reference.optimizers import linear_schedule


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 0.0), (5, 0.5), (9, 0.9), (10, 0.9), (50, 0.5), (99, 0.01), (100, 0.0), (150, 0.0)],
)
def test_warm_up_then_decay_from_step_zero(step, rate):
    schedule = LinearWarmupLinearDecay(1.0, num_train_steps=100, num_warmup_steps=10)
    assert abs(float(schedule(step)) - rate) < 1e-6
    assert abs(float(schedule(step)) - linear_schedule(1.0, step, 100, 10)) < 1e-6


def test_without_warm_up():
    schedule = LinearWarmupLinearDecay(2.0, num_train_steps=4)
    np.testing.assert_allclose([schedule(i) for i in range(6)], [2, 1.5, 1, 0.5, 0, 0], atol=1e-6)


def test_serialises():
    schedule = LinearWarmupLinearDecay(0.1, 7, 3)
    config = keras.optimizers.schedules.serialize(schedule)
    twin = keras.optimizers.schedules.deserialize(config)
    assert float(twin(5)) == float(schedule(5)) > 0
