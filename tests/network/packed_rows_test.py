"""Packed rows: models compute on them what they compute on rows of one text each."""

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.network.encoder import BertEncoder
from bert_tf.network.layout import find_layout
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.training.packed_rows import pack_batch
from tests.float_bounds import assert_close
from tests.network.toy_heads import (
    BATCH,
    CONFIG,
    HEADS,
    Head,
    assert_same_gradients,
    loss_and_gradients,
    make_batch,
    with_random_weights,
)
from tests.slow_variants import slow_where

PREDICTIONS = 3


def packed(batch: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    found = pack_batch({name: tf.constant(values) for name, values in batch.items()})
    assert len(found["packed_positions"]) < np.prod(batch["input_mask"].shape[:-1])
    return found


def shape_for(head: Head, length: int) -> tuple[int, ...]:
    return (BATCH, *([head.num_choices] if head.num_choices else []), length)


def test_pieces_go_out_and_back():
    # Texts of 3, 0, 2 and 4 pieces in rows of 4: the longest, then the others as they fit.
    lengths = np.array([3, 0, 2, 4])
    mask = (np.arange(4) < lengths[:, None]).astype(np.int32)
    rows = find_layout(packed({"input_mask": mask}), unpad=False)
    np.testing.assert_array_equal(rows.texts(), [[3, 3, 3, 3], [0, 0, 0, -1], [2, 2, -1, -1]])
    np.testing.assert_array_equal(rows.starts, [4, 0, 8, 0])
    numbers = np.arange(1.0, 17.0, dtype=np.float32)[:, None]  # 1 to 16, four a row of the batch
    pieces = rows.unpad(tf.constant(numbers))
    np.testing.assert_array_equal(
        np.where(rows.texts() >= 0, tf.reshape(pieces, (3, 4)), 0),
        [[13, 14, 15, 16], [1, 2, 3, 0], [9, 10, 0, 0]],
    )
    np.testing.assert_array_equal(rows.pad(pieces)[:, 0], numbers[:, 0] * mask.ravel())
    np.testing.assert_array_equal(rows.first_tokens(pieces, None).numpy()[[0, 2, 3], 0], [1, 9, 13])
    # The gradient goes to the places the pieces came from, and to no empty one.
    with tf.GradientTape() as tape:
        tape.watch(pieces)
        total = tf.reduce_sum(rows.pad(pieces) * numbers)
    gradient = tf.reshape(tape.gradient(total, pieces), (3, 4))
    np.testing.assert_array_equal(gradient, [[13, 14, 15, 16], [1, 2, 3, 0], [9, 10, 0, 0]])


def test_a_text_sees_itself_alone():
    mask = (np.arange(3) < np.array([1, 3, 2])[:, None]).astype(np.int32)
    bias = find_layout(packed({"input_mask": mask}), unpad=False).attention_bias()
    assert bias.shape == (2, 1, 3, 3)
    np.testing.assert_array_equal(bias[0], np.zeros([1, 3, 3]))
    hidden = -10000 * np.array([[[0, 0, 1], [0, 0, 1], [1, 1, 0]]])
    np.testing.assert_array_equal(bias[1], hidden)


def in_layout(is_packed: bool, batch: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    return packed(batch) if is_packed else batch


EVERY_LAYOUT = pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "unpadded"])
CASES = [(name, True, 17) for name in HEADS]
CASES += [(name, False, length) for name in HEADS for length in (17, 2)]


def is_slow(case: tuple[str, bool, int]) -> bool:
    name, is_packed, length = case
    return name != "tags" if is_packed else length == 2


