"""Losses of rerankers beside sentence-transformers', values and gradients."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.tasks.reranking import losses
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.shared_data import golden_file, read_arrays


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    path = golden_file("families", "sentence_transformers", "losses.npz")
    return read_arrays(path)


def in_lists(values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns [B, L]; what is missing is 7, which must not matter."""
    table = np.full([len(sizes), sizes.max()], 7.0, np.float32)
    for row, part in zip(table, np.split(values, np.cumsum(sizes)[:-1]), strict=True):
        row[: len(part)] = part
    return table


def value_and_gradient(
    loss: Callable, logits: np.ndarray, labels: np.ndarray, mask: np.ndarray
) -> tuple:
    variable = tf.Variable(logits)
    with tf.GradientTape() as tape:
        totals, weights = loss(variable, labels, mask)
        value = tf.reduce_sum(totals) / tf.stop_gradient(tf.reduce_sum(weights))
    return value.numpy(), tf.convert_to_tensor(tape.gradient(value, variable)).numpy()


CASES = {
    "bce": (losses.binary_losses, "binary_labels"),
    "bce_pos_weight3": (
        lambda *given: losses.binary_losses(*given, pos_weight=3.0),
        "binary_labels",
    ),
    "listnet": (losses.list_losses, "relevance"),
    "lambda_ndcg2pp": (losses.lambda_losses, "relevance"),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_sentence_transformers(golden: dict, name: str) -> None:
    loss, labels = CASES[name]
    sizes = golden["in_ce_list_sizes"]
    logits, labels = (in_lists(golden[f"in_ce_{key}"], sizes) for key in ("logits", labels))
    mask = in_lists(np.ones(sizes.sum()), sizes) == 1.0
    value, gradient = value_and_gradient(loss, logits, labels, mask.astype(np.float32))
    assert_close(value, golden[f"out_ce_{name}"], OTHER_FRAMEWORK)
    assert_close(gradient[mask], golden[f"grad_ce_{name}_logits"], OTHER_FRAMEWORK)
    assert not gradient[~mask].any()


def test_margins_and_squares_by_hand() -> None:
    logits = np.array([[3.0, 1.0, 0.0], [1.0, 2.0, 9.0]], np.float32)
    labels = np.array([[5.0, 4.0, 1.0], [2.0, 0.0, 9.0]], np.float32)
    mask = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], np.float32)
    totals, weights = losses.margin_losses(logits, labels, mask)
    assert totals.numpy().tolist() == [(2 - 1) ** 2 + (3 - 4) ** 2, (-1 - 2) ** 2]
    assert weights.numpy().tolist() == [2, 1]
    totals, weights = losses.squared_losses(logits, labels, mask)
    assert totals.numpy().tolist() == [4 + 9 + 1, 1 + 4]
    assert weights.numpy().tolist() == [3, 2]


def test_pairs_beyond_k_count_if_one_is_before_it() -> None:
    """Four documents, k = 1: of the six pairs three hold the first one."""
    logits = np.array([[4.0, 3.0, 2.0, 1.0]], np.float32)
    labels = np.array([[0.0, 1.0, 2.0, 3.0]], np.float32)
    mask = np.ones([1, 4], np.float32)
    assert losses.lambda_losses(logits, labels, mask, k=1)[1].numpy().tolist() == [3]
    assert losses.pair_counts(labels, mask).numpy().tolist() == [6]
