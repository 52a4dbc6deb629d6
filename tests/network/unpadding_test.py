"""Rows without padding: pieces taken out and put back, and models that compute with them alone."""

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.layout import UnpaddedBatch
from bert_tf.tasks.classification.model import BertClassifier
from tests.float_bounds import assert_close
from tests.network.toy_heads import (
    BATCH,
    CLOSE,
    CONFIG,
    HEADS,
    LABELS,
    assert_same_gradients,
    loss_and_gradients,
    make_batch,
    with_random_weights,
)
from tests.slow_variants import slow_where


def lengths_mask(*lengths: int, width: int) -> np.ndarray:
    return (np.arange(width) < np.array(lengths)[:, None]).astype(np.int32)


MASKS = {
    "lengths": lengths_mask(3, 1, 5, 2, width=5),
    "holes": np.array([[1, 0, 1, 0], [0, 0, 0, 1], [0, 1, 1, 0]], np.int32),
    "empty_rows": np.array([[0, 0, 0], [1, 1, 0], [0, 0, 0]], np.int32),
    "full": np.ones([2, 7], np.int32),
    "nothing": np.zeros([2, 3], np.int32),
    "one_piece": np.ones([1, 1], np.int32),
}


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_pieces_go_out_and_back_as_in_numpy(mask, in_graph):
    draw, width = np.random.default_rng(3), 4
    padded = draw.normal(size=(mask.size, width)).astype(np.float32)
    slope = draw.normal(size=(mask.size, width)).astype(np.float32)
    places = np.flatnonzero(mask)

    def both_ways(mask: Any, padded: Any) -> tuple:
        layout = UnpaddedBatch(mask)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(padded)
            pieces = layout.unpad(padded)
            tape.watch(pieces)
            again = layout.pad(pieces)
            padded_score = tf.reduce_sum(again * slope)
            pieces_score = tf.reduce_sum(
                pieces * tf.gather(tf.constant(slope), layout.token_indices)
            )
        to_padded = tape.gradient(pieces_score, padded)
        found = layout.token_indices, layout.flat_size
        return *found, pieces, again, tape.gradient(padded_score, pieces), to_padded

    if in_graph:  # Neither the rows nor their length are known when it is traced.
        shapes = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, width])
        both_ways = tf.function(both_ways, input_signature=shapes)
    received = both_ways(tf.constant(mask), tf.constant(padded))
    found, num_places, pieces, again, gradient, padded_gradient = received
    np.testing.assert_array_equal(found, places)
    assert num_places == mask.size
    np.testing.assert_array_equal(pieces, padded[places])
    expected = np.zeros_like(padded)
    expected[places] = padded[places]
    np.testing.assert_array_equal(again, expected)
    np.testing.assert_array_equal(gradient, slope[places])
    expected[places] = slope[places]
    np.testing.assert_array_equal(tf.convert_to_tensor(padded_gradient), expected)


@pytest.mark.parametrize(
    ("name", "length"),
    slow_where(lambda case: case == ("choices", 2), itertools.product(HEADS, [17, 2])),
)
def test_losses_and_gradients_are_those_with_padding(name, length):
    """Rows of padding alone, of which the two say different things, have weight 0."""
    head = HEADS[name]
    batch = make_batch(BATCH, *([head.num_choices] if head.num_choices else []), length)
    plain = with_random_weights(head.model())
    unpadded = with_random_weights(head.model(unpad=True))
    expected_losses, expected, expected_gradients = loss_and_gradients(plain, head, batch)
    losses, loss, gradients = loss_and_gradients(unpadded, head, batch)
    counted = batch["weights"] > 0
    assert 0 < counted.sum() < BATCH
    assert_close(losses[counted], expected_losses[counted])
    assert_close(loss, expected)
    assert_same_gradients(plain, gradients, expected_gradients)
    assert max(np.abs(g).max() for g in gradients if g is not None) > 0.01


