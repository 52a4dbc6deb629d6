"""Muon against NumPy, Keras' own iteration and the exact polar factor."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.training.optimizers import AdamW, Muon, orthogonalized
from tests.float_bounds import assert_close
from tests.training.toy_task import TOY

RATE, DECAY = 0.02, 0.1


@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (8, 8)])
def test_directions_are_those_of_the_polar_factor(shape):
    matrix = np.random.default_rng(3).normal(size=shape).astype("float32")
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    ours = orthogonalized(tf.constant(matrix)).numpy()
    # In the basis of the singular vectors what is left is a diagonal of values near 1.
    diagonal = left.T @ ours @ right.T
    assert 0.65 < np.diag(diagonal).min() and np.diag(diagonal).max() < 1.25
    np.testing.assert_allclose(diagonal - np.diag(np.diag(diagonal)), 0.0, atol=2e-3)
    theirs = keras.optimizers.Muon().zeropower_via_newtonschulz5(tf.constant(matrix), 5)
    assert_close(ours, keras.ops.convert_to_numpy(theirs))


def newton_schulz(matrix):
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / np.linalg.norm(x)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def test_steps_of_a_matrix_and_of_all_others():
    """A layer's kernel by hand; a bias and an embedding as AdamW moves them."""
    draw = np.random.default_rng(4)
    shapes = {
        "bert/encoder/layer_0/attention/self/query/kernel": (6, 4),
        "bert/encoder/layer_0/attention/self/query/bias": (4,),
        "bert/embeddings/word_embeddings": (9, 4),
        "cls/predictions/transform/dense/kernel": (4, 4),
    }
    start = {path: draw.normal(size=shape).astype("float32") for path, shape in shapes.items()}

    def variables():
        made = []
        for path, value in start.items():
            *scopes, name = path.split("/")
            with contextlib.ExitStack() as stack:
                for scope in scopes:
                    stack.enter_context(keras.name_scope(scope))
                made.append(keras.Variable(value, name=name))
        return made

    ours, others = variables(), variables()
    muon, adamw = (make(RATE, weight_decay_rate=DECAY, clip_norm=0.0) for make in (Muon, AdamW))
    weight, momentum = start["bert/encoder/layer_0/attention/self/query/kernel"].copy(), 0.0
    for _ in range(4):
        gradients = [draw.normal(size=shape).astype("float32") for shape in shapes.values()]
        for optimizer, of in ((muon, ours), (adamw, others)):
            optimizer.apply_summed([tf.constant(gradient) for gradient in gradients], of)
        momentum = 0.95 * momentum + gradients[0]
        update = 0.2 * np.sqrt(6) * newton_schulz(gradients[0] + 0.95 * momentum)
        weight = weight - RATE * (update + DECAY * weight)
        np.testing.assert_allclose(ours[0].numpy(), weight, atol=2e-5)
    for one, other in zip(ours[1:], others[1:], strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert np.abs(ours[0].numpy() - others[0].numpy()).max() > 1e-3


def test_all_matrices_of_the_layers_are_taken_and_no_other():
    model = BertPretrainer(TOY)
    optimizer = Muon(RATE)
    optimizer.build(model.trainable_variables)
    taken = {
        variable.path
        for variable, rule in zip(model.trainable_variables, optimizer._rules, strict=True)
        if rule.is_orthogonal
    }
    layers = [v.path for v in model.trainable_variables if "/layer_" in v.path]
    assert taken == {path for path in layers if path.endswith("kernel")}
    assert len(taken) == 6 * TOY.num_hidden_layers
