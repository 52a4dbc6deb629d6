"""The losses of fine-tuning, row by row: by hand, against NumPy in float64, and their gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.network.losses import (
    class_losses,
    number_losses,
    right_labels,
    several_losses,
    span_losses,
    weigh,
)
from tests.float_bounds import assert_close

ROWS, CLASSES, LENGTH = 5, 4, 7


def draw_logits(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).normal(size=shape).astype(np.float32) * 3


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits.astype(np.float64))
    return powers / powers.sum(axis=-1, keepdims=True)


def gradient_of(losses, logits: np.ndarray, weights: np.ndarray) -> np.ndarray:
    tensor = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        total = tf.reduce_sum(losses(tensor) * weights)
    return tape.gradient(total, tensor).numpy()


def test_classes_by_hand():
    logits = np.log(np.array([[1, 2, 5], [4, 4, 2]], np.float32))
    np.testing.assert_allclose(class_losses(logits, [1, 2]), [np.log(4), np.log(5)], rtol=1e-6)


@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, LENGTH)])
def test_classes_equal_numpy(shape):
    logits, draw = draw_logits(*shape, CLASSES), np.random.default_rng(3)
    labels = draw.integers(0, CLASSES, shape).astype(np.int32)
    weights = draw.uniform(size=shape).astype(np.float32)
    chances = softmax(logits)
    expected = -np.log(np.take_along_axis(chances, labels[..., None], -1)[..., 0])
    losses = class_losses(logits, labels)
    assert losses.dtype == "float32"
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-6)
    received = gradient_of(lambda x: class_losses(x, labels), logits, weights)
    expected = (chances - np.eye(CLASSES)[labels]) * weights[..., None]
    assert_close(received, expected)


def test_numbers_by_hand():
    logits, values = np.array([[1.5], [-2.0]], np.float32), np.array([1.0, 1.0], np.float32)
    assert_close(number_losses(logits, values), [0.25, 9.0])
    received = gradient_of(lambda x: number_losses(x, values), logits, np.float32([1, 0.5]))
    assert_close(received, [[1.0], [-3.0]])


def test_several_classes_by_hand():
    """log(1 + e^-3) for a class that is there with score 3; log 2 at score 0."""
    logits = np.array([[3.0, 0.0], [3.0, -3.0]], np.float32)
    labels = np.array([[1, 0], [0, 1]], np.float32)
    good, bad = np.log1p(np.exp(-3.0)), np.log1p(np.exp(3.0))
    expected = [(good + np.log(2)) / 2, bad]
    np.testing.assert_allclose(several_losses(logits, labels), expected, rtol=1e-6)


def test_several_classes_equal_numpy():
    logits, draw = draw_logits(ROWS, CLASSES), np.random.default_rng(4)
    labels = draw.integers(0, 2, (ROWS, CLASSES)).astype(np.float32)
    weights = draw.uniform(size=ROWS).astype(np.float32)
    chances = 1 / (1 + np.exp(-logits.astype(np.float64)))
    picked = np.where(labels == 1, chances, 1 - chances)
    losses = several_losses(logits, labels)
    np.testing.assert_allclose(losses, -np.log(picked).mean(axis=-1), rtol=1e-5)
    received = gradient_of(lambda x: several_losses(x, labels), logits, weights)
    expected = (chances - labels) * weights[:, None] / CLASSES
    np.testing.assert_allclose(received, expected, atol=1e-6)


def test_several_classes_of_huge_scores_are_finite():
    logits = np.array([[1e4, -1e4], [1e4, -1e4]], np.float32)
    labels = np.array([[1, 0], [0, 1]], np.float32)
    assert_close(several_losses(logits, labels), [0.0, 1e4])


def span_case() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mask = (np.arange(LENGTH) < np.array([7, 3, 5, 1, 4])[:, None]).astype(np.int32)
    logits = draw_logits(ROWS, LENGTH)
    logits[mask == 0] = 60.0  # the padding looks far better than every piece
    return logits, mask, np.array([6, 0, 2, 0, 3], np.int32)


def test_padding_is_never_an_answer():
    logits, mask, positions = span_case()
    chances = np.zeros(logits.shape)
    for row, count in enumerate(mask.sum(axis=1)):
        chances[row, :count] = softmax(logits[row, :count])
    losses = span_losses(logits, mask, positions)
    expected = -np.log(chances[np.arange(ROWS), positions])
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=2e-6)
    assert losses[3] == 0.0  # a single piece is the answer
    weights = np.ones(ROWS, np.float32)
    received = gradient_of(lambda x: span_losses(x, mask, positions), logits, weights)
    assert_close(received, chances - np.eye(LENGTH)[positions])
    assert not received[mask == 0].any()


def test_loss_of_an_answer_does_not_depend_on_the_padded_length():
    logits, mask, positions = span_case()
    wider = [np.pad(value, [(0, 0), (0, 9)]) for value in (logits, mask)]
    received, expected = span_losses(*wider, positions), span_losses(logits, mask, positions)
    np.testing.assert_allclose(received, expected, rtol=1e-6)


def test_row_of_padding_alone_is_finite():
    losses = span_losses(np.zeros([1, 4], np.float32), np.zeros([1, 4], np.int32), [0])
    np.testing.assert_allclose(losses, [np.log(4)], rtol=1e-3)  # -10000 takes digits


def test_sixteen_bits_are_computed_in_thirty_two():
    logits, mask, positions = span_case()
    half = tf.constant(logits, tf.bfloat16)
    exact = tf.cast(half, tf.float32)
    pairs = [
        (class_losses(half, positions), class_losses(exact, positions)),
        (span_losses(half, mask, positions), span_losses(exact, mask, positions)),
        (number_losses(half, logits[:, 1]), number_losses(exact, logits[:, 1])),
        (several_losses(half, logits), several_losses(exact, logits)),
    ]
    for one, two in pairs:
        assert one.dtype == "float32"
        np.testing.assert_array_equal(one, two)


def test_weights_of_rows():
    total, weight = weigh(np.float32([2.0, 3.0, 50.0]), np.float32([0.5, 2.0, 0.0]))
    assert (float(total), float(weight)) == (7.0, 2.5)


def test_right_labels():
    logits = np.array([[0.1, 0.5, 0.2], [3.0, 1.0, -1.0], [-3.0, -2.0, -1.0]], np.float32)
    received = right_labels(logits, np.array([1, 1, 2], np.int32))
    assert received.dtype == "float32"
    np.testing.assert_array_equal(received, [1.0, 0.0, 1.0])
    by_piece = right_labels(logits[None], np.array([[2, 0, -1]], np.int32))
    np.testing.assert_array_equal(by_piece, [[0.0, 1.0, 0.0]])


def test_smoothing_and_focus_by_hand():
    """Logits 0 and log 3 are probabilities 1/4 and 3/4; for one decision, log 3 is 3/4."""
    logits = np.log(np.array([[1, 3]], np.float32))
    likely, unlikely = np.log(4 / 3), np.log(4)
    found = class_losses(logits, [1], focal_gamma=2.0)
    assert_close(found, [likely / 16])
    found = class_losses(logits, [1], label_smoothing=0.2)
    np.testing.assert_allclose(found, [0.9 * likely + 0.1 * unlikely], rtol=1e-5)
    found = class_losses(logits, [1], label_smoothing=0.2, focal_gamma=1.0)
    expected = 0.9 * likely / 4 + 0.1 * unlikely * 3 / 4
    assert_close(found, [expected])
    logits = np.log(np.array([[3, 3]], np.float32))
    labels = np.array([[1, 0]])
    found = several_losses(logits, labels, pos_weight=[2.0, 5.0])
    np.testing.assert_allclose(found, [(2 * likely + unlikely) / 2], rtol=1e-5)
    found = several_losses(logits, labels, focal_gamma=2.0)
    np.testing.assert_allclose(found, [(likely / 16 + unlikely * 9 / 16) / 2], rtol=1e-5)
    found = several_losses(logits, labels, label_smoothing=0.2)
    expected = (0.9 * likely + 0.1 * unlikely + 0.1 * likely + 0.9 * unlikely) / 2
    np.testing.assert_allclose(found, [expected], rtol=1e-5)


@pytest.mark.parametrize("smoothing,gamma", [(0.1, 0.0), (0.0, 2.0), (0.3, 1.5), (0.0, 0.5)])
def test_smoothing_and_focus_equal_keras(smoothing, gamma):
    logits = draw_logits(ROWS, CLASSES)
    labels = np.arange(ROWS) % CLASSES
    one_hot = np.eye(CLASSES, dtype=np.float32)[labels]
    keras_loss = keras.losses.CategoricalFocalCrossentropy(
        alpha=1.0, gamma=gamma, from_logits=True, label_smoothing=smoothing, reduction=None
    )
    found = class_losses(logits, labels, smoothing, gamma)
    np.testing.assert_allclose(found, keras_loss(one_hot, logits), rtol=1e-4, atol=1e-6)
    if not (smoothing and gamma):  # Keras weights smoothed decisions in another way.
        keras_loss = keras.losses.BinaryFocalCrossentropy(
            gamma=gamma, from_logits=True, label_smoothing=smoothing, reduction=None
        )
        found = several_losses(logits, one_hot, smoothing, gamma)
        np.testing.assert_allclose(found, keras_loss(one_hot, logits), rtol=1e-4, atol=1e-6)


def test_focus_has_finite_gradients_of_certain_answers():
    logits = np.array([[60.0, -60.0]], np.float32)
    ones = np.ones(1, np.float32)
    for losses in (
        lambda x: class_losses(x, [0], focal_gamma=0.5),
        lambda x: several_losses(x, np.array([[1, 0]]), focal_gamma=0.5),
    ):
        assert np.isfinite(gradient_of(losses, logits, ones)).all()
