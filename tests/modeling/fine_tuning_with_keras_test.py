"""Fine-tuned models in Keras' own loop: fit, evaluate, predict, save, callbacks, replicas."""

import concurrent.futures
import multiprocessing
import subprocess
import sys
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import ModelConfig, OptimizerConfig
from bert_tf.modeling.models import BertClassifier, BertSpanLabeler, BertTokenClassifier
from bert_tf.modeling.multiple_choice import BertMultipleChoice
from bert_tf.optimization.optimizers import AdamW, build_optimizer

VOCAB_SIZE, ROWS, LENGTH, CHOICES = 30, 48, 8, 3
# Pieces that decide the labels.
GOOD, START, END = 5, 6, 7
ORDINARY = 10


class Task(NamedTuple):
    """Something to learn; the optimizers are spread over the tasks."""

    model: type[keras.Model]
    arguments: dict[str, Any]
    optimizer: str
    inputs: dict[str, np.ndarray]
    labels: Any
    weights: Any = None


def draw_inputs(*shape: int) -> dict[str, np.ndarray]:
    """Draws rows of ordinary pieces, the last three of every other row padding."""
    draw = np.random.default_rng(len(shape))
    mask = np.ones(shape, np.int32)
    mask[::2, ..., -3:] = 0
    return {
        "input_word_ids": draw.integers(ORDINARY, VOCAB_SIZE, shape).astype(np.int32) * mask,
        "input_mask": mask,
        "input_type_ids": np.zeros(shape, np.int32),
    }


def classification() -> Task:
    """Is there the good piece?"""
    inputs, labels = draw_inputs(ROWS, LENGTH), np.arange(ROWS) // 2 % 2
    places = 1 + np.arange(ROWS) % 4
    inputs["input_word_ids"][labels == 1, places[labels == 1]] = GOOD
    return Task(BertClassifier, {"num_labels": 2}, "adamw", inputs, labels)


def tagging() -> Task:
    """The rest of the piece's id; padding weighs nothing."""
    inputs = draw_inputs(ROWS, LENGTH)
    labels, weights = inputs["input_word_ids"] % 3, inputs["input_mask"].astype(np.float32)
    arguments = {"num_labels": 3}
    return Task(BertTokenClassifier, arguments, "adam_weight_decay", inputs, labels, weights)


def answering() -> Task:
    """From one piece to another."""
    inputs, rows = draw_inputs(ROWS, LENGTH), np.arange(ROWS)
    starts, ends = 1 + rows % 2, 3 + rows % 2
    inputs["input_word_ids"][rows, starts] = START
    inputs["input_word_ids"][rows, ends] = END
    return Task(BertSpanLabeler, {}, "lamb", inputs, {"start_logits": starts, "end_logits": ends})


def choosing() -> Task:
    """The choice with the good piece."""
    inputs, rows = draw_inputs(ROWS, CHOICES, LENGTH), np.arange(ROWS)
    inputs["input_word_ids"][rows, rows % CHOICES, 1] = GOOD
    return Task(BertMultipleChoice, {}, "adamw", inputs, rows % CHOICES)


TASKS = {task.__name__: task() for task in (classification, tagging, answering, choosing)}
EVERY_TASK = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


# Without dropout: Keras does not save the seeds, so it would differ after a model is loaded.
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CONFIG = ModelConfig(VOCAB_SIZE, 16, 1, 2, 32, max_position_embeddings=LENGTH, **NO_DROPOUT)


def make_model(task: Task, **options) -> keras.Model:
    """Makes and compiles a model from the same start."""
    keras.utils.set_random_seed(3)
    model = task.model(CONFIG, **task.arguments)
    options = {"jit_compile": False, "optimizer": make_optimizer(task.optimizer), **options}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if isinstance(task.labels, dict):
        model.compile(loss=dict.fromkeys(task.labels, loss), **options)
    else:
        model.compile(loss=loss, weighted_metrics=["accuracy"], **options)
    return model


def make_optimizer(name: str) -> keras.optimizers.Optimizer:
    rate = 0.1 if name == "lamb" else 0.01
    config = OptimizerConfig(name, rate, num_train_steps=500, num_warmup_steps=10)
    return build_optimizer(config)


