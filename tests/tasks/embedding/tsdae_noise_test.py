"""Deleted words: how many, which, and that epoch, example and seed decide it."""

import numpy as np
import pytest

from bert_tf.corpus.mapping import ALL, InputShard
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.embedding.tsdae_noise import INPUTS, DamagedTexts, damaged_batches, delete_words
from bert_tf.text.packing import PackedText

WORDS = [f"w{i}" for i in range(30)]


def test_words_are_deleted_at_the_rate_and_keep_their_order():
    text = " \n ".join(WORDS)
    kept = [delete_words(text, 0.6, 1, epoch, 0).split() for epoch in range(400)]
    share = np.mean([len(words) for words in kept]) / 30
    # The deviation of a mean of 12,000 draws is .0045.
    assert abs(share - 0.4) < 5 * 0.0045
    each = np.array([[word in words for words in kept] for word in WORDS]).mean(axis=1)
    assert (abs(each - 0.4) < 5 * (0.24 / 400) ** 0.5).all()  # Every word alike.
    counts = np.array([len(words) for words in kept])
    assert abs(counts.var() / (30 * 0.24) - 1) < 0.4  # Each word for itself: binomial.
    assert all(words == [word for word in WORDS if word in words] for words in kept)
    assert len(set(map(tuple, kept))) == 400
    assert delete_words("a  b\tc", 0.0, 1, 0, 0) == "a b c"


def test_one_word_stays_and_any_may():
    found = [delete_words("a b c", 1.0, 3, epoch, 9) for epoch in range(300)]
    counts = np.array([found.count(word) for word in "abc"])
    assert counts.sum() == 300 and (abs(counts - 100) < 5 * (300 * 2 / 9) ** 0.5).all()
    assert delete_words("alone", 1.0, 3, 0, 0) == "alone"


def test_other_seeds_epochs_and_examples_delete_others():
    text = " ".join(WORDS)
    keys = [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1), (1, 0, 0)]
    found = [delete_words(text, 0.6, *key) for key in keys]
    assert found[0] == found[-1] and len(set(found)) == 4


def pack(text):
    ids = [2, *(int(word[1:]) + 5 for word in text.split()), 3]
    return PackedText(ids, [0] * len(ids))


def damaged_texts(**options):
    texts = [" ".join(WORDS[i : 2 * i + 3]) for i in range(10)]
    return DamagedTexts(texts, pack, TokenizedDataset(list(map(pack, texts))), 0.6, **options)


BUCKETS = [4, 8, 16]


def batches(texts, count, start=0, shares=ALL, seed=1, size=4):
    found = damaged_batches(texts, size, start, seed, BUCKETS, shares).take(count)
    return list(found.as_numpy_iterator())


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_batches_are_the_same_from_any_step_on():
    whole = batches(damaged_texts(), 6)
    for own, expected in zip(batches(damaged_texts(), 3, start=3), whole[3:], strict=True):
        assert_equal(own, expected)
    other = batches(damaged_texts(), 1, seed=2)[0]
    assert not np.array_equal(other["whole/input_word_ids"], whole[0]["whole/input_word_ids"])


def test_each_epoch_shows_each_text_whole_and_damaged_anew():
    texts = damaged_texts(prompt_length=2)
    shown = [{}, {}]
    for step, batch in enumerate(batches(texts, 10, size=2)):
        assert set(batch["prompt_lengths"]) == {2}
        for row in range(2):
            parts = []
            for start in ("", "whole/"):
                ids, mask, types = (batch[start + name][row] for name in INPUTS)
                assert not types.any() and not ids[mask == 0].any()
                parts.append(tuple(ids[mask == 1]))
            damaged, whole = parts
            assert damaged[0] == whole[0] == 2 and damaged[-1] == whole[-1] == 3
            assert 3 <= len(damaged) and set(damaged) <= set(whole)
            shown[step // 5][whole] = damaged
    assert len(shown[0]) == 10 and shown[0].keys() == shown[1].keys()
    assert sum(shown[0][text] != shown[1][text] for text in shown[0]) > 5


def test_a_batch_is_damaged_by_seed_epoch_and_example():
    text = " ".join(WORDS[:14])
    texts = DamagedTexts([text] * 8, pack, TokenizedDataset([pack(text)] * 8), 0.6)

    def rows(seed, epoch):
        places = np.arange(8)
        made = texts.batch(places, np.full([8], epoch), seed, places, [16])
        return {tuple(row) for row in made["input_word_ids"].tolist()}

    found = rows(1, 0)
    assert len(found) > 6 and rows(1, 0) == found
    assert len(rows(2, 0) | found) > 12 and len(rows(1, 1) | found) > 12


def test_workers_share_a_batch_and_its_lengths():
    whole = batches(damaged_texts(), 5)
    parts = [batches(damaged_texts(), 5, shares=InputShard(worker, 2)) for worker in range(2)]
    for expected, *own in zip(whole, *parts, strict=True):
        joined = {name: np.concatenate([part[name] for part in own]) for name in expected}
        assert_equal(joined, expected)
    lengths = [batch["input_word_ids"].shape[1] for batch in whole]
    longest = [int(batch["input_mask"].sum(axis=1).max()) for batch in whole]
    assert lengths == [min(b for b in BUCKETS if b >= length) for length in longest]


def test_a_fingerprint_is_of_texts_and_pieces():
    one, other = damaged_texts(), damaged_texts()
    assert one.fingerprint() == other.fingerprint()
    other.texts[3] = other.texts[3].replace(" ", "\n", 1)
    assert one.fingerprint() != other.fingerprint()
    with pytest.raises(ValueError, match=" 4 .* 3 workers"):
        batches(damaged_texts(), 1, shares=InputShard(0, 3))
