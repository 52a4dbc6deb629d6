"""Tiny models of all purposes with the losses of their rows, and batches for them."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network.losses import class_losses, number_losses, several_losses, span_losses
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.tagging.model import BertTokenClassifier

CONFIG = ModelConfig(
    vocab_size=53,
    hidden_size=21,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=37,
    max_position_embeddings=19,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
ONE_LAYER = dataclasses.replace(CONFIG, num_hidden_layers=1)  # of models with heads
BATCH, CHOICES, LABELS = 6, 3, 4
NO_LABEL = -1
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def make_batch(*shape: int, seed: int = 0, holes: bool = True) -> dict[str, np.ndarray]:
    """Draws rows of all lengths: one full, one empty and, unless `holes` is false, one with holes.

    In a row of choices the texts differ in length.
    """
    draw = np.random.default_rng(seed)
    mask = (np.arange(shape[-1]) < draw.integers(1, shape[-1] + 1, shape)[..., :1]).astype(np.int32)
    mask[0], mask[-1] = 1, 0
    if holes:
        mask[2, ..., 1::2] = 0
    labels = draw.integers(0, min(LABELS, CHOICES), shape[0]).astype(np.int32)
    is_word = mask * draw.integers(0, 2, shape)
    weights = draw.uniform(0.5, 2.0, shape[0]) * mask.reshape(shape[0], -1).any(axis=-1)
    return {
        "input_word_ids": draw.integers(0, 53, shape).astype(np.int32),
        "input_mask": mask,
        "input_type_ids": draw.integers(0, 2, shape).astype(np.int32),
        "weights": weights.astype(np.float32),
        "label_ids": labels,
        "label_values": draw.normal(size=shape[0]).astype(np.float32),
        "label_rows": draw.integers(0, 2, (shape[0], LABELS)).astype(np.float32),
        "tag_ids": np.where(is_word, draw.integers(0, LABELS, shape), NO_LABEL).astype(np.int32),
        "positions": (mask * np.arange(shape[-1])).max(axis=-1).astype(np.int32),  # the last piece
    }


class Head(NamedTuple):
    """A model and the losses of its rows, [B]."""

    model: Callable[..., keras.Model]
    losses: Callable[[dict, Any], Any]
    num_choices: int = 0


def word_losses(batch: dict, outputs: Any) -> Any:
    is_word = tf.cast(batch["tag_ids"] != NO_LABEL, tf.float32)
    return tf.reduce_sum(class_losses(outputs, batch["tag_ids"]) * is_word, axis=-1)


def answer_losses(batch: dict, outputs: Any) -> Any:
    start = span_losses(outputs["start_logits"], batch["input_mask"], batch["positions"])
    end = span_losses(outputs["end_logits"], batch["input_mask"], batch["positions"] * 0)
    return (start + end) / 2


HEADS = {
    "classes": Head(
        lambda **options: BertClassifier(ONE_LAYER, LABELS, **options),
        lambda batch, outputs: class_losses(outputs, batch["label_ids"]),
    ),
    "number": Head(
        lambda **options: BertClassifier(ONE_LAYER, 1, **options),
        lambda batch, outputs: number_losses(outputs, batch["label_values"]),
    ),
    "several": Head(
        lambda **options: BertClassifier(ONE_LAYER, LABELS, **options),
        lambda batch, outputs: several_losses(outputs, batch["label_rows"]),
    ),
    "tags": Head(lambda **options: BertTokenClassifier(ONE_LAYER, LABELS, **options), word_losses),
    "span": Head(lambda **options: BertSpanLabeler(ONE_LAYER, **options), answer_losses),
    "choices": Head(
        lambda **options: BertMultipleChoice(ONE_LAYER, **options),
        lambda batch, outputs: class_losses(outputs, batch["label_ids"]),
        CHOICES,
    ),
}


def with_random_weights(model: keras.Model) -> keras.Model:
    draw = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(draw.normal(0.3 * ("gamma" in variable.path), 0.2, variable.shape))
    return model


def loss_and_gradients(model: keras.Model, head: Head, batch: dict) -> tuple:
    with tf.GradientTape() as tape:
        outputs = model(batch, training=True, dropout_seed=tf.constant(7))
        losses = head.losses(batch, outputs)
        loss = tf.reduce_sum(losses * batch["weights"]) / tf.reduce_sum(batch["weights"])
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    return losses, loss, [None if g is None else tf.convert_to_tensor(g) for g in gradients]


def assert_same_gradients(model: keras.Model, received: list, expected: list) -> None:
    for variable, one, two in zip(model.trainable_variables, received, expected, strict=True):
        assert (one is None) == (two is None), variable.path
        if one is not None:
            np.testing.assert_allclose(one, two, err_msg=variable.path, **CLOSE)
