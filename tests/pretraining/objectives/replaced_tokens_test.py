"""Positions drawn as google-research/electra draws them: with replacement."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import MaskingConfig
from bert_tf.pretraining.objectives.electra import put_replacements
from bert_tf.pretraining.objectives.replaced_tokens import mask_with_duplicates
from tests.corpus.masking_test import VOCAB, make_batch
from tests.pretraining.objectives.masked_diffusion_test import candidates_of
from tests.pretraining.objectives.permuted_lm_test import mask

LENGTH, LIMIT, ROWS = 40, 8, 3000
MASKING = MaskingConfig(
    masked_lm_prob=0.2, max_predictions_per_seq=LIMIT, masked_share=0.85, random_share=0.0
)


@pytest.fixture(scope="module")
def many():
    batch = make_batch(ROWS, LENGTH)
    return batch, mask(mask_with_duplicates, batch, MASKING)


def test_positions_are_drawn_evenly_and_with_replacement(many):
    """Chi-squared of the places of full rows, and the mean of their distinct positions."""
    batch, masked = many
    full = np.flatnonzero(candidates_of(batch).sum(axis=1) == 37)
    positions = masked["masked_lm_positions"][full]
    assert (masked["masked_lm_weights"][full] == 1).all()  # 0.2 of 40: all eight.
    seen = np.bincount(positions.ravel(), minlength=LENGTH)
    places = candidates_of(batch)[full].all(axis=0)
    assert seen[~places].sum() == 0 and places.sum() == 37
    expected = positions.size / 37
    assert ((seen[places] - expected) ** 2 / expected).sum() < 93.2  # 36 degrees, one in 10^6.
    distinct = np.array([len(set(row)) for row in positions])
    wanted = 37 * (1 - (1 - 1 / 37) ** LIMIT)
    assert abs(distinct.mean() - wanted) < 5 * distinct.std() / math.sqrt(len(full))
    assert distinct.min() < LIMIT - 1


def test_every_draw_decides_for_itself(many):
    """A position is [MASK] if one of its draws says so: 0.85, and 1 - 0.15 ** 2 of two."""
    batch, masked = many
    places = batch["input_word_ids"] != masked["input_word_ids"]
    assert (masked["input_word_ids"][places] == VOCAB.mask_id).all()
    once, twice = [], []
    for row in range(ROWS):
        real = masked["masked_lm_weights"][row] > 0
        positions, counts = np.unique(masked["masked_lm_positions"][row, real], return_counts=True)
        once.extend(places[row, positions[counts == 1]])
        twice.extend(places[row, positions[counts == 2]])
        assert not places[row].sum() > len(positions)
    for seen, share in ((once, 0.85), (twice, 1 - 0.15**2)):
        assert len(seen) > 1000
        assert abs(np.mean(seen) - share) < 5 * math.sqrt(share * (1 - share) / len(seen))


def test_labels_counts_and_padding(many):
    batch, masked = many
    ids, positions = masked["masked_lm_ids"], masked["masked_lm_positions"]
    real = masked["masked_lm_weights"] > 0
    lengths = batch["input_mask"].sum(axis=1)
    wanted = [min(LIMIT, max(1, round(0.2 * int(length)))) for length in lengths]
    np.testing.assert_array_equal(real.sum(axis=1), wanted)
    originals = np.take_along_axis(batch["input_word_ids"], positions, axis=1)
    np.testing.assert_array_equal(ids, np.where(real, originals, 0))
    assert not positions[~real].any()


def test_fakes_of_one_position_are_averaged(many):
    """Against google-research/electra's rule, row by row; it rounds down."""
    _, masked = many
    inputs = {name: tf.constant(values[:200]) for name, values in masked.items()}
    fakes = np.random.default_rng(3).integers(0, len(VOCAB), (200, LIMIT)).astype(np.int32)
    fakes[::3] = masked["masked_lm_ids"][:200][::3]  # Right ones count as no fakes.
    ids, labels = put_replacements(inputs, tf.constant(fakes))
    duplicates = 0
    for row in range(200):
        found: dict[int, list[int]] = {}
        for slot in np.flatnonzero(masked["masked_lm_weights"][row]):
            found.setdefault(int(masked["masked_lm_positions"][row, slot]), []).append(
                int(fakes[row, slot])
            )
        slots = dict(
            zip(masked["masked_lm_positions"][row], masked["masked_lm_ids"][row], strict=True)
        )
        expected, replaced = masked["input_word_ids"][row].copy(), np.zeros(LENGTH)
        for place, values in found.items():
            expected[place] = sum(values) // len(values)
            replaced[place] = expected[place] != slots[place]
            duplicates += len(values) > 1
        np.testing.assert_array_equal(ids[row], expected)
        np.testing.assert_array_equal(labels[row], replaced)
    assert duplicates > 50