def fit(model: keras.Model, task: Task, epochs: int, **options) -> list[float]:
    """Returns the loss of each epoch."""
    options = {"batch_size": 16, "shuffle": False, "verbose": 0, **options}
    data = {"sample_weight": task.weights, **options}
    return model.fit(task.inputs, task.labels, epochs=epochs, **data).history["loss"]


def predict(model: keras.Model, task: Task) -> np.ndarray:
    """Returns the logits, of spans [2, B, T]."""
    scores = model.predict(task.inputs, batch_size=20, verbose=0)
    return np.stack(list(scores.values())) if isinstance(scores, dict) else scores


def share_right(scores: np.ndarray, task: Task) -> float:
    labels = task.labels
    if isinstance(labels, dict):
        labels = np.stack(list(labels.values()))
    weights = np.ones(labels.shape) if task.weights is None else task.weights
    return float(np.average(scores.argmax(-1) == labels, weights=weights))


@EVERY_TASK
def test_fit_learns_and_a_loaded_model_goes_on(task, tmp_path):
    model = make_model(task)
    before = model.evaluate(task.inputs, task.labels, sample_weight=task.weights, verbose=0)
    losses = fit(model, task, epochs=25)
    after = model.evaluate(task.inputs, task.labels, sample_weight=task.weights, verbose=0)
    assert losses[-1] < 0.5 * losses[0]
    assert np.ravel(after)[0] < 0.3 * np.ravel(before)[0]
    scores = predict(model, task)
    assert share_right(scores, task) > 0.95
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(predict(loaded, task), scores)
    assert type(loaded.optimizer) is type(model.optimizer)
    assert loaded.optimizer.iterations == 75
    # The optimizer goes on with its moments, at its place in the schedule.
    assert fit(loaded, task, epochs=2) == fit(model, task, epochs=2)


IN_A_FRESH_PROCESS = """
import pathlib, sys
import keras, numpy as np
import bert_tf.modeling.multiple_choice, bert_tf.optimization.optimizers
for path in pathlib.Path(sys.argv[1]).glob("*.keras"):
    inputs = dict(np.load(path.with_suffix(".npz")))
    scores = keras.models.load_model(path).predict(inputs, batch_size=20, verbose=0)
    scores = np.stack(list(scores.values())) if isinstance(scores, dict) else scores
    np.save(path.with_suffix(".npy"), scores)
"""


def test_models_are_loaded_in_a_fresh_process(tmp_path):
    expected = {}
    for name, task in TASKS.items():
        model = make_model(task)
        fit(model, task, epochs=1)
        model.save(tmp_path / f"{name}.keras")
        np.savez(tmp_path / f"{name}.npz", **task.inputs)
        expected[name] = predict(model, task)
    command = [sys.executable, "-c", IN_A_FRESH_PROCESS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    for name, scores in expected.items():
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), scores, atol=1e-6)


def test_checkpoints_of_the_best_epoch(tmp_path):
    task = TASKS["classification"]
    model = make_model(task, optimizer=AdamW(0.01))
    best = {"monitor": "val_loss", "save_best_only": True}
    callbacks = [
        keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", **best),
        keras.callbacks.ModelCheckpoint(
            tmp_path / "best.weights.h5", save_weights_only=True, **best
        ),
        keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True),
    ]
    # Labels that contradict those of training: the loss rises as soon as something is learned.
    opposite = (task.inputs, 1 - task.labels)
    losses = fit(model, task, 30, validation_data=opposite, callbacks=callbacks)
    assert len(losses) < 30
    val_losses = model.history.history["val_loss"]
    assert len(val_losses) == np.argmin(val_losses) + 3
    assert model.evaluate(*opposite, verbose=0)[0] == pytest.approx(min(val_losses), abs=1e-5)
    loaded = keras.models.load_model(tmp_path / "best.keras")
    np.testing.assert_array_equal(predict(loaded, task), predict(model, task))
    other = task.model(CONFIG, **task.arguments)
    other.load_weights(tmp_path / "best.weights.h5")
    np.testing.assert_array_equal(predict(other, task), predict(model, task))


