"""Permuted and causal language models: laws of their orders, and zihangdai/xlnet's rule."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import MaskingConfig, ModelConfig
from bert_tf.corpus import masking
from bert_tf.corpus.mask_draws import MaskDraws
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.objectives.masked_diffusion import MaskedDiffusion
from bert_tf.pretraining.objectives.masked_permuted import MaskedPermutedLM
from bert_tf.pretraining.objectives.permuted_lm import PermutedLM
from bert_tf.pretraining.objectives.replaced_tokens import mask_with_duplicates
from tests.corpus.masking_test import SEED, VOCAB, make_batch

LENGTH = 24
ROWS = 4000
MASKING = MaskingConfig(masked_lm_prob=0.3, max_predictions_per_seq=8)
CAUSAL = MaskingConfig(masked_lm_prob=0.3, max_predictions_per_seq=8, causal_share=0.25)


def mask(function, batch, config, example_ids=None, epochs=None):
    rows = np.arange(len(batch["input_mask"]))
    example_ids = rows if example_ids is None else example_ids
    epochs = np.zeros_like(rows) if epochs is None else epochs
    numbers = (tf.constant(values, tf.int64) for values in (example_ids, epochs))
    tensors = {name: tf.constant(values) for name, values in batch.items()}
    outputs = function(tensors, MaskDraws(*numbers, VOCAB, config, SEED))
    return {name: values.numpy() for name, values in outputs.items()}


@pytest.fixture(scope="module", name="permuted")
def fixture_permuted():
    batch = make_batch(ROWS, LENGTH)
    return batch, mask(PermutedLM.mask_batch, batch, MASKING)


def targets_of(batch, row) -> np.ndarray:
    return batch["query_positions"][row][batch["masked_lm_weights"][row] == 1]


def test_targets_are_those_that_would_be_masked(permuted):
    batch, ordered = permuted
    masked = mask(masking.mask_batch, batch, MASKING)
    for name in ("masked_lm_ids", "masked_lm_positions", "masked_lm_weights"):
        np.testing.assert_array_equal(ordered[name], masked[name])
    np.testing.assert_array_equal(ordered["input_word_ids"], batch["input_word_ids"])
    is_real = ordered["masked_lm_weights"] == 1
    np.testing.assert_array_equal(
        ordered["query_positions"], np.where(is_real, ordered["masked_lm_positions"], -1)
    )
    assert (ordered["query_word_ids"] == VOCAB.mask_id).all()


def test_targets_come_one_after_the_other(permuted):
    _, ordered = permuted
    for row in range(200):
        targets = targets_of(ordered, row)
        keys = ordered["key_ranks"][row]
        queries = ordered["query_ranks"][row]
        assert len(set(keys[targets])) == len(targets)
        np.testing.assert_array_equal(keys[targets], queries[targets])
        others = np.setdiff1d(np.arange(LENGTH), targets)
        assert not keys[others].any()
        assert (queries[others] == 1).all()


def test_every_order_is_as_likely(permuted):
    """Of two targets either is first in half of the rows: within five standard errors."""
    _, ordered = permuted
    firsts = []
    for row in range(ROWS):
        targets = targets_of(ordered, row)
        if len(targets) >= 2:
            ranks = ordered["key_ranks"][row]
            firsts.append(ranks[targets[0]] < ranks[targets[-1]])
    assert len(firsts) > 2000
    assert abs(np.mean(firsts) - 0.5) < 5 * 0.5 / len(firsts) ** 0.5


@pytest.mark.parametrize(
    ("function", "config", "drawn"),
    [
        (PermutedLM.mask_batch, MASKING, "key_ranks"),
        (masking.mask_batch, CAUSAL, "key_ranks"),
        (MaskedPermutedLM.mask_batch, MASKING, "query_positions"),
        (MaskedDiffusion.mask_batch, MASKING, "input_word_ids"),
        (mask_with_duplicates, MASKING, "masked_lm_positions"),
    ],
)
def test_pure_function_of_seed_epoch_and_example(function, config, drawn):
    batch = make_batch(40, LENGTH)
    whole = mask(function, batch, config)
    chosen = np.array([31, 2, 17])
    part = mask(function, {name: v[chosen] for name, v in batch.items()}, config, chosen)
    for name, values in part.items():
        np.testing.assert_array_equal(values, whole[name][chosen], err_msg=name)
    later = mask(function, batch, config, epochs=np.ones(40, np.int64))
    assert (later[drawn] != whole[drawn]).any()


def local_perm(targets: np.ndarray, is_functional: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Returns what a token does not see by zihangdai/xlnet's `_local_perm` (data_utils.py).

    Its arguments of one row: bool [T] the tokens to predict, bool [T] special tokens, int [T] the
    places in the order.
    """
    non_mask_tokens = ~targets & ~is_functional
    masked_or_functional = ~non_mask_tokens
    rev_index = np.where(non_mask_tokens, -1, index)
    target_tokens = masked_or_functional & ~is_functional
    self_rev_index = np.where(target_tokens, rev_index, rev_index + 1)
    return (self_rev_index[:, None] <= rev_index[None, :]) & masked_or_functional[None, :]


