"""Sentence pairs and full sentences: against the rules of the original, spelt out anew."""

import random

import numpy as np
import pytest

from bert_tf.config import DataConfig
from bert_tf.corpus.google_examples import _draw_pairs, _truncate
from bert_tf.corpus.sentence_pairs import (
    document_generator,
    full_sentences,
    sentence_pairs,
    truncate_pair,
)
from bert_tf.corpus.token_store import TokenStore, write_part

DOCUMENT = 2000  # piece = document * DOCUMENT + place in the document


def make_store(folder, num_documents, seed=0, longest=12, sentences=30):
    """Documents whose pieces tell where they come from; in two files."""
    generator = np.random.default_rng(seed)
    documents = []
    for number in range(num_documents):
        lengths = generator.integers(1, longest + 1, generator.integers(1, sentences + 1))
        pieces = number * DOCUMENT + np.arange(lengths.sum())
        documents.append([part.tolist() for part in np.split(pieces, lengths.cumsum()[:-1])])
    write_part(folder / "0", documents[:3], 4)
    write_part(folder / "1", documents[3:], 4)
    return TokenStore([folder / "0", folder / "1"]), documents


def all_pairs(store, *, seed=7, duplicates=1, **options):
    options = {"max_seq_length": 32, "short_seq_prob": 0.1, **options}
    documents = np.arange(store.num_documents)
    for duplicate in range(duplicates):
        for index in documents.tolist():
            generator = document_generator(seed, duplicate, index)
            yield index, list(sentence_pairs(store, documents, index, generator, **options))


