"""Masking with tensorflow-text's ops: what it shares with masking.py, and how it differs."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import MaskingConfig
from bert_tf.corpus.mask_draws import MaskDraws
from bert_tf.text.vocab import Vocab

tf_text_masking = pytest.importorskip("bert_tf.corpus.tf_text_masking")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCAB = Vocab((*SPECIAL, *(f"w{n}" for n in range(60)), *(f"##p{n}" for n in range(40))))


def make_batch(num_rows: int, length: int) -> dict[str, tf.Tensor]:
    """Returns single segments of random lengths with a [SEP] in the middle and at the end."""
    rng = np.random.default_rng(0)
    word_ids = rng.integers(5, len(VOCAB), (num_rows, length))
    lengths = rng.integers(8, length + 1, num_rows)
    rows = np.arange(num_rows)
    word_ids[:, 0], word_ids[rows, lengths // 2] = VOCAB.cls_id, VOCAB.sep_id
    word_ids[rows, lengths - 1] = VOCAB.sep_id
    input_mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    word_ids = (word_ids * input_mask).astype(np.int32)
    return {"input_word_ids": tf.constant(word_ids), "input_mask": tf.constant(input_mask)}


def mask(batch: dict[str, tf.Tensor], config: MaskingConfig) -> dict[str, np.ndarray]:
    zeros = tf.zeros(len(batch["input_mask"]), tf.int64)
    tf.random.set_seed(1)
    draws = MaskDraws(zeros, zeros, VOCAB, config, seed=0)
    masked = tf.function(lambda b: tf_text_masking.mask_batch(b, draws))(batch)
    return {name: values.numpy() for name, values in masked.items()}


def check_labels(batch: dict[str, tf.Tensor], masked: dict[str, np.ndarray]) -> list[set[int]]:
    """Asserts that the labels restore the input; returns the selected positions of each row."""
    original = batch["input_word_ids"].numpy()
    restored = masked["input_word_ids"].copy()
    selected = []
    for row in range(len(original)):
        count = int(masked["masked_lm_weights"][row].sum())
        positions = masked["masked_lm_positions"][row]
        assert (np.diff(positions[:count]) > 0).all()
        assert not positions[count:].any()
        restored[row, positions[:count]] = masked["masked_lm_ids"][row, :count]
        selected.append(set(positions[:count].tolist()))
        assert not np.isin(original[row, positions[:count]], [0, VOCAB.cls_id, VOCAB.sep_id]).any()
    np.testing.assert_array_equal(restored, original)
    return selected


@pytest.mark.slow
def test_pieces_are_selected_and_replaced():
    batch = make_batch(2000, 64)
    masked = mask(batch, MaskingConfig(masking="tf_text"))
    selected = check_labels(batch, masked)
    lengths = batch["input_mask"].numpy().sum(axis=1)
    expected = [min(20, math.ceil(np.float32(n - 3) * np.float32(0.15))) for n in lengths]
    assert [len(positions) for positions in selected] == expected
    real = masked["masked_lm_weights"] > 0
    inputs = np.take_along_axis(masked["input_word_ids"], masked["masked_lm_positions"], 1)[real]
    for share, is_so in (
        (0.8 + 0.1 / len(VOCAB), inputs == VOCAB.mask_id),
        (0.1 + 0.1 / len(VOCAB), inputs == masked["masked_lm_ids"][real]),
    ):
        assert abs(is_so.mean() - share) < 4 * np.sqrt(share * (1 - share) / len(inputs))


@pytest.mark.slow
@pytest.mark.parametrize("limit", [40, 5])
def test_whole_words_are_not_split_below_the_limit(limit):
    batch = make_batch(300, 64)
    config = MaskingConfig(
        masking="tf_text", do_whole_word_mask=True, max_predictions_per_seq=limit
    )
    selected = check_labels(batch, mask(batch, config))
    word_ids = batch["input_word_ids"].numpy()
    for row, positions in enumerate(selected):
        if len(positions) == limit:  # the last word may be cut
            positions -= {max(positions)}
        end = max(positions, default=0) if limit == 5 else word_ids.shape[1] - 1
        for position in range(2, end + 1):
            follows = word_ids[row, position - 1] not in (VOCAB.cls_id, VOCAB.sep_id)
            if VOCAB.is_continuation[word_ids[row, position]] and follows:
                assert (position in positions) == (position - 1 in positions)


def test_words_are_grouped():
    ids = [VOCAB.ids[t] for t in ("[CLS]", "w1", "##p1", "##p2", "w2", "[SEP]", "##p3", "[SEP]")]
    word_ids = tf.constant([[*ids, 0], [ids[0], ids[2], ids[7], *[0] * 6]], tf.int32)
    words = tf_text_masking.group_words(word_ids, tf.cast(word_ids > 0, tf.int32), VOCAB)
    expected = [[[ids[0]], ids[1:4], [ids[4]], [ids[5]], [ids[6]], [ids[7]]]]
    assert words.to_list() == [*expected, [[ids[0]], [ids[2]], [ids[7]]]]
