"""Evaluations that see every prediction: in the order of the rows, without padding, each once."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import accuracy_score, f1_score

from bert_tf.config import ModelConfig, OptimizerConfig, TrainingConfig
from bert_tf.corpus.mapping import ALL
from bert_tf.network.losses import span_losses
from bert_tf.tasks.base.examples.rows import length_buckets
from bert_tf.tasks.base.programs.fine_tuner import FineTuner
from bert_tf.training.optimizers import build_optimizer
from bert_tf.training.reporting import Progress
from tests.float_bounds import assert_close, close_to
from tests.training.toy_fine_tuning import LONGEST, NUM_ROWS, TINY, toy_rows, toy_task

ONE_LAYER = ModelConfig.from_dict({**TINY.to_dict(), "num_hidden_layers": 1})
DROPPING = ModelConfig.from_dict({**ONE_LAYER.to_dict(), "hidden_dropout_prob": 0.1})
BATCH = 8


@functools.cache
def strategy_of(num_devices):
    """One strategy for all tests: TensorFlow mixes up the all-reduces of several mirrored ones."""
    if num_devices == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(num_devices)])


def make_tuner(path, kind, *, num_devices=1, unpad=True, config=ONE_LAYER, steps=6, **options):
    keras.utils.set_random_seed(5)
    options = {"jit_compile": False, "eval_batch_size": BATCH, **options}
    training = TrainingConfig(
        output_dir=str(path),
        train_batch_size=4,
        gradient_accumulation_steps=1,
        log_steps=1,
        **options,
    )
    strategy = strategy_of(num_devices)
    with strategy.scope():
        buckets = length_buckets(LONGEST, training.jit_compile)
        task = toy_task(kind, buckets, config=config, unpad=unpad)
        optimizer = build_optimizer(OptimizerConfig(learning_rate=1e-2, num_warmup_steps=0))
        optimizer.build(task.model.trainable_variables)
    tuner = FineTuner(
        task,
        optimizer,
        strategy,
        training,
        num_train_steps=steps,
        random_seed=5,
        progress=Progress(steps, 4, 20, 0.0, 0.0),
    )
    tuner.restore()
    return tuner


@functools.cache
def rows_alone(kind):
    """Returns what the same model says of each row by itself, without padding."""
    keras.utils.set_random_seed(5)
    rows, model = toy_rows(kind), toy_task(kind, [LONGEST], config=ONE_LAYER).model
    batches = [rows.batch(np.array([row]), 1, rows.lengths[row]) for row in range(len(rows))]
    return [(batch, model(batch)) for batch in batches]


WAYS = {
    "unpadded": {},
    "padded": {"unpad": False},
    "xla": {"unpad": False, "jit_compile": True},
    "packed": {"unpad": False, "pack_rows": True},
    "two_devices": {"num_devices": 2},
    "two_devices_packed": {"num_devices": 2, "pack_rows": True},
    "two_devices_xla": {"num_devices": 2, "unpad": False, "jit_compile": True},
}


def calibration_error(confidence: np.ndarray, is_right: np.ndarray) -> float:
    """Returns the mean distance of confidence and accuracy over 15 bins of equal width."""
    total = 0.0
    for first in np.arange(15) / 15:
        is_inside = (confidence > first) & (confidence <= first + 1 / 15)
        if is_inside.any():
            gap = confidence[is_inside].mean() - is_right[is_inside].mean()
            total += is_inside.mean() * abs(gap)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_classes_come_back_in_the_order_of_the_rows(way, tmp_path):
    tuner = make_tuner(tmp_path, "classes", **WAYS[way])
    outputs = tuner.predict(tuner.task.train_rows, BATCH)
    assert outputs.keys() == {"logits", "loss"}
    expected = np.concatenate([scores for _, scores in rows_alone("classes")])
    assert_close(np.stack(outputs["logits"]), expected)
    labels = tuner.task.train_rows.labels["label_ids"]
    losses = np.log(np.exp(expected).sum(-1)) - expected[np.arange(NUM_ROWS), labels]
    assert_close(outputs["loss"], losses)
    results = tuner.evaluate()
    guesses = expected.argmax(axis=-1)
    shares = np.exp(expected) / np.exp(expected).sum(axis=-1, keepdims=True)
    assert results == {
        "loss": close_to(losses.mean()),
        "expected_calibration_error": close_to(
            calibration_error(shares.max(axis=-1), guesses == labels), scale=1.0
        ),
        "accuracy": pytest.approx(accuracy_score(labels, guesses)),
        "macro_f1": pytest.approx(f1_score(labels, guesses, average="macro")),
    }


@pytest.mark.slow
def test_spans_come_back_whatever_the_batch(tmp_path):
    tuner, expected = make_tuner(tmp_path, "spans"), []
    for batch, scores in rows_alone("spans"):
        logits = {end: scores[f"{end}_logits"] for end in ("start", "end")}
        mask = batch["input_mask"]
        losses = [span_losses(logits[end], mask, batch[f"{end}_positions"]) for end in logits]
        expected.append((logits, np.mean(losses)))
    for batch_size in (1, 7, 21, 64):
        outputs = tuner.predict(tuner.task.train_rows, batch_size)
        for row, (logits, loss) in enumerate(expected):
            for end, values in logits.items():
                assert_close(outputs[f"{end}_logits"][row], values[0])
            assert_close(outputs["loss"][row], loss)


@pytest.mark.slow
def test_one_trace_serves_batches_of_all_lengths(tmp_path):
    tuner = make_tuner(tmp_path, "classes", steps=5)
    calls = {"loss_and_metric_sums": 0, "predictions": 0}

    def count(name):
        function = getattr(tuner.task, name)

        def counted(*arguments):
            calls[name] += 1
            return function(*arguments)

        setattr(tuner.task, name, counted)

    count("loss_and_metric_sums")
    count("predictions")
    tuner.train()
    data = tuner.task.train_dataset(4, 0, ALL)
    batches = itertools.islice(data.as_numpy_iterator(), 5)
    assert len({batch["input_mask"].shape for batch in batches}) > 1
    for batch_size in (2, 2):
        tuner.predict(tuner.task.train_rows, batch_size)
    assert calls["loss_and_metric_sums"] == 1
    assert calls["predictions"] == 1


def test_an_evaluation_without_a_score_is_the_worst(tmp_path):
    """Pearson's correlation of equal predictions is no number."""
    tuner = make_tuner(tmp_path, "classes")
    for step, accuracy in ((1, float("nan")), (2, 0.25), (3, float("nan")), (4, 0.2)):
        tuner.step = step
        tuner.save()
        tuner.directory.mark_best(step, tuner.task.score({"accuracy": accuracy, "loss": 1.0}))
    assert tuner.directory.best() == {"step": 2, "score": 0.25}


def test_the_lowest_loss_is_the_best():
    task = toy_task("classes", [LONGEST], config=ONE_LAYER)
    task.best_metric = "loss"
    assert task.score({"accuracy": 0.5, "loss": 2.0}) == -2.0
    assert task.score({"accuracy": 0.5, "loss": float("nan")}) == float("-inf")
