"""A large vocabulary changes how the losses of masked tokens are computed, not the losses."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.network import chunked_vocabulary
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.objectives import masked_lm
from bert_tf.pretraining.objectives.masked_lm import VECTORS
from tests.tasks.models_test import (
    BATCH,
    CONFIG,
    PREDICTIONS,
    loss_and_gradients,
    make_batch,
    make_model,
)

V = CONFIG.vocab_size


@pytest.fixture
def large(monkeypatch):
    """Counts every vocabulary as large."""
    monkeypatch.setattr(masked_lm, "LARGE_VOCABULARY", 10)


def compute(model: BertPretrainer, batch: dict) -> tuple:
    outputs = model(batch, training=False)
    sums = model.loss_and_metric_sums(batch, outputs)
    return outputs["masked_lm_logits"], sums, *loss_and_gradients(model, batch)


@pytest.mark.parametrize(
    "objective", [pytest.param("masked_lm", marks=pytest.mark.slow), "masked_diffusion"]
)
def test_losses_accuracy_and_gradients_are_the_same(objective, monkeypatch):
    batch = make_batch()
    model = make_model(objective=objective)
    logits, sums, loss, gradients = compute(model, batch)
    monkeypatch.setattr(masked_lm, "LARGE_VOCABULARY", 10)
    large_logits, large_sums, large_loss, large_gradients = compute(model, batch)
    np.testing.assert_array_equal(large_logits, logits)
    assert large_sums.keys() == sums.keys()
    for name, value in sums.items():
        np.testing.assert_allclose(large_sums[name], value, rtol=1e-5)
    assert large_sums["masked_lm_accuracy"] == sums["masked_lm_accuracy"]
    np.testing.assert_allclose(large_loss, loss, rtol=1e-5)
    for received, expected in zip(large_gradients, gradients, strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-5)


def test_half_precision(large):
    batch = make_batch()
    loss, gradients = loss_and_gradients(make_model(), batch)
    half_loss, half_gradients = loss_and_gradients(make_model(dtype="mixed_bfloat16"), batch)
    np.testing.assert_allclose(half_loss, loss, rtol=2e-2)
    for received, expected in zip(half_gradients, gradients, strict=True):
        assert received.dtype == tf.float32
        assert np.abs(received - expected).max() <= 0.15 * np.abs(expected).max() + 1e-3


def test_normal_vocabularies_have_no_vectors():
    assert VECTORS not in make_model()(make_batch())
    # The largest of the common WordPiece vocabularies is the multilingual one.
    assert 119_547 < masked_lm.LARGE_VOCABULARY < 250_002


@pytest.mark.slow
@pytest.mark.parametrize("limit", [10, 1000])
def test_a_compiled_step_of_a_large_vocabulary_has_no_logits(limit, monkeypatch):
    monkeypatch.setattr(masked_lm, "LARGE_VOCABULARY", limit)
    monkeypatch.setattr(chunked_vocabulary, "default_chunk_size", lambda *_: 8)
    model = make_model()
    batch = {name: tf.constant(value) for name, value in make_batch().items()}

    @tf.function(jit_compile=True)
    def step(batch):
        loss, gradients = loss_and_gradients(model, batch)
        return loss, gradients

    text = step.experimental_get_compiler_ir(batch)(stage="optimized_hlo")
    count = BATCH * PREDICTIONS
    shapes = (f"f32[{count},{V}]", f"f32[{V},{count}]", f"f32[{BATCH},{PREDICTIONS},{V}]")
    found = [shape for shape in shapes if shape in text]
    assert bool(found) == (V <= limit)
