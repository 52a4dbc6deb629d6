"""Fine-tuned models in Keras' own loop: fit, evaluate, predict, save, callbacks, replicas.

Every model starts from a checkpoint.
"""

import concurrent.futures
import multiprocessing
import pathlib
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import OptimizerConfig
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.tagging.model import BertTokenClassifier
from bert_tf.training.optimizers import build_optimizer
from tests.float_bounds import assert_close
from tests.tiny_model import tiny_words, write_tiny_model

ROWS, LENGTH, CHOICES = 48, 8, 3
TOKENS = tiny_words()
CLS, SEP = TOKENS.index("[CLS]"), TOKENS.index("[SEP]")
# Pieces that decide the labels, and the others; each is a word of one letter.
GOOD, START, END = (TOKENS.index(letter) for letter in "abc")
ORDINARY = range(TOKENS.index("f"), TOKENS.index("z") + 1)


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
    ids = np.random.default_rng(len(shape)).choice(ORDINARY, shape).astype(np.int32)
    ids[..., 0], ids[1::2, ..., -1], ids[::2, ..., -4] = CLS, SEP, SEP
    mask = np.ones(shape, np.int32)
    mask[::2, ..., -3:] = 0
    return {
        "input_word_ids": ids * mask,
        "input_mask": mask,
        "input_type_ids": np.zeros(shape, np.int32),
    }


