"""Micro-batches with unequal counts: their gradients add up to that of the whole batch.

The whole batch is differentiated by hand: the losses of all words, masks or rows, each times its
weight, divided by the sum of all weights.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import OptimizerConfig
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.text.packing import PackedText
from bert_tf.training.optimizers import build_optimizer
from bert_tf.training.train_step import TrainStep
from tests.float_bounds import close_to
from tests.slow_variants import slow_unless
from tests.training.toy_fine_tuning import TINY, toy_task
from tests.training.toy_task import TOY, ToyTask

CONFIG = dataclasses.replace(TINY, num_hidden_layers=1, max_position_embeddings=64)
T = 64


def made_rows(
    kind: str, lengths: tuple[int, int], weights: tuple[float, float]
) -> TokenizedDataset:
    draw = np.random.default_rng(1)
    texts = [
        PackedText(draw.integers(5, 40, count + 2).tolist(), [0] * (count + 2)) for count in lengths
    ]
    if kind == "tags":
        tags = [np.array([-1, *draw.integers(0, 3, count), -1]) for count in lengths]
        return TokenizedDataset(texts, {}, {"tag_ids": tags})
    labels = {"label_ids": np.array([0, 2], np.int32)}
    return TokenizedDataset(texts, labels | {"example_weights": np.array(weights, np.float32)})


def fine_tuning(kind: str) -> tuple[Any, dict[str, Any], float, Callable[..., Any]]:
    rows = made_rows(kind, (3, 60), (9.0, 1.0))
    task = toy_task(kind, [T], rows=rows, config=CONFIG)
    batch = {name: tf.constant(value) for name, value in rows.batch(np.arange(2), 2, T).items()}

    def losses(outputs: Any) -> tuple[Any, Any]:
        scores = tf.nn.log_softmax(outputs)
        if kind == "tags":
            weights = tf.cast(batch["tag_ids"] >= 0, tf.float32)
            ids = tf.maximum(batch["tag_ids"], 0)
        else:
            ids, weights = batch["label_ids"], batch["example_weights"]
        return -tf.gather(scores, ids, batch_dims=len(ids.shape)), weights

    return task, batch, {"tags": 63.0, "classes": 10.0}[kind], losses


def masked_lm() -> tuple[Any, dict[str, Any], float, Callable[..., Any]]:
    task = ToyTask(dataclasses.replace(TOY, num_hidden_layers=1, max_position_embeddings=T))
    draw = np.random.default_rng(1)
    ids = draw.integers(5, TOY.vocab_size, [2, T]).astype(np.int32)
    counts = np.array([[2], [20]])
    weights = (np.arange(20) < counts).astype(np.float32)
    batch = {
        "input_word_ids": ids,
        "input_mask": np.ones_like(ids),
        "input_type_ids": np.zeros_like(ids),
        "masked_lm_positions": np.tile(np.arange(1, 21, dtype=np.int32), [2, 1]),
        "masked_lm_ids": draw.integers(5, TOY.vocab_size, [2, 20]).astype(np.int32),
        "masked_lm_weights": weights,
        "next_sentence_labels": np.zeros(2, np.int32),
        "next_sentence_weights": np.zeros(2, np.float32),
    }
    batch = {name: tf.constant(value) for name, value in batch.items()}

    def losses(outputs: Any) -> tuple[Any, Any]:
        scores = tf.nn.log_softmax(outputs["masked_lm_logits"])
        return -tf.gather(scores, batch["masked_lm_ids"], batch_dims=2), weights

    return task, batch, 22.0, losses


CASES = {
    "words": lambda: fine_tuning("tags"),
    "class_weights": lambda: fine_tuning("classes"),
    "masks": masked_lm,
}


@pytest.mark.parametrize("name", slow_unless("words", CASES))
def test_micro_batches_have_the_gradient_of_the_batch(name):
    keras.utils.set_random_seed(4)
    task, batch, divisor, losses = CASES[name]()
    variables = [variable.value for variable in task.model.trainable_variables]
    with tf.GradientTape() as tape:
        values, weights = losses(task.model(batch, training=True, dropout_seed=tf.constant([0, 0])))
        loss = tf.reduce_sum(values * weights) / divisor
    expected = tape.gradient(loss, variables, unconnected_gradients="zero")
    optimizer = build_optimizer(OptimizerConfig(num_train_steps=10))
    optimizer.build(task.model.trainable_variables)
    for count in (1, 2):
        step = TrainStep(
            task,
            optimizer,
            tf.distribute.get_strategy(),
            random_seed=0,
            accumulation_steps=count,
            jit_compile=False,
        )
        found, sums = step._gradients(
            batch, task.loss_weights(batch), tf.constant(0), tf.constant(0)
        )
        totals = dict(zip(step.columns, sums.numpy(), strict=False))
        kind = "masked_lm_loss" if name == "masks" else "loss"
        assert totals[f"{kind}_weight"] == divisor
        assert totals[f"{kind}_total"] / divisor == close_to(float(loss))
        for one, other in zip(found, expected, strict=True):
            other = tf.convert_to_tensor(other)
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