class Interruption(keras.callbacks.Callback):
    """A run that dies in its fifth epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 4:
            raise KeyboardInterrupt


def test_backup_and_restore_goes_on_to_the_same_weights(tmp_path):
    task = TASKS["classification"]
    whole = make_model(task)
    fit(whole, task, epochs=6)
    stopped = make_model(task)
    with pytest.raises(KeyboardInterrupt):
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
        fit(stopped, task, 6, callbacks=[backup, Interruption()])
    resumed = make_model(task)
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    assert len(fit(resumed, task, 6, callbacks=[backup])) == 2
    for variable, expected in zip(resumed.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(variable, expected, err_msg=variable.path)


def cross_entropies(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Computes the loss of each row, [B]."""
    scores = scores.astype(np.float64)
    normalizers = np.log(np.exp(scores).sum(-1))
    return normalizers - np.take_along_axis(scores, labels[:, None], -1)[:, 0]


def test_weights_of_classes_and_of_rows():
    task = TASKS["classification"]
    model = make_model(task, optimizer=keras.optimizers.SGD(0.0))
    head = model.head.output_weights
    head.assign(np.random.default_rng(0).normal(0.0, 1.0, head.shape))  # else all rows cost log 2
    costs = cross_entropies(predict(model, task), task.labels)
    assert np.ptp(costs) > 0.1
    everything = {"batch_size": ROWS, "epochs": 1}
    by_class = np.where(task.labels == 1, 3.0, 0.5)
    losses = fit(model, task, class_weight={0: 0.5, 1: 3.0}, **everything)
    assert losses[0] == pytest.approx(np.mean(by_class * costs), abs=1e-5)
    by_row = np.random.default_rng(1).uniform(0.0, 2.0, ROWS)
    losses = fit(model, task, sample_weight=by_row, **everything)
    assert losses[0] == pytest.approx(np.mean(by_row * costs), abs=1e-5)


def test_tags_of_padding_do_not_count():
    task = TASKS["tagging"]
    model = make_model(task)
    other = np.where(task.weights == 0, 2 - task.labels, task.labels)
    assert (other != task.labels).sum() > 20
    losses = [
        model.evaluate(task.inputs, labels, sample_weight=task.weights, verbose=0)[0]
        for labels in (task.labels, other)
    ]
    assert losses[0] == losses[1]


def test_only_the_head_learns_if_the_encoder_is_frozen():
    task = TASKS["classification"]
    model = make_model(task)
    model.bert.trainable = False
    model.compile(make_optimizer("adamw"), model.loss, jit_compile=False)
    before = {variable.path: variable.numpy() for variable in model.variables}
    losses = fit(model, task, epochs=5)
    assert losses[-1] < losses[0]
    changed = {v.path for v in model.weights if (v.numpy() != before[v.path]).any()}
    assert changed == {"cls/classifier/output_weights", "cls/classifier/output_bias"}


@pytest.mark.parametrize("name", ["answering", "choosing"])
def test_xla_computes_the_same(name):
    losses = [
        fit(make_model(TASKS[name], jit_compile=jit), TASKS[name], 2) for jit in (False, True)
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


def fit_everything(strategy: tf.distribute.Strategy) -> dict[str, list[float]]:
    """Returns the losses of every task's epochs."""
    losses = {}
    for name, task in TASKS.items():
        with strategy.scope():
            model = make_model(task)
        columns = (task.inputs, task.labels)
        columns += () if task.weights is None else (task.weights,)
        data = tf.data.Dataset.from_tensor_slices(columns).batch(16)
        losses[name] = model.fit(data, epochs=4, shuffle=False, verbose=0).history["loss"]
    return losses


def fit_on_two_devices() -> dict[str, list[float]]:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return fit_everything(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))


def test_two_replicas_learn_as_one():
    # In a process of its own: TensorFlow mixes up the all-reduces of several mirrored strategies.
    with concurrent.futures.ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        two = pool.submit(fit_on_two_devices)
        one = fit_everything(tf.distribute.get_strategy())
        for name, losses in one.items():
            np.testing.assert_allclose(two.result()[name], losses, atol=1e-5, err_msg=name)
            assert losses[3] < losses[0]
