"""Masked diffusion: the laws of its masks, and its loss against LLaDA's recipe and a slow twin."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import MaskingConfig
from bert_tf.pretraining.objectives import make_objectives
from bert_tf.pretraining.objectives.masked_diffusion import MaskedDiffusion
from tests.corpus.masking_test import VOCAB, make_batch
from tests.pretraining.objectives.permuted_lm_test import LENGTH, mask


@pytest.fixture(scope="module")
def many():
    """Rows of all lengths, half of them full: C is 21 there."""
    batch = make_batch(8000, LENGTH)
    return batch, mask(MaskedDiffusion.mask_batch, batch, MaskingConfig())


def candidates_of(batch):
    specials = np.isin(batch["input_word_ids"], (VOCAB.cls_id, VOCAB.sep_id))
    return (batch["input_mask"] > 0) & ~specials


def test_every_number_of_masks_is_as_likely(many):
    """Chi-squared over 1 ... 21 of 4,000 rows; the bound fails one time in 10^6."""
    batch, masked = many
    sizes = candidates_of(batch).sum(axis=1)
    counts = (masked["masked_lm_weights"] > 0).sum(axis=1)
    assert (counts >= 1).all() and (counts <= sizes).all() and (counts == sizes).any()
    seen = np.bincount(counts[sizes == 21], minlength=22)[1:]
    expected = seen.sum() / 21
    assert seen.sum() >= 4000
    assert ((seen - expected) ** 2 / expected).sum() < 66.3  # 20 degrees of freedom.


def test_every_piece_is_as_likely(many):
    """A piece is masked in (C + 1) / 2C of the rows; each within five standard errors."""
    batch, masked = many
    full = np.flatnonzero(candidates_of(batch).sum(axis=1) == 21)
    is_masked = masked["input_word_ids"][full] == VOCAB.mask_id
    share = is_masked.mean(axis=0)[candidates_of(batch)[full].all(axis=0)]
    assert len(share) == 21
    np.testing.assert_allclose(share, 11 / 21, atol=5 * 0.5 / math.sqrt(len(full)))


def test_masks_weights_and_labels_of_every_row(many):
    batch, masked = many
    candidates = candidates_of(batch)
    for row in range(300):
        slots = np.flatnonzero(masked["masked_lm_weights"][row])
        places = masked["masked_lm_positions"][row, slots]
        assert len(set(places)) == len(slots) and candidates[row, places].all()
        inputs = batch["input_word_ids"][row].copy()
        np.testing.assert_array_equal(masked["masked_lm_ids"][row, slots], inputs[places])
        inputs[places] = VOCAB.mask_id  # All of them, and nothing else.
        np.testing.assert_array_equal(masked["input_word_ids"][row], inputs)
        weight = candidates[row].sum() / len(places)
        np.testing.assert_allclose(masked["masked_lm_weights"][row, slots], weight, rtol=1e-6)


def test_loss_and_accuracy_equal_a_slow_twin(many):
    batch, masked = many
    rows = slice(0, 12)
    labels = {name: masked[f"masked_lm_{name}"][rows] for name in ("positions", "ids", "weights")}
    logits = np.random.default_rng(5).normal(size=(12, LENGTH, len(VOCAB))).astype(np.float32)
    logits[:, ::2] += 9 * np.eye(len(VOCAB), dtype=np.float32)[labels["ids"][:, ::2]]
    loss, right, pieces = 0.0, 0.0, 0
    for row in range(12):
        original, text = batch["input_word_ids"][row], masked["input_word_ids"][row]
        candidates = candidates_of(batch)[row]
        share = (text == VOCAB.mask_id).sum() / candidates.sum()
        pieces += candidates.sum()
        for slot, place in enumerate(np.flatnonzero(text == VOCAB.mask_id)):
            scores = logits[row, slot].astype(float)
            loss += (math.log(np.exp(scores).sum()) - scores[original[place]]) / share
            right += (scores.argmax() == original[place]) / share
    found = {name: tf.constant(values[rows]) for name, values in masked.items()}
    sums = MaskedDiffusion().loss_and_metric_sums(found, {"masked_lm_logits": logits})
    assert float(sums["masked_lm_loss"].mean()) == pytest.approx(loss / pieces, rel=1e-5)
    assert float(sums["masked_lm_accuracy"].mean()) == pytest.approx(right / pieces, rel=1e-5)
    weight = MaskedDiffusion().loss_weights(found)["masked_lm_loss"]
    assert float(weight) == pytest.approx(pieces, rel=1e-6)


def test_the_mean_is_that_of_a_share_from_0_to_1(many):
    """LLaDA's: t even in (0, 1], each piece masked with probability t, weight 1 / t; integrated.

    The loss of a piece is any function of its place and of how many are masked.
    """
    batch, masked = many
    full = np.flatnonzero(candidates_of(batch).sum(axis=1) == 21)
    order = np.cumsum(candidates_of(batch)[full], axis=1) - 1  # Place among the candidates.
    losses = np.random.default_rng(6).exponential(size=(21, 22)) * np.arange(22)
    shares, steps = np.polynomial.legendre.leggauss(40)
    expected = 0.0
    for share, step in zip((shares + 1) / 2, steps / 2, strict=True):
        for count in range(1, 22):
            chance = math.comb(21, count) * share**count * (1 - share) ** (21 - count)
            expected += step * chance / share * count / 21 * losses[:, count].sum()
    weights, places = (masked[f"masked_lm_{name}"][full] for name in ("weights", "positions"))
    counts = (weights > 0).sum(axis=1, keepdims=True)
    found = weights * losses[np.take_along_axis(order, places, axis=1), counts]
    totals = found.sum(axis=1)
    assert abs(totals.mean() - expected) < 5 * totals.std() / math.sqrt(len(totals))


def test_a_model_knows_its_objective():
    (of_tokens,) = make_objectives(False, of_tokens="masked_diffusion")
    assert isinstance(of_tokens, MaskedDiffusion)
    with pytest.raises(ValueError, match="objective.*'diffusion'.*masked_lm, masked_diffusion"):
        make_objectives(False, of_tokens="diffusion")