@pytest.mark.parametrize(("name", "is_packed", "length"), slow_where(is_slow, CASES))
def test_losses_and_gradients_are_those_with_padding(name, is_packed, length):
    """Rows of padding alone, of which the layouts say different things, have weight 0."""
    head = HEADS[name]
    batch = make_batch(*shape_for(head, length), holes=not is_packed)
    plain = with_random_weights(head.model())
    model = with_random_weights(head.model(unpad=not is_packed))
    run = functools.partial(loss_and_gradients, model, head)
    # With choices, whose texts are no rows of the batch, under XLA.
    if is_packed:
        run = tf.function(run, jit_compile=head.num_choices > 0)
    expected_losses, expected, expected_gradients = loss_and_gradients(plain, head, batch)
    losses, loss, gradients = run(in_layout(is_packed, batch))
    counted = batch["weights"] > 0
    assert 0 < counted.sum() < BATCH
    assert_close(losses[counted], expected_losses[counted])
    assert_close(loss, expected)
    assert_same_gradients(plain, gradients, expected_gradients)
    assert max(np.abs(g).max() for g in gradients if g is not None) > 0.01


@EVERY_LAYOUT
@pytest.mark.parametrize("length", [19, 2])
def test_every_layer_has_the_output_of_its_pieces(is_packed, length):
    batch = make_batch(BATCH, length, holes=not is_packed)
    plain = with_random_weights(BertEncoder(CONFIG))
    model = with_random_weights(BertEncoder(CONFIG, unpad=not is_packed))
    expected, received = plain(batch), model(in_layout(is_packed, batch))
    assert received.keys() == expected.keys()
    real = batch["input_mask"] == 1
    assert len(received["encoder_outputs"]) == 3
    for one, two in zip(received["encoder_outputs"], expected["encoder_outputs"], strict=True):
        assert one.shape == two.shape == (BATCH, length, 21)
        assert_close(one.numpy()[real], two.numpy()[real])
        assert not one.numpy()[~real].any()
    has_first = real[:, 0]
    pooled = [outputs["pooled_output"].numpy()[has_first] for outputs in (received, expected)]
    assert_close(*pooled)
    assert np.ptp(pooled[0]) > 0.1 and has_first.sum() == BATCH - 1


@EVERY_LAYOUT
def test_what_padding_holds_never_matters(is_packed):
    batch = make_batch(BATCH, 13, holes=not is_packed)
    model = with_random_weights(BertEncoder(CONFIG, unpad=not is_packed))
    ids = batch["input_word_ids"]
    other = {**batch, "input_word_ids": np.where(batch["input_mask"], ids, 52 - ids)}
    one, two = (model(in_layout(is_packed, each))["sequence_output"] for each in (batch, other))
    np.testing.assert_array_equal(one, two)


@EVERY_LAYOUT
def test_dropout_differs_by_piece_and_repeats_with_its_seed(is_packed):
    config = dataclasses.replace(CONFIG, hidden_dropout_prob=0.5)
    model = with_random_weights(BertEncoder(config, unpad=not is_packed))
    batch = make_batch(BATCH, 9, holes=not is_packed)
    batch["input_word_ids"][:] = 5
    batch["input_type_ids"][:] = 0
    batch = in_layout(is_packed, batch)

    def outputs(seed: int) -> np.ndarray:
        called = model(batch, training=True, dropout_seed=tf.constant(seed))
        return called["encoder_outputs"][0].numpy()

    np.testing.assert_array_equal(outputs(3), outputs(3))
    assert np.abs(outputs(4) - outputs(3)).max() > 0.1
    # The same piece at the same place of two rows.
    assert np.abs(outputs(3)[0, 0] - outputs(3)[1, 0]).max() > 0.1