def classification() -> Task:
    """Is there the good piece?"""
    inputs, labels = draw_inputs(ROWS, LENGTH), np.arange(ROWS) // 2 % 2
    places = 1 + np.arange(ROWS) % 3
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
EVERY_TASK = pytest.mark.parametrize("name", TASKS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A pre-trained model; without dropout, whose seeds Keras does not save with a model."""
    shape = {"num_hidden_layers": 1, "max_position_embeddings": LENGTH}
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return write_tiny_model(tmp_path_factory.mktemp("start") / "model", **shape, **no_dropout)


def start_model(folder: pathlib.Path, task: Task) -> keras.Model:
    """Makes a model, always the same."""
    keras.utils.set_random_seed(3)
    return task.model.from_pretrained(folder, ["cls/"], **task.arguments)


def make_model(folder: pathlib.Path, task: Task, **options) -> keras.Model:
    """Makes and compiles a model."""
    model = start_model(folder, task)
    options = {"jit_compile": False, "optimizer": make_optimizer(task.optimizer), **options}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if isinstance(task.labels, dict):
        model.compile(loss=dict.fromkeys(task.labels, loss), **options)
    else:
        model.compile(loss=loss, weighted_metrics=["accuracy"], **options)
    return model


def make_optimizer(name: str) -> keras.optimizers.Optimizer:
    rate = 0.03 if name == "lamb" else 0.01
    config = OptimizerConfig(name, rate, num_train_steps=500, num_warmup_steps=10)
    return build_optimizer(config)


def fit(model: keras.Model, task: Task, epochs: int, **options) -> list[float]:
    """Returns the loss of each epoch."""
    options = {"batch_size": 16, "shuffle": False, "verbose": 0, **options}
    data = {"sample_weight": task.weights, **options}
    return model.fit(task.inputs, task.labels, epochs=epochs, **data).history["loss"]


def predict(model: keras.Model, inputs: Any) -> np.ndarray:
    """Returns the logits, of spans [2, B, T]."""
    scores = model.predict(inputs, batch_size=ROWS, verbose=0)
    return np.stack(list(scores.values())) if isinstance(scores, dict) else scores


def share_right(scores: np.ndarray, task: Task) -> float:
    labels = task.labels
    if isinstance(labels, dict):
        labels = np.stack(list(labels.values()))
    weights = np.ones(labels.shape) if task.weights is None else task.weights
    return float(np.average(scores.argmax(-1) == labels, weights=weights))


@pytest.mark.slow
@EVERY_TASK
def test_fit_learns_and_a_loaded_model_goes_on(name, folder, tmp_path):
    task = TASKS[name]
    model = make_model(folder, task)
    losses = fit(model, task, epochs=25)
    assert losses[-1] < 0.3 * losses[0]
    scores = predict(model, task.inputs)
    assert share_right(scores, task) > 0.95
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(predict(loaded, task.inputs), scores)
    inputs = {}
    for key, values in task.inputs.items():
        inputs[key] = keras.Input(values.shape[1:], dtype="int32", name=key)
    assert_close(predict(keras.Model(inputs, loaded(inputs)), task.inputs), scores)
    assert type(loaded.optimizer) is type(model.optimizer)
    assert loaded.optimizer.iterations == 75
    # The optimizer goes on with its moments, at its place in the schedule.
    assert fit(loaded, task, epochs=2) == fit(model, task, epochs=2)


class Interruption(keras.callbacks.Callback):
    """A run that dies in its fifth epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 4:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_backup_and_restore_goes_on_to_the_same_weights(folder, tmp_path):
    task = TASKS["classification"]
    whole = make_model(folder, task)
    fit(whole, task, epochs=6)
    stopped = make_model(folder, task)
    with pytest.raises(KeyboardInterrupt):
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
        fit(stopped, task, 6, callbacks=[backup, Interruption()])
    resumed = make_model(folder, task)
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    assert len(fit(resumed, task, 6, callbacks=[backup])) == 2
    for variable, expected in zip(resumed.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(variable, expected, err_msg=variable.path)


def test_tags_of_padding_do_not_count(folder):
    task = TASKS["tagging"]
    model = make_model(folder, task)
    other = np.where(task.weights == 0, 2 - task.labels, task.labels)
    assert (other != task.labels).sum() > 20
    losses = [
        model.evaluate(task.inputs, labels, sample_weight=task.weights, verbose=0)[0]
        for labels in (task.labels, other)
    ]
    assert losses[0] == losses[1]


@pytest.mark.filterwarnings("error::UserWarning")  # "Skipping variable loading for optimizer ..."
@pytest.mark.slow
@pytest.mark.parametrize("frozen", ["embeddings", ""])
@pytest.mark.parametrize("is_wrapped", [True, False])
def test_a_loaded_model_goes_on_with_its_frozen_layers(frozen, is_wrapped, folder, tmp_path):
    task = TASKS["classification"]
    model = start_model(folder, task)
    (getattr(model.bert, frozen) if frozen else model.bert).trainable = False
    trainable = [variable.path for variable in model.trainable_variables]
    before = {variable.path: variable.numpy() for variable in model.variables}
    if is_wrapped:
        inputs = {name: keras.Input((LENGTH,), dtype="int32", name=name) for name in task.inputs}
        model = keras.Model(inputs, model(inputs))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(make_optimizer("adamw"), loss, jit_compile=False)
    fit(model, task, epochs=2)
    if not frozen:
        changed = {v.path for v in model.weights if (v.numpy() != before[v.path]).any()}
        assert changed == {"cls/classifier/output_weights", "cls/classifier/output_bias"}
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert [variable.path for variable in loaded.trainable_variables] == trainable
    pairs = zip(loaded.optimizer.variables, model.optimizer.variables, strict=True)
    for variable, expected in pairs:
        np.testing.assert_array_equal(variable, expected, err_msg=variable.path)
    assert fit(loaded, task, epochs=2) == fit(model, task, epochs=2)


def fit_on_two_devices(folder: pathlib.Path, task: Task, path: pathlib.Path) -> list[float]:
    """Returns the loss of each epoch on two replicas; their best model is saved."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = make_model(folder, task)
    best = keras.callbacks.ModelCheckpoint(path, monitor="loss", save_best_only=True)
    return fit(model, task, 3, callbacks=[best, keras.callbacks.EarlyStopping("loss", patience=4)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tagging", "answering"])
def test_two_replicas_learn_as_one_and_save_as_one(name, folder, tmp_path):
    task, path = TASKS[name], tmp_path / "best.keras"
    # In a process of its own: TensorFlow mixes up the all-reduces of several mirrored strategies.
    with concurrent.futures.ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        two = pool.submit(fit_on_two_devices, folder, task, path).result()
    model = make_model(folder, task)
    one = fit(model, task, 3)
    assert len(one) == 3 and one[2] < one[0]
    assert_close(two, one)
    loaded = keras.models.load_model(path)
    assert loaded.optimizer.iterations == 9
    scores = (predict(each, task.inputs) for each in (loaded, model))
    np.testing.assert_allclose(*scores, atol=1e-3)


@pytest.mark.slow
@EVERY_TASK
def test_xla_computes_the_same(name, folder):
    task = TASKS[name]
    if name == "answering":
        # Keras' own loss counts padding among the places, whose scores only XLA computes.
        mask = np.ones_like(task.inputs["input_mask"])
        task = task._replace(inputs={**task.inputs, "input_mask": mask})
    plain, compiled = (
        fit(make_model(folder, task, jit_compile=is_compiled), task, epochs=2)
        for is_compiled in (False, True)
    )
    np.testing.assert_allclose(compiled, plain, rtol=1e-4)