def test_special_tokens_in_the_order_of_the_original():
    config = MaskingConfig(masked_lm_prob=0.3, max_predictions_per_seq=8, rank_special_tokens=True)
    batch = make_batch(50, LENGTH)
    ordered = mask(PermutedLM.mask_batch, batch, config)
    plain = mask(PermutedLM.mask_batch, batch, MASKING)
    for row in range(50):
        real = np.flatnonzero(batch["input_mask"][row])
        targets = np.isin(np.arange(LENGTH), targets_of(ordered, row))
        np.testing.assert_array_equal(targets_of(plain, row), targets_of(ordered, row))
        specials = np.isin(batch["input_word_ids"][row], [VOCAB.cls_id, VOCAB.sep_id])
        key_ranks = ordered["key_ranks"][row]
        assert (key_ranks[targets | specials] > 0).all()
        hidden = key_ranks[None, :] >= ordered["query_ranks"][row][:, None]
        # `index` matters where it is compared alone: for ranked tokens.
        expected = local_perm(targets, specials, key_ranks - 1)
        np.testing.assert_array_equal(hidden[real][:, real], expected[real][:, real])


def test_causal_examples_predict_the_next_token():
    batch = make_batch(ROWS, LENGTH)
    drawn = mask(masking.mask_batch, batch, CAUSAL)
    plain = mask(masking.mask_batch, batch, MASKING)
    is_causal = drawn["is_causal"] == 1
    error = (0.25 * 0.75 / ROWS) ** 0.5
    assert abs(is_causal.mean() - 0.25) < 5 * error
    for name, values in plain.items():  # The others are masked as without a share.
        np.testing.assert_array_equal(drawn[name][~is_causal], values[~is_causal], err_msg=name)
    positions = np.arange(LENGTH)
    for row in np.flatnonzero(is_causal)[:200]:
        np.testing.assert_array_equal(drawn["input_word_ids"][row], batch["input_word_ids"][row])
        is_real = drawn["masked_lm_weights"][row] == 1
        before = drawn["masked_lm_positions"][row][is_real]
        labels = drawn["masked_lm_ids"][row][is_real]
        np.testing.assert_array_equal(labels, batch["input_word_ids"][row][before + 1])
        assert not np.isin(labels, [VOCAB.cls_id, VOCAB.sep_id, VOCAB.pad_id]).any()
        assert is_real.sum() == min(8, batch["input_mask"][row].sum() - 3)
        np.testing.assert_array_equal(drawn["key_ranks"][row], positions)
        np.testing.assert_array_equal(drawn["query_ranks"][row], positions + 1)


CONFIG = ModelConfig(
    vocab_size=len(VOCAB),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=LENGTH,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.3,
    reads_left_to_right=True,
)


def test_losses_of_masked_and_causal_examples():
    """Each kind's mean, and the mean over all predictions, from the logits by NumPy."""
    model = BertPretrainer(CONFIG, use_next_sentence=False, use_pooler=False)
    batch = mask(masking.mask_batch, make_batch(40, LENGTH), CAUSAL)
    outputs = model(batch)
    logits = outputs["masked_lm_logits"].numpy().astype(np.float64)
    log_shares = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    losses = -np.take_along_axis(log_shares, batch["masked_lm_ids"][..., None], axis=-1)[..., 0]
    weights = batch["masked_lm_weights"]
    is_causal = batch["is_causal"][:, None]
    sums = model.loss_and_metric_sums({k: tf.constant(v) for k, v in batch.items()}, outputs)
    for name, chosen in (
        ("masked_lm_loss", weights),
        ("masked_nats", weights * (1 - is_causal)),
        ("causal_nats", weights * is_causal),
    ):
        expected = (losses * chosen).sum() / chosen.sum()
        assert float(sums[name].mean()) == pytest.approx(expected, rel=1e-5)
    assert model.loss_names == ("masked_lm_loss",)


def test_permuted_loss_is_that_of_the_query_stream():
    model = BertPretrainer(
        CONFIG, use_next_sentence=False, use_pooler=False, objective="permuted_lm"
    )
    batch = mask(PermutedLM.mask_batch, make_batch(6, LENGTH), MASKING)
    logits = model(batch)["masked_lm_logits"]
    vectors = model.bert(batch)["query_output"]
    rows = tf.reshape(vectors, [-1, CONFIG.hidden_size])
    expected = model.predictions.score(rows, model.bert.embeddings.word_embeddings)
    np.testing.assert_allclose(logits, tf.reshape(expected, logits.shape), rtol=1e-5, atol=1e-5)
    # Without targets it fills in masks.
    plain = {name: v for name, v in batch.items() if "quer" not in name and "rank" not in name}
    assert np.abs(model(plain)["masked_lm_logits"] - logits).max() > 1e-3
