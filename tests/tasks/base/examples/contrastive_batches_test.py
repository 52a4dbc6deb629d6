"""Batches of queries and documents in which no text stands twice."""

import numpy as np
import pytest

from bert_tf.corpus.mapping import InputShard
from bert_tf.tasks.base.examples.contrastive_batches import (
    NO_TEXT,
    ContrastiveDataset,
    contrastive_batches,
)
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.text.packing import PackedText


def make_groups(queries, positives, negatives, *, scores=(), num_negatives=1, unique=True):
    """Makes examples of texts given as numbers; row and text number are the same."""
    texts = [PackedText([2, 5 + number, 3], [0, 0, 0]) for number in range(200)]
    return ContrastiveDataset(
        TokenizedDataset(texts),
        np.arange(200),
        np.array(queries),
        np.array(positives),
        negatives,
        scores,
        num_negatives,
        unique,
    )


def many(**options):
    """Makes 50 examples with many texts in common."""
    draw = np.random.default_rng(0)
    queries, positives = draw.integers(0, 20, 50), draw.integers(20, 60, 50)
    negatives = [draw.integers(60, 90, draw.integers(0, 4)).tolist() for _ in range(50)]
    return make_groups(queries, positives, negatives, **options)


@pytest.mark.parametrize("num_negatives", [0, 2])
def test_no_text_stands_twice_in_a_batch(num_negatives):
    groups = many(num_negatives=num_negatives)
    seen = set()
    for step in range(5 * 30):
        examples, epoch = groups.choose(step, 8, seed=4)
        documents, _ = groups.documents(examples, epoch)
        rows = np.concatenate([groups.queries[examples][:, None], documents], axis=1)
        texts = [set(row) - {NO_TEXT} for row in rows.tolist()]
        assert sum(map(len, texts)) == len(set.union(*texts))
        assert 1 <= len(examples) <= 8
        seen |= set(examples.tolist())
    assert seen == set(range(50))


def test_batches_are_a_function_of_seed_and_step():
    one, other = many(), many()
    steps = [17, 3, 17, 0, 40, 3]
    found = [one.choose(step, 8, seed=1)[0].tolist() for step in steps]
    assert found == [other.choose(step, 8, seed=1)[0].tolist() for step in reversed(steps)][::-1]
    assert found[0] == found[2] and found[0] != found[1]
    assert found[0] != one.choose(17, 8, seed=2)[0].tolist()


def test_an_epoch_shows_each_example_once_where_texts_differ():
    groups = make_groups(range(32), range(32, 64), [[]] * 32, num_negatives=0)
    for epoch in (0, 1):
        shown = [groups.choose(4 * epoch + step, 8, 0)[0] for step in range(4)]
        assert sorted(np.concatenate(shown)) == list(range(32))


def test_each_epoch_shows_the_next_negatives():
    groups = make_groups([0], [1], [[10, 11, 12]], num_negatives=2)
    shown = [groups.documents(np.array([0]), epoch)[0][0].tolist() for epoch in range(3)]
    assert shown == [[1, 10, 11], [1, 12, 10], [1, 11, 12]]
    few = make_groups([0], [1], [[10]], num_negatives=2)
    assert few.documents(np.array([0]), 5)[0].tolist() == [[1, 10, NO_TEXT]]


def test_what_a_batch_holds():
    groups = make_groups([0, 1], [2, 3], [[10], []], scores=[(0.5,), (0.25,)], num_negatives=1)
    batch = groups.batch(np.array([1, 0]), 0, 3, (4, 5))
    assert batch["query/input_word_ids"].tolist() == [[2, 6, 3, 0], [2, 5, 3, 0], [2, 5, 3, 0]]
    assert batch["query/input_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 0], [1, 0, 0, 0]]
    assert batch["document/input_word_ids"].shape == (3, 2, 5)
    assert batch["document/input_word_ids"][:2, 0, 1].tolist() == [8, 7]
    assert batch["document/input_word_ids"][1, 1, 1] == 15
    assert batch["document_weights"].tolist() == [[1, 0], [1, 1], [0, 0]]
    assert batch["example_weights"].tolist() == [1, 1, 0]
    assert batch["scores"].tolist() == [[0.25], [0.5], [0]]


def test_margins_go_with_the_negatives_that_are_shown():
    groups = make_groups([0], [1], [[10, 11, 12]], scores=[(1.0, 2.0, 3.0)], num_negatives=2)
    batch = groups.batch(np.array([0]), 1, 1, (3, 3))
    assert batch["document/input_word_ids"][0, 1:, 1].tolist() == [17, 15]
    assert batch["scores"].tolist() == [[3.0, 1.0]]


def test_workers_share_a_batch():
    groups = many()
    whole = next(iter(contrastive_batches(groups, 8, 3, 0, [3], InputShard())))
    parts = [
        next(iter(contrastive_batches(groups, 8, 3, 0, [3], InputShard(i, 2)))) for i in range(2)
    ]
    for name, value in whole.items():
        joined = np.concatenate([part[name] for part in parts])
        np.testing.assert_array_equal(joined, value, err_msg=name)


def test_the_fingerprint_changes_with_the_examples():
    prints = {
        make_groups([0, 1], [2, 3], negatives, scores=scores).fingerprint()
        for negatives in ([[10], []], [[], [10]], [[11], []])
        for scores in ((), [(0.5,), (0.25,)], [(0.5,), (0.5,)])
    }
    assert len(prints) == 9