def test_recomputed_layers_have_the_same_gradients():
    head, batch = HEADS["tags"], make_batch(BATCH, 11)
    plain = with_random_weights(head.model(unpad=True))
    recomputing = with_random_weights(head.model(unpad=True, recompute=True))
    _, expected, expected_gradients = loss_and_gradients(plain, head, batch)
    _, loss, gradients = loss_and_gradients(recomputing, head, batch)
    np.testing.assert_allclose(loss, expected, **CLOSE)
    assert_same_gradients(plain, gradients, expected_gradients)


@pytest.mark.parametrize("length", [19, 2])
def test_every_layer_has_the_output_of_its_pieces(length):
    batch = make_batch(BATCH, length)
    plain = with_random_weights(BertEncoder(CONFIG))
    unpadded = with_random_weights(BertEncoder(CONFIG, unpad=True))
    expected, received = plain(batch), unpadded(batch)
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


def test_one_trace_serves_batches_of_all_lengths():
    plain = with_random_weights(BertClassifier(CONFIG, LABELS))
    unpadded = with_random_weights(BertClassifier(CONFIG, LABELS, unpad=True))
    traces = []

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 3)
    def scores(word_ids: Any, mask: Any, type_ids: Any) -> Any:
        traces.append(word_ids.shape)
        names = ("input_word_ids", "input_mask", "input_type_ids")
        return unpadded(dict(zip(names, (word_ids, mask, type_ids), strict=True)))

    for length in (5, 18, 2):
        batch = make_batch(BATCH, length, seed=length)
        counted = batch["weights"] > 0
        received = scores(*(batch[f"input_{name}"] for name in ("word_ids", "mask", "type_ids")))
        assert_close(received[counted], plain(batch)[counted])
    assert len(traces) == 1


def test_what_padding_holds_never_matters():
    batch = make_batch(BATCH, 13)
    unpadded = with_random_weights(BertEncoder(CONFIG, unpad=True))
    other = dict(batch)
    padding = batch["input_mask"] == 0
    other["input_word_ids"] = np.where(padding, 52 - batch["input_word_ids"], 0) + np.where(
        padding, 0, batch["input_word_ids"]
    )
    one, two = unpadded(batch)["sequence_output"], unpadded(other)["sequence_output"]
    np.testing.assert_array_equal(one, two)


def test_dropout_differs_by_piece_and_repeats_with_its_seed():
    config = ModelConfig.from_dict({**CONFIG.to_dict(), "hidden_dropout_prob": 0.5})
    model = with_random_weights(BertEncoder(config, unpad=True))
    batch = make_batch(BATCH, 9)
    batch["input_word_ids"][:] = 5
    batch["input_type_ids"][:] = 0

    def outputs(seed: int) -> np.ndarray:
        called = model(batch, training=True, dropout_seed=tf.constant(seed))
        return called["encoder_outputs"][0].numpy()

    np.testing.assert_array_equal(outputs(3), outputs(3))
    assert np.abs(outputs(4) - outputs(3)).max() > 0.1
    # The same piece at the same place of two rows.
    assert np.abs(outputs(3)[0, 0] - outputs(3)[1, 0]).max() > 0.1


@pytest.mark.parametrize("unpad", [False, True])
def test_more_pieces_than_positions_are_refused(unpad):
    batch = make_batch(BATCH, 20)
    message = "20 .* 19 .*max_position_embeddings"
    with pytest.raises(ValueError, match=message):
        BertClassifier(CONFIG, 2, unpad=unpad)(batch)


@pytest.mark.parametrize("name", slow_where(lambda name: name == "classes", HEADS))
def test_a_model_is_made_again_from_its_configuration(name):
    head = HEADS[name]
    for unpad in (False, True):
        model = head.model(unpad=unpad)
        again = type(model).from_config(model.get_config())
        assert again.bert.unpad is unpad and again.num_labels == model.num_labels
