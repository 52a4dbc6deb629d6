"""What users of Keras are used to: callbacks that set the rate, a second fit, texts everywhere."""

import pathlib

import keras
import numpy as np
import pytest

from bert_tf.modeling.models import BertClassifier
from bert_tf.optimization.optimizers import AdamW
from bert_tf.optimization.schedules import LinearWarmupLinearDecay
from tests.tiny_model import write_tiny_model

LABELS = ("bad", "good")
TEXTS = ["good a b", "bad c", "good d e f", "bad"] * 4
NAMES = ["good", "bad"] * 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A pre-trained model without a classifier, and without dropout."""
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    path = tmp_path_factory.mktemp("start") / "model"
    return write_tiny_model(path, "good", "bad", num_hidden_layers=1, **no_dropout)


def start_model(folder: pathlib.Path, **options) -> BertClassifier:
    keras.utils.set_random_seed(3)
    return BertClassifier.from_pretrained(folder, **{"labels": LABELS, **options})


def weights_of(model: keras.Model) -> list[np.ndarray]:
    return [value.copy() for value in model.get_weights()]


def test_callbacks_set_the_rate_of_a_model_that_was_not_compiled(folder):
    model = start_model(folder)
    halving = keras.callbacks.LearningRateScheduler(lambda _, rate: rate * 0.5)
    options = {"epochs": 3, "batch_size": 16, "learning_rate": 8e-3, "verbose": 0}
    history = model.fit(TEXTS, NAMES, callbacks=[halving], **options).history
    np.testing.assert_allclose(history["learning_rate"], [4e-3, 2e-3, 1e-3], rtol=1e-6)
    # The next fit starts from its own rate.
    reducing = keras.callbacks.ReduceLROnPlateau(patience=0, min_delta=10.0, monitor="loss")
    history = model.fit(TEXTS, NAMES, callbacks=reducing, **options).history
    np.testing.assert_allclose(history["learning_rate"], [8e-3, 8e-3, 8e-4], rtol=1e-6)
    assert float(model.optimizer.learning_rate) == pytest.approx(8e-5)


def test_a_rate_of_zero_by_a_callback_stops_the_weights(folder):
    model = start_model(folder)
    before = weights_of(model)
    zero = keras.callbacks.LearningRateScheduler(lambda _: 0.0)
    model.fit(TEXTS, NAMES, callbacks=[zero], batch_size=4, epochs=2, verbose=0)
    for found, expected in zip(weights_of(model)[: len(before)], before, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("as_list", [True, False])
def test_callbacks_that_set_the_rate_of_a_schedule_are_refused_before_training(folder, as_list):
    model = start_model(folder)
    model.compile(AdamW(LinearWarmupLinearDecay(1e-3, 4)))
    callback = keras.callbacks.ReduceLROnPlateau(monitor="loss")
    before = weights_of(model)
    with pytest.raises(ValueError, match="ReduceLROnPlateau"):
        model.fit(TEXTS, NAMES, callbacks=[callback] if as_list else callback, verbose=0)
    np.testing.assert_array_equal(weights_of(model)[0], before[0])
    model.compile(AdamW(1e-3))
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch: 1e-3 / (epoch + 1))
    history = model.fit(TEXTS, NAMES, callbacks=[scheduler], epochs=2, verbose=0).history
    np.testing.assert_allclose(history["learning_rate"], [1e-3, 5e-4], rtol=1e-6)


def test_a_second_fit_is_not_traced_again_and_is_as_the_first(folder):
    model = start_model(folder)
    own, calls = model.task_loss, []

    def task_loss(*arguments, **options):
        calls.append(1)  # In the graph's making alone.
        return own(*arguments, **options)

    object.__setattr__(model, "task_loss", task_loss)
    start = [keras.ops.convert_to_numpy(variable) for variable in model.weights]
    dev = (TEXTS[:4], NAMES[:4])
    options = {"validation_data": dev, "batch_size": 8, "shuffle": False, "verbose": 0}
    losses, traces = [], []
    for _ in range(3):
        for variable, value in zip(model.weights, start, strict=True):
            variable.assign(value)
        losses.append(model.fit(TEXTS, NAMES, epochs=2, **options).history["loss"])
        traces.append(len(calls))
    assert traces[0] and traces[1:] == traces[:1] * 2
    assert losses[1] == losses[0] and losses[2] == losses[0]
    model.fit(TEXTS[:8], NAMES[:8], epochs=3, learning_rate=1e-4, **options)  # Another length.
    assert len(calls) == traces[0]
    assert model.optimizer.rate_factor.get_config()["num_train_steps"] == 3
    model.bert.trainable = False  # Other variables: another graph.
    model.fit(TEXTS, NAMES, **options)
    assert len(calls) > traces[0]
