"""Pairs of labelled texts are those of SetFit, and depend only on the seed."""

import collections

import numpy as np
import pytest

from bert_tf.tasks.classification import pairs
from bert_tf.tasks.classification.pairs import check_counts, make_pairs, pair_examples

LABELS = np.array([0, 0, 0, 1, 1, 2])
# All pairs i <= j: 6 + 3 + 1 with a common label, 11 without.
SIMILAR = {(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2), (3, 3), (3, 4), (4, 4), (5, 5)}
ALL = {(i, j) for i in range(6) for j in range(i, 6)}


def counted(made) -> dict[float, collections.Counter]:
    """Returns how often each pair occurs, by score."""
    found = {0.0: collections.Counter(), 1.0: collections.Counter()}
    for pair, score in zip(made.indices.tolist(), made.scores.tolist(), strict=True):
        found[score][tuple(pair)] += 1
    return found


def test_unique_has_each_pair_once():
    made = make_pairs(LABELS, "unique", seed=1)
    found = counted(made)
    assert found[1.0] == collections.Counter(SIMILAR)
    assert found[0.0] == collections.Counter(ALL - SIMILAR)
    assert made.scores.tolist() == [1.0, 0.0] * 10 + [0.0]


def test_oversampling_repeats_the_rarer_kind():
    found = counted(make_pairs(LABELS, "oversampling", seed=1))
    assert set(found[1.0]) == SIMILAR and set(found[0.0]) == ALL - SIMILAR
    assert sorted(found[1.0].values()) == [1] * 9 + [2]
    assert found[0.0].total() == 11


def test_pairs_are_a_function_of_the_seed():
    first, same, other = (make_pairs(LABELS, seed=seed).indices.tolist() for seed in (3, 3, 4))
    assert first == same and first != other


@pytest.mark.parametrize("sampling", ["unique", "oversampling"])
def test_the_limit_is_for_each_example(sampling):
    made = make_pairs(LABELS, sampling, pairs_per_example=2)
    assert made.scores.tolist() == [1.0, 0.0] * 6
    assert len(set(map(tuple, made.indices.tolist()))) == 12


def test_several_labels_are_similar_with_one_in_common():
    labels = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]], np.float32)
    found = counted(make_pairs(labels, "unique"))
    # A text without labels has none in common even with itself.
    assert set(found[1.0]) == {(0, 0), (0, 1), (1, 1), (2, 2)}
    assert found[0.0].total() == 6


@pytest.mark.parametrize("labels", [np.arange(40) % 4, np.eye(4)[np.arange(40) % 4]])
def test_many_pairs_are_drawn(monkeypatch, labels):
    monkeypatch.setattr(pairs, "MOST_LISTED", 10)
    made = make_pairs(labels, pairs_per_example=4, seed=2)
    found = counted(made)
    assert found[0.0].total() == 80 and max(found[0.0].values()) == 1
    assert all(i < j and i % 4 != j % 4 for i, j in found[0.0])
    assert all(i % 4 == j % 4 for i, j in found[1.0])


@pytest.mark.parametrize("labels", [np.arange(24) % 3, np.eye(3)[np.arange(24) % 3]])
def test_in_batch_gives_each_text_partners_with_its_label(labels):
    made = make_pairs(labels, "in_batch", pairs_per_example=10, seed=2)
    firsts, seconds = made.indices.T
    assert len(firsts) == 24 * 5
    assert (firsts % 3 == seconds % 3).all() and (firsts != seconds).all()
    assert (made.scores == 1.0).all()
    # A round has each text once, and all five partners of a text are different.
    for start in range(0, 120, 24):
        assert sorted(firsts[start : start + 24]) == list(range(24))
    assert len(set(map(tuple, made.indices.tolist()))) == 120
    assert firsts[:24].tolist() != firsts[24:48].tolist()


def test_in_batch_without_a_limit_has_each_pair_once():
    found = make_pairs(LABELS, "in_batch").indices.tolist()
    assert {tuple(sorted(pair)) for pair in found if 5 not in pair} == {
        (0, 1),
        (0, 2),
        (1, 2),
        (3, 4),
    }


def test_in_batch_pairs_texts_without_a_partner():
    lonely = make_pairs(LABELS, "in_batch", pairs_per_example=4).indices
    assert (lonely[lonely[:, 0] == 5][:, 1] != 5).all()
    labels = np.array([[1, 1], [0, 1], [0, 0], [0, 0]], np.float32)
    made = make_pairs(labels, "in_batch", pairs_per_example=2)
    found = dict(zip(map(tuple, made.indices.tolist()), made.scores.tolist(), strict=True))
    assert found == {(0, 1): 1.0, (1, 0): 1.0, (2, 3): 0.0, (3, 2): 0.0}


def test_examples_have_the_labels_of_both_texts():
    texts = [f"text {index}" for index in range(6)]
    made = pair_examples(texts, texts, LABELS, "in_batch", 2, seed=3)
    pairs = make_pairs(LABELS, "in_batch", 2, seed=3)
    for example, (first, second) in zip(made, pairs.indices, strict=True):
        assert (example.query, example.positive) == (texts[first], texts[second])
        labels = np.reshape(example.scores, [2, 3])
        assert labels.argmax(axis=1).tolist() == LABELS[[first, second]].tolist()
        assert labels.sum() == 2.0


def test_labels_without_pairs_are_refused():
    check_counts(LABELS[:5], ["a", "b"])
    for labels, names, named in (
        (LABELS, ["a", "b", "c"], "'c'"),
        (np.zeros(4, int), ["only"], "'only'"),
        (np.array([[1, 0], [1, 0], [1, 1]]), ["x", "y"], "'y'"),
        (np.ones([3, 2]), ["x", "y"], "3"),
    ):
        with pytest.raises(ValueError, match=named):
            check_counts(labels, names)