def test_layout_and_partner(tmp_path):
    store, _ = make_store(tmp_path, 20)
    for document, pairs in all_pairs(store, duplicates=20):
        for ids_a, ids_b, is_random_next in pairs:
            assert 1 <= len(ids_a) and 1 <= len(ids_b) and len(ids_a) + len(ids_b) <= 29
            assert set(ids_a // DOCUMENT) == {document}
            (partner,) = set(ids_b // DOCUMENT)
            assert is_random_next == (partner != document)
            assert (np.diff(ids_a) == 1).all() and (np.diff(ids_b) == 1).all()
            if not is_random_next:
                assert ids_b[0] > ids_a[-1]


def test_every_sentence_is_used_once_in_order(tmp_path):
    # Long enough sequences, never truncated except by random partners, which never cut segment a.
    store, documents = make_store(tmp_path, 12, longest=5)
    for document, pairs in all_pairs(store, duplicates=10, max_seq_length=64, short_seq_prob=0.0):
        used = []
        for ids_a, ids_b, is_random_next in pairs:
            used += ids_a.tolist() + ([] if is_random_next else ids_b.tolist())
        cut = sum(len(a) + len(b) == 61 for a, b, _ in pairs)
        whole = [piece for sentence in documents[document] for piece in sentence]
        assert used == sorted(set(used))  # nothing twice, in order
        # Gathering stops at 61 to 65 pieces: each full pair loses 4 of them at most.
        assert len(whole) - 8 * cut <= len(used) <= len(whole)


def test_half_of_the_pairs_are_random(tmp_path):
    store, documents = make_store(tmp_path, 50, sentences=60)
    labels = []
    for document, pairs in all_pairs(store, duplicates=30, short_seq_prob=0.0):
        last_sentence = documents[document][-1][0]
        for ids_a, _, is_random_next in pairs:
            # Segment a holds the last sentence only if no other was left: random by rule. Elsewhere
            # several sentences of at most 12 pieces are gathered for the target of 29.
            is_alone = ids_a[-1] >= last_sentence
            assert is_random_next or not is_alone
            if not is_alone:
                labels.append(is_random_next)
    assert len(labels) > 10_000
    assert abs(np.mean(labels) - 0.5) < 4 * 0.5 / len(labels) ** 0.5


def test_pairs_for_sentence_order_are_swapped_or_not(tmp_path):
    """Both segments of one text, half of them swapped; a sentence alone has a random partner."""
    store, documents = make_store(tmp_path, 50, sentences=60)
    labels = []
    for document, pairs in all_pairs(store, duplicates=30, short_seq_prob=0.0, swaps=True):
        used = []
        for ids_a, ids_b, is_second in pairs:
            if set(ids_b // DOCUMENT) != {document}:
                assert is_second and ids_a[-1] >= documents[document][-1][0]
                continue
            assert is_second == (ids_b[0] < ids_a[0])
            first, second = (ids_b, ids_a) if is_second else (ids_a, ids_b)
            assert first[-1] < second[0] and len(ids_a) + len(ids_b) <= 29
            used += [*first, *second]
            labels.append(is_second)
        assert used == sorted(set(used))  # nothing twice, in order
    assert len(labels) > 10_000
    assert abs(np.mean(labels) - 0.5) < 4 * 0.5 / len(labels) ** 0.5


def test_partner_is_uniform_over_the_other_documents(tmp_path):
    store, _ = make_store(tmp_path, 6, sentences=8)
    counts = np.zeros((6, 6))
    for document, pairs in all_pairs(store, duplicates=800):
        for _, ids_b, is_random_next in pairs:
            if is_random_next:
                counts[document, ids_b[0] // DOCUMENT] += 1
    assert (counts.diagonal() == 0).all()
    expected = counts.sum(axis=1, keepdims=True) / 5
    sigma = np.sqrt(expected * 0.8)
    deviation = np.abs(counts - expected) / sigma + np.eye(6) * -100
    assert deviation.max() < 4.5


def test_pairs_depend_on_seed_duplicate_and_document_alone(tmp_path):
    store, _ = make_store(tmp_path, 8)
    drawn = []
    for seed in (7, 7, 8):
        pairs = [pair for _, pairs in all_pairs(store, seed=seed) for pair in pairs]
        drawn.append([(a.tolist(), b.tolist()) for a, b, _ in pairs])
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("short_seq_prob", [0.0, 1.0])
def test_pairs_follow_the_law_of_the_original(tmp_path, short_seq_prob):
    """Numbers of pairs, of random ones and of pieces in both segments, as the original's loop."""
    store, documents = make_store(tmp_path, 30)
    data = DataConfig(max_seq_length=32, short_seq_prob=short_seq_prob)
    generator = random.Random(5)

    def totals(pairs):
        rows = [(1, len(ids_a), len(ids_b), is_random) for ids_a, ids_b, is_random in pairs]
        return np.sum(rows, axis=0, dtype=float)

    original = [
        [totals(_draw_pairs(documents, index, data, generator, 1)) for index in range(30)]
        for _ in range(40)
    ]
    pairs = all_pairs(store, duplicates=40, short_seq_prob=short_seq_prob)
    ours = np.reshape([totals(found) for _, found in pairs], (40, 30, 4))
    sums = [np.sum(original, axis=1), ours.sum(axis=1)]  # [passes, quantities] each
    error = np.sqrt(sum(sample.var(axis=0, ddof=1) / 40 for sample in sums))
    assert (np.abs(sums[0].mean(axis=0) - sums[1].mean(axis=0)) < 4.5 * error).all()
    assert (error < 0.05 * sums[0].mean(axis=0)).all()  # the comparison is a sharp one


@pytest.mark.parametrize("lengths", [(10, 4), (4, 10), (10, 10), (3, 3), (1, 30), (15, 14)])
def test_truncation_cuts_as_many_as_the_original(lengths):
    generator = random.Random(3)
    fronts = []
    for _ in range(400):
        front_a, back_a, front_b, back_b = truncate_pair(*lengths, 9, generator)
        lists = list(range(lengths[0])), list(range(lengths[1]))
        _truncate(*lists, 9, generator)
        assert [lengths[0] - front_a - back_a, lengths[1] - front_b - back_b] == [*map(len, lists)]
        fronts.append([front_a - back_a, front_b - back_b])
    cuts = max(0, sum(lengths) - 9)
    # Each cut is at the front or the back with equal chance.
    assert np.abs(np.mean(np.sum(fronts, axis=1))) <= 4 * (cuts / 400) ** 0.5


def test_full_sentences_use_every_piece_once(tmp_path):
    store, documents = make_store(tmp_path, 150, longest=40, sentences=10)
    order = np.random.default_rng(2).permutation(150)
    separator = 999_999
    rows = list(full_sentences(store, order, max_seq_length=32, sep_id=separator))
    assert all(len(row.ids_b) == 0 and not row.is_random_next for row in rows)
    assert all(1 <= len(row.ids_a) <= 30 for row in rows)
    pieces = np.concatenate([row.ids_a for row in rows])
    expected = [piece for number in order for sentence in documents[number] for piece in sentence]
    assert pieces[pieces != separator].tolist() == expected

    starts = {sentence[0] for document in documents for sentence in document}
    for row, following in zip(rows, rows[1:], strict=False):
        ids = row.ids_a
        for place in np.flatnonzero(ids == separator):  # only between two documents
            assert ids[place - 1] // DOCUMENT != ids[place + 1] // DOCUMENT
        assert len(set(ids[ids != separator] // DOCUMENT)) == 1 + (ids == separator).sum()
        # A row ends where the next sentence does not fit, or inside a sentence that fits no row.
        first = following.ids_a[0]
        if first in starts:
            document = documents[first // DOCUMENT]
            sentence = next(s for s in document if s[0] == first)
            needed = len(sentence) + (first // DOCUMENT != ids[-1] // DOCUMENT)
            assert len(ids) + needed > 30
        else:
            assert len(ids) == 30