def pretraining_batch(length: int) -> dict[str, np.ndarray]:
    batch, draw = make_batch(BATCH, length, holes=False), np.random.default_rng(5)
    lengths = batch["input_mask"].sum(axis=1)
    counts = np.minimum(lengths, draw.integers(1, PREDICTIONS + 1, BATCH))
    chosen = np.zeros([BATCH, PREDICTIONS], np.int32)
    for row, size, count in zip(chosen, lengths, counts, strict=True):
        row[:count] = np.sort(draw.choice(size, count, replace=False))
    return batch | {
        "masked_lm_positions": chosen,
        "masked_lm_ids": draw.integers(0, 53, chosen.shape).astype(np.int32),
        "masked_lm_weights": (np.arange(PREDICTIONS) < counts[:, None]).astype(np.float32),
        "next_sentence_labels": draw.integers(0, 2, BATCH).astype(np.int32),
        "next_sentence_weights": (lengths > 0).astype(np.float32),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recompute", "jit_compile"),
    [(True, False), pytest.param(False, True, marks=pytest.mark.slow)],
)
def test_pretraining_is_that_with_padding(recompute, jit_compile):
    def step(model: BertPretrainer, batch: dict) -> tuple:
        with tf.GradientTape() as tape:
            outputs = model(batch, training=True, dropout_seed=tf.constant(7))
            losses = model.objective_losses(batch, outputs)
            loss = sum(part.mean() for part in losses.values())
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        return outputs, losses, [tf.convert_to_tensor(g) for g in gradients]

    batch = pretraining_batch(17)
    plain = with_random_weights(BertPretrainer(CONFIG))
    model = with_random_weights(BertPretrainer(CONFIG, recompute=recompute))
    run = tf.function(lambda b: step(model, b), jit_compile=jit_compile)
    expected_outputs, expected, expected_gradients = step(plain, batch)
    outputs, losses, gradients = run(packed(batch))
    real = batch["masked_lm_weights"] > 0
    masked, pairs = outputs["masked_lm_logits"], outputs["next_sentence_logits"]
    assert_close(masked[real], expected_outputs["masked_lm_logits"][real])
    expected_pairs = expected_outputs["next_sentence_logits"]
    assert_close(pairs[:-1], expected_pairs[:-1])
    for name, (total, weight) in expected.items():
        assert_close(losses[name].total, total)
        assert losses[name].weight == weight > 0
    assert_same_gradients(plain, gradients, expected_gradients)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nothing_of_a_text_reaches_its_neighbours(jit_compile):
    """Other pieces in one text: all others keep their output to the last bit."""
    model = with_random_weights(BertEncoder(CONFIG))
    run = tf.function(model, jit_compile=jit_compile)
    batch = make_batch(BATCH, 13, holes=False)
    texts = find_layout(packed(batch), unpad=False).texts().numpy()
    shared = [set(row[row >= 0]) for row in texts if len(set(row[row >= 0])) > 1]
    changed = shared[0].pop()
    assert shared[0]
    other = {name: values.copy() for name, values in batch.items()}
    other["input_word_ids"][changed] = 52 - batch["input_word_ids"][changed]
    other["input_type_ids"][changed] = 1 - batch["input_type_ids"][changed]
    one, two = run(packed(batch)), run(packed(other))
    for name in ("sequence_output", "pooled_output"):
        same = np.arange(BATCH) != changed
        same &= batch["input_mask"][:, 0] == 1
        np.testing.assert_array_equal(one[name][same], two[name][same])
        assert np.abs(one[name][changed] - two[name][changed]).max() > 0.1


def test_sixteen_bits_stay_sixteen_bits():
    batch = make_batch(BATCH, 12, holes=False)
    model = with_random_weights(BertEncoder(CONFIG, dtype="mixed_bfloat16"))
    expected, received = model(batch), model(packed(batch))
    real = batch["input_mask"] == 1
    one, two = (outputs["sequence_output"] for outputs in (expected, received))
    assert one.dtype == two.dtype == tf.bfloat16
    one, two = (tf.cast(values, tf.float32).numpy()[real] for values in (one, two))
    np.testing.assert_allclose(one, two, atol=0.1)


def test_an_unpadding_model_takes_packed_rows_as_they_are():
    head: Any = HEADS["tags"]
    batch = make_batch(BATCH, 11, holes=False)
    one, two = (with_random_weights(head.model(unpad=unpad)) for unpad in (False, True))
    np.testing.assert_array_equal(one(packed(batch)), two(packed(batch)))
