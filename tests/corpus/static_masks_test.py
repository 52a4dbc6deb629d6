"""Masks drawn beforehand: counts of the original's formula, laws within statistical bounds."""

import numpy as np
import pytest

from bert_tf.config import MaskingConfig
from bert_tf.corpus.splitmix import hash64
from bert_tf.corpus.static_masks import count_predictions, mask_rows
from bert_tf.text.vocab import Vocab

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCAB = Vocab((*SPECIAL, *(f"w{i}" for i in range(60)), *(f"##c{i}" for i in range(35))))
CONTINUATIONS = len(VOCAB) - 35


def make_rows(num_rows, length, seed=0):
    """Random pairs [CLS] a [SEP] b [SEP], a third of the pieces continuing a word."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(5, CONTINUATIONS, (num_rows, length)).astype(np.uint16)
    continued = generator.random(ids.shape) < 1 / 3
    ids[continued] = generator.integers(CONTINUATIONS, len(VOCAB), continued.sum())
    lengths = generator.integers(8, length + 1, num_rows)
    ids[:, 0] = VOCAB.cls_id
    rows = np.arange(num_rows)
    ids[rows, lengths // 2] = ids[rows, lengths - 1] = VOCAB.sep_id
    ids[np.arange(length) >= lengths[:, None]] = 0
    return ids, lengths, hash64(seed, rows)


@pytest.mark.parametrize("whole_words", [False, True])
def test_restores_and_never_touches_special_tokens(whole_words):
    config = MaskingConfig(max_predictions_per_seq=20, do_whole_word_mask=whole_words)
    ids, lengths, keys = make_rows(500, 128)
    masked = mask_rows(ids, lengths, keys, config, VOCAB)
    restored = masked.ids.copy()
    rows, slots = np.nonzero(masked.masked_lm_weights)
    positions = masked.masked_lm_positions[rows, slots]
    restored[rows, positions] = masked.masked_lm_ids[rows, slots]
    np.testing.assert_array_equal(restored, ids)
    assert not np.isin(ids[rows, positions], [VOCAB.cls_id, VOCAB.sep_id, VOCAB.pad_id]).any()
    for row in range(500):
        count = int(masked.masked_lm_weights[row].sum())
        assert (np.diff(masked.masked_lm_positions[row, :count]) > 0).all()
        for feature in masked[1:]:
            assert not feature[row, count:].any()
        wanted = min(20, max(1, round(int(lengths[row]) * 0.15)))
        assert count == wanted if not whole_words else wanted - 2 <= count <= wanted


def test_count_is_the_original_formula_for_every_length():
    lengths = np.arange(3, 513)
    for probability in (0.15, 0.3, 0.5, 0.01):
        config = MaskingConfig(masked_lm_prob=probability, max_predictions_per_seq=76)
        expected = [min(76, max(1, int(round(n * probability)))) for n in lengths.tolist()]
        assert count_predictions(lengths, config).tolist() == expected


def test_eighty_ten_ten_and_uniform_selection():
    config = MaskingConfig(max_predictions_per_seq=20)
    ids, lengths, keys = make_rows(6000, 128, seed=3)
    masked = mask_rows(ids, lengths, keys, config, VOCAB)
    rows, slots = np.nonzero(masked.masked_lm_weights)
    new = masked.ids[rows, masked.masked_lm_positions[rows, slots]]
    old = masked.masked_lm_ids[rows, slots]
    size, total = len(VOCAB), len(rows)
    assert total > 50_000
    # A random piece may be [MASK] or the same one: 0.8 + 0.1 / V and 0.1 + 0.1 / V.
    for share, law in (
        ((new == VOCAB.mask_id).mean(), 0.8 + 0.1 / size),
        ((new == old).mean(), 0.1 + 0.1 / size),
        ((new == VOCAB.pad_id).mean(), 0.1 / size),
    ):
        assert abs(share - law) < 4 * (law * (1 - law) / total) ** 0.5
    random_ids = new[(new != VOCAB.mask_id) & (new != old)]
    assert set(random_ids.tolist()) == set(range(size)) - {VOCAB.mask_id}
    # Every position is as likely: full rows only, positions 1..63 and 65..126.
    full = lengths == 128
    counts = np.bincount(masked.masked_lm_positions[full][:, :19].ravel(), minlength=128)
    share = counts[np.r_[1:64, 65:127]] / full.sum()
    assert np.abs(share - 19 / 125).max() < 4.5 * (0.152 * 0.848 / full.sum()) ** 0.5


def greedy_words(ids, order, budget):
    """The original's whole-word rule for one sequence and given ranks of its words."""
    words = []
    for position, piece in enumerate(ids.tolist()):
        if piece in (VOCAB.cls_id, VOCAB.sep_id):
            continue
        if words and piece >= CONTINUATIONS:
            words[-1].append(position)
        else:
            words.append([position])
    chosen = []
    for number in sorted(range(len(words)), key=lambda word: order[word]):
        if len(chosen) + len(words[number]) <= budget:
            chosen += words[number]
    return sorted(chosen)


def test_whole_words_equal_the_original_rule():
    from bert_tf.corpus.splitmix import uniform
    from bert_tf.corpus.static_masks import SELECT

    config = MaskingConfig(max_predictions_per_seq=10, do_whole_word_mask=True)
    ids, lengths, keys = make_rows(300, 64, seed=5)
    masked = mask_rows(ids, lengths, keys, config, VOCAB)
    for row in range(300):
        order = uniform(keys[row : row + 1, None], SELECT, np.arange(64))[0]
        budget = min(10, max(1, round(int(lengths[row]) * 0.15)))
        expected = greedy_words(ids[row, : lengths[row]], order, budget)
        count = int(masked.masked_lm_weights[row].sum())
        assert masked.masked_lm_positions[row, :count].tolist() == expected


@pytest.mark.parametrize("whole_words", [False, True])
def test_a_row_does_not_depend_on_its_batch(whole_words):
    config = MaskingConfig(do_whole_word_mask=whole_words)
    ids, lengths, keys = make_rows(50, 64)
    whole = mask_rows(ids, lengths, keys, config, VOCAB)
    part = mask_rows(ids[17:20], lengths[17:20], keys[17:20], config, VOCAB)
    for all_rows, some_rows in zip(whole, part, strict=True):
        np.testing.assert_array_equal(all_rows[17:20], some_rows)
    other = mask_rows(ids, lengths, hash64(1, keys), config, VOCAB)
    assert (other.masked_lm_positions != whole.masked_lm_positions).any()
