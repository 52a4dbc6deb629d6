"""Masked and permuted language model: laws of its batches, and its predictions."""

import collections
import dataclasses

import numpy as np
import pytest

from bert_tf.config import MaskingConfig
from bert_tf.corpus import masking
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.objectives.masked_permuted import MaskedPermutedLM
from bert_tf.pretraining.objectives.permuted_lm import PermutedLM
from tests.corpus.masking_test import VOCAB, make_batch
from tests.float_bounds import assert_close
from tests.pretraining.objectives.permuted_lm_test import (
    CONFIG,
    LENGTH,
    MASKING,
    ROWS,
    mask,
    targets_of,
)

LABELS = ("masked_lm_ids", "masked_lm_positions", "masked_lm_weights")
WHOLE_WORDS = dataclasses.replace(MASKING, do_whole_word_mask=True)


@pytest.mark.parametrize("config", [MASKING, WHOLE_WORDS])
def test_the_text_is_masked_as_for_a_masked_lm(config):
    batch = make_batch(60, LENGTH)
    drawn = mask(MaskedPermutedLM.mask_batch, batch, config)
    plain = mask(masking.mask_batch, batch, config)
    np.testing.assert_array_equal(drawn["input_word_ids"], plain["input_word_ids"])
    is_real = drawn["masked_lm_weights"] == 1
    for row in range(60):
        order = np.argsort(drawn["masked_lm_positions"][row][is_real[row]])
        for name in LABELS:
            expected = plain[name][row][plain["masked_lm_weights"][row] == 1]
            np.testing.assert_array_equal(drawn[name][row][is_real[row]][order], expected)
        targets = targets_of(drawn, row)
        count = len(targets)
        words = batch["input_word_ids"][row]
        masked = drawn["input_word_ids"][row]
        np.testing.assert_array_equal(drawn["query_content_ids"][row, :count], words[targets])
        np.testing.assert_array_equal(drawn["query_word_ids"][row, :count], masked[targets])
    np.testing.assert_array_equal(
        drawn["query_positions"], np.where(is_real, drawn["masked_lm_positions"], -1)
    )


def test_every_order_is_as_likely():
    """Of three targets each of the six orders, within five standard errors."""
    config = MaskingConfig(masked_lm_prob=0.3, max_predictions_per_seq=3)
    drawn = mask(MaskedPermutedLM.mask_batch, make_batch(ROWS, LENGTH), config)
    orders = collections.Counter()
    for row in range(ROWS):
        targets = targets_of(drawn, row)
        if len(targets) == 3:
            orders[tuple(np.argsort(targets))] += 1
    total = sum(orders.values())
    assert total > 2000 and len(orders) == 6
    error = (5 / 36 / total) ** 0.5
    assert all(abs(count / total - 1 / 6) < 5 * error for count in orders.values())


def test_the_order_is_that_of_the_permuted_lm():
    batch = make_batch(50, LENGTH)
    drawn = mask(MaskedPermutedLM.mask_batch, batch, MASKING)
    ordered = mask(PermutedLM.mask_batch, batch, MASKING)
    for row in range(50):
        ranks = ordered["key_ranks"][row][targets_of(drawn, row)]
        assert (np.diff(ranks) > 0).all()


def test_the_first_target_and_a_lone_one_are_those_of_a_masked_lm():
    """Where no target is known yet, the query sees what a masked token sees."""
    config = dataclasses.replace(CONFIG, reads_left_to_right=False)
    model = BertPretrainer(
        config, use_next_sentence=False, use_pooler=False, objective="masked_permuted_lm"
    )
    batch = mask(MaskedPermutedLM.mask_batch, make_batch(6, LENGTH), MASKING)
    logits = model(batch)["masked_lm_logits"]
    plain = {name: values for name, values in batch.items() if "query" not in name}
    filled = model(plain)["masked_lm_logits"]  # Without targets it fills in masks.
    assert_close(logits[:, 0], filled[:, 0])
    is_later = batch["masked_lm_weights"][:, 1:] == 1
    assert (np.abs(logits - filled)[:, 1:].max(axis=-1)[is_later] > 1e-4).all()


def test_special_tokens_are_no_targets():
    drawn = mask(MaskedPermutedLM.mask_batch, make_batch(50, LENGTH), MASKING)
    labels = drawn["masked_lm_ids"][drawn["masked_lm_weights"] == 1]
    assert not np.isin(labels, [VOCAB.cls_id, VOCAB.sep_id, VOCAB.pad_id]).any()
