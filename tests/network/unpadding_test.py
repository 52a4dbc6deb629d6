"""Rows without padding: pieces taken out and put back, and models that compute with them alone."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

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
    computed = places if len(places) else [0]

    def both_ways(mask: Any, padded: Any) -> tuple:
        layout = UnpaddedBatch(mask)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(padded)
            pieces = layout.unpad(padded)
            tape.watch(pieces)
            again = layout.pad(pieces)
            padded_score = tf.reduce_sum(again * slope)
            slopes = tf.gather(tf.constant(slope), layout.token_indices)
            pieces_score = tf.reduce_sum(pieces * slopes)
            rows_score = tf.reduce_sum(layout.from_rows(padded) * slopes)
        to_padded = tape.gradient(pieces_score, padded)
        to_rows = tape.gradient(rows_score, padded)
        to_pieces = tape.gradient(padded_score, pieces)
        return layout.token_indices, pieces, again, to_pieces, to_padded, to_rows

    if in_graph:  # Neither the rows nor their length are known when it is traced.
        shapes = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, width])
        both_ways = tf.function(both_ways, input_signature=shapes)
    received = both_ways(tf.constant(mask), tf.constant(padded))
    found, pieces, again, gradient, padded_gradient, rows_gradient = received
    np.testing.assert_array_equal(found, computed)
    np.testing.assert_array_equal(pieces, padded[computed])
    expected = np.zeros_like(padded)
    expected[places] = padded[places]
    np.testing.assert_array_equal(again, expected)
    np.testing.assert_array_equal(gradient, slope[computed] if len(places) else 0 * slope[:1])
    expected[places] = slope[places]
    np.testing.assert_array_equal(rows_gradient, expected)
    expected[computed] = slope[computed]
    np.testing.assert_array_equal(tf.convert_to_tensor(padded_gradient), expected)


def test_recomputed_layers_have_the_same_gradients():
    head, batch = HEADS["tags"], make_batch(BATCH, 11)
    plain = with_random_weights(head.model(unpad=True))
    recomputing = with_random_weights(head.model(unpad=True, recompute=True))
    _, expected, expected_gradients = loss_and_gradients(plain, head, batch)
    _, loss, gradients = loss_and_gradients(recomputing, head, batch)
    np.testing.assert_allclose(loss, expected, **CLOSE)
    assert_same_gradients(plain, gradients, expected_gradients)


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
