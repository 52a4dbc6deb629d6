"""Rows in memory: batches by hand, each row once an epoch, resumed, in buckets, in shares."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.corpus.mapping import InputShard
from bert_tf.tasks.base.examples.row_batches import (
    epoch_batches,
    evaluation_batches,
    training_batches,
)
from bert_tf.tasks.base.examples.rows import NO_LABEL, TokenizedDataset, length_buckets
from bert_tf.text.packing import PackedText

ALONE = InputShard()
NUM_ROWS, LONGEST = 23, 40
BUCKETS = [8, 16, 24, 32, 40]


def make_texts(count: int = NUM_ROWS, seed: int = 0) -> list[PackedText]:
    """Draws texts of 2 to 40 pieces, none twice."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(2, LONGEST + 1, count)
    lengths[5:7] = LONGEST, 2
    return [
        PackedText(draw.integers(1, 9999, n).tolist(), np.sort(draw.integers(0, 2, n)).tolist())
        for n in lengths
    ]


TEXTS = make_texts()


def make_rows(texts: list[PackedText] = TEXTS, num_choices: int = 0) -> TokenizedDataset:
    count = len(texts) // (num_choices or 1)
    labels = {
        "label_ids": np.arange(count, dtype=np.int32) * 10,
        "label_rows": np.arange(count * 3, dtype=np.float32).reshape(count, 3),
    }
    tags = [np.array(text.ids, np.int32) % 7 for text in texts]
    return TokenizedDataset(texts, labels, {"tag_ids": tags}, num_choices)


def in_numpy(data: tf.data.Dataset, count: int | None = None) -> list[dict[str, np.ndarray]]:
    return list(itertools.islice(data.as_numpy_iterator(), count))


def train(
    count: int,
    batch_size: int = 5,
    start: int = 0,
    seed: int = 1,
    buckets: list[int] = BUCKETS,
    shares: InputShard = ALONE,
    rows: TokenizedDataset | None = None,
) -> list[dict[str, np.ndarray]]:
    data = training_batches(rows or make_rows(), batch_size, start, seed, buckets, shares)
    return in_numpy(data, count)


def assert_same(received: list[dict], expected: list[dict]) -> None:
    for one, two in zip(received, expected, strict=True):
        assert list(one) == list(two)
        for name in two:
            np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def test_a_batch_by_hand():
    texts = [PackedText([2, 7, 3], [0, 0, 1]), PackedText([2, 3], [0, 1])]
    rows = TokenizedDataset(
        texts,
        {"label_ids": np.array([4, 5], np.int32)},
        {"tag_ids": [np.array([-1, 6, -1], np.int32), np.array([1, 2], np.int32)]},
    )
    batch = rows.batch(np.array([1, 0]), num_rows=3, length=4)
    expected = {
        "input_word_ids": [[2, 3, 0, 0], [2, 7, 3, 0], [0, 0, 0, 0]],
        "input_mask": [[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]],
        "input_type_ids": [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]],
        "row_ids": [1, 0, -1],
        "example_weights": [1.0, 1.0, 0.0],
        "tag_ids": [[1, 2, -1, -1], [-1, 6, -1, -1], [-1, -1, -1, -1]],
        "label_ids": [5, 4, 0],
    }
    assert list(batch) == list(expected)
    for name, values in expected.items():
        assert batch[name].dtype == ("float32" if name == "example_weights" else "int32")
        np.testing.assert_array_equal(batch[name], values, err_msg=name)
    assert len(rows) == 2 and rows.num_tokens == 5 and rows.lengths.tolist() == [3, 2]


def test_scores_of_pieces_stay_with_their_pieces():
    rows = TokenizedDataset([PackedText([2, 7, 3], [0, 0, 1]), PackedText([2, 3], [0, 1])])
    rows.token_scores["scores"] = np.arange(10, dtype=np.float32).reshape(5, 2)
    batch = rows.batch(np.array([1, 0]), num_rows=3, length=4)
    expected = np.zeros([3, 4, 2])
    expected[0, :2], expected[1, :3] = [[6, 7], [8, 9]], [[0, 1], [2, 3], [4, 5]]
    np.testing.assert_array_equal(batch["scores"], expected)
    assert batch["scores"].dtype == np.float32
    data = training_batches(rows, 2, 0, 1, [2, 4], ALONE)
    assert data.element_spec["scores"].shape.as_list() == [2, None, 2]
    first = next(iter(data))
    assert first["scores"].shape[:2] == first["input_word_ids"].shape


def test_a_batch_of_choices_by_hand():
    """Two questions of two choices; a row is as long as its longest choice."""
    sizes = (2, 4, 3, 1)
    texts = [PackedText([10 * i + j for j in range(n)], [1] * n) for i, n in enumerate(sizes, 1)]
    rows = TokenizedDataset(texts, {"label_ids": np.array([1, 0], np.int32)}, num_choices=2)
    assert len(rows) == 2 and rows.lengths.tolist() == [4, 3] and rows.num_tokens == 10
    batch = rows.batch(np.array([1]), 2, 3)
    np.testing.assert_array_equal(
        batch["input_word_ids"], [[[30, 31, 32], [40, 0, 0]], [[0] * 3] * 2]
    )
    np.testing.assert_array_equal(batch["input_mask"], [[[1, 1, 1], [1, 0, 0]], [[0] * 3] * 2])
    np.testing.assert_array_equal(batch["input_type_ids"], batch["input_mask"])
    np.testing.assert_array_equal(batch["label_ids"], [0, 0])
    np.testing.assert_array_equal(batch["example_weights"], [1.0, 0.0])


def test_weights_among_the_labels_take_the_place_of_one():
    weights = np.array([0.5, 3.0], np.float32)
    texts = [PackedText([1], [0]), PackedText([2], [0])]
    batch = TokenizedDataset(texts, {"example_weights": weights}).batch(np.array([1, 0]), 3, 2)
    np.testing.assert_array_equal(batch["example_weights"], [3.0, 0.5, 0.0])


def test_wrong_numbers_of_labels_are_named():
    with pytest.raises(ValueError, match=r"labels .*\['few'\].* 23"):
        TokenizedDataset(TEXTS, {"few": np.zeros(22), "right": np.zeros(23)})
    tags = [np.zeros(len(text.ids), np.int32) for text in TEXTS]
    with pytest.raises(ValueError, match=r"labels .*\['tag_ids'\].* 23"):
        TokenizedDataset(TEXTS, {}, {"tag_ids": tags[:-1]})


def test_every_epoch_shows_each_row_once_in_an_order_of_its_own():
    """23 rows in batches of 5: epochs end within batches, and no row is dropped there."""
    batches = train(23)
    assert {len(batch["row_ids"]) for batch in batches} == {5}
    epochs = np.concatenate([batch["row_ids"] for batch in batches]).reshape(5, 23)
    for epoch in epochs:
        assert sorted(epoch) == list(range(23))
    assert len({tuple(epoch) for epoch in epochs}) == 5


def test_order_follows_from_the_seed_and_the_place_alone():
    def order(**options) -> list[int]:
        batches = train(**options)
        return np.concatenate([batch["row_ids"] for batch in batches]).tolist()

    expected = order(count=12)
    assert order(count=12) == expected
    assert order(count=12, buckets=[LONGEST]) == expected
    assert order(count=6, batch_size=10) == expected  # the same places, cut in other batches
    assert order(count=12, seed=2) != expected
    other_labels = TokenizedDataset(make_texts(seed=9), {"label_ids": np.zeros(23, np.int32)})
    assert order(count=12, rows=other_labels) == expected


@pytest.mark.parametrize("start", [1, 4, 5, 17])
def test_a_resumed_run_sees_the_same_batches(start):
    assert_same(train(20 - start, start=start), train(20)[start:])


def test_a_batch_may_be_larger_than_all_rows():
    rows = make_rows(TEXTS[:3])
    batch = train(1, batch_size=8, rows=rows)[0]
    assert sorted(batch["row_ids"][:3]) == sorted(batch["row_ids"][3:6]) == [0, 1, 2]
    assert batch["example_weights"].sum() == 8


def test_batches_are_padded_to_the_smallest_bucket_that_holds_them():
    plain = train(30, batch_size=2, buckets=[LONGEST])
    bucketed = train(30, batch_size=2)
    lengths = make_rows().lengths
    for one, two in zip(bucketed, plain, strict=True):
        longest = lengths[one["row_ids"]].max()
        length = one["input_word_ids"].shape[1]
        assert length == -(-longest // 8) * 8  # the buckets are the multiples of 8
        assert two["input_word_ids"].shape[1] == LONGEST
        for name in two:
            value = two[name]
            if value.shape[-1] == LONGEST:
                empty = NO_LABEL if name == "tag_ids" else 0
                assert (value[:, length:] == empty).all()
                value = value[:, :length]
            np.testing.assert_array_equal(one[name], value, err_msg=name)
    assert len({batch["input_word_ids"].shape[1] for batch in bucketed}) > 2


def test_shapes_are_known_but_for_the_length():
    def shapes(buckets: list[int], num_choices: int = 0) -> dict[str, list]:
        rows = make_rows(TEXTS[:20], num_choices)
        data = training_batches(rows, 4, 0, 1, buckets, ALONE)
        return {name: spec.shape.as_list() for name, spec in data.element_spec.items()}

    fixed, free = shapes([LONGEST]), shapes(BUCKETS)
    for name in ("input_word_ids", "input_mask", "input_type_ids", "tag_ids"):
        assert fixed[name] == [4, LONGEST] and free[name] == [4, None]
        assert shapes(BUCKETS, 2)[name] == [4, 2, None]
    for name in ("row_ids", "example_weights", "label_ids"):
        assert fixed[name] == free[name] == [4]
    assert fixed["label_rows"] == free["label_rows"] == [4, 3]
    # Three classes, and buckets that end with 3: no axis of pieces.
    assert shapes([2, 3])["label_rows"] == [4, 3]


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_workers_make_the_parts_of_the_batch_of_one(workers):
    whole = train(10, batch_size=8)
    parts = [train(10, batch_size=8, shares=InputShard(w, workers)) for w in range(workers)]
    # All parts of a batch have its length, whatever their own rows need.
    joined = [
        {name: np.concatenate([part[name] for part in step]) for name in step[0]}
        for step in zip(*parts, strict=True)
    ]
    assert_same(joined, whole)
    own = [rows for w in range(workers) for rows in InputShard(w, workers).rows(8).tolist()]
    assert own == list(range(8))


def test_a_batch_that_cannot_be_dealt_is_refused():
    with pytest.raises(ValueError, match="batch size 9 .* 2 workers"):
        training_batches(make_rows(), 9, 0, 1, BUCKETS, InputShard(0, 2))


def evaluate(
    batch_size: int, max_steps: int = 0, shares: InputShard = ALONE, **options
) -> list[dict]:
    rows = options.get("rows") or make_rows()
    return in_numpy(evaluation_batches(rows, batch_size, max_steps, BUCKETS, shares))


@pytest.mark.parametrize("batch_size", [1, 4, 23, 30])
def test_evaluation_takes_every_row_once_the_longest_first(batch_size):
    batches = evaluate(batch_size)
    assert len(batches) == -(-23 // batch_size)
    row_ids = np.concatenate([batch["row_ids"] for batch in batches])
    weights = np.concatenate([batch["example_weights"] for batch in batches])
    np.testing.assert_array_equal(weights, row_ids >= 0)
    assert (row_ids[:23] >= 0).all() and (row_ids[23:] == -1).all()  # only the end is filled up
    lengths = [len(text.ids) for text in TEXTS]
    assert row_ids[:23].tolist() == sorted(range(23), key=lambda row: (-lengths[row], row))
    for batch in batches:
        longest = max(lengths[row] for row in batch["row_ids"] if row >= 0)
        assert batch["input_mask"].shape == (batch_size, -(-longest // 8) * 8)
        real = batch["row_ids"] >= 0
        np.testing.assert_array_equal(
            batch["input_mask"].sum(axis=1)[real], np.array(lengths)[batch["row_ids"][real]]
        )
        assert not batch["input_mask"][~real].any()
        assert (batch["tag_ids"][~real] == NO_LABEL).all()
    assert_same(evaluate(batch_size), batches)


def test_the_last_batch_of_an_evaluation_may_be_smaller():
    data = evaluation_batches(make_rows(), 5, 0, BUCKETS, is_filled=False)
    filled = in_numpy(evaluation_batches(make_rows(), 5, 0, BUCKETS, ALONE))
    assert data.element_spec["input_word_ids"].shape.rank == 2
    for batch, expected in zip(in_numpy(data), filled, strict=True):
        is_row = expected["row_ids"] >= 0
        assert batch["row_ids"].shape == (is_row.sum(),)
        for name, value in batch.items():
            np.testing.assert_array_equal(value, expected[name][is_row])
    assert len(batch["row_ids"]) == NUM_ROWS % 5


def test_an_epoch_of_keras_holds_each_row_once():
    data, steps = epoch_batches(make_rows(), 5, 0, 1, BUCKETS)
    assert steps == 5
    batches = in_numpy(data, 3 * steps)
    assert [len(batch["row_ids"]) for batch in batches] == [5, 5, 5, 5, 3] * 3
    epochs = [
        np.concatenate([batch["row_ids"] for batch in batches[i : i + steps]]).tolist()
        for i in (0, steps, 2 * steps)
    ]
    assert all(sorted(epoch) == list(range(NUM_ROWS)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    again, _ = epoch_batches(make_rows(), 5, steps, 1, BUCKETS)
    later = [batch["row_ids"].tolist() for batch in in_numpy(again, steps)]
    assert sum(later, []) == epochs[1]
    in_order, _ = epoch_batches(make_rows(), 5, 0, None, BUCKETS)
    assert sum((b["row_ids"].tolist() for b in in_numpy(in_order, steps)), []) == [*range(NUM_ROWS)]


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_evaluation_in_shares_loses_nothing(workers):
    """23 rows in batches of 8: of the last one, some workers have nothing but filling."""
    whole = evaluate(8)
    parts = [evaluate(8, shares=InputShard(w, workers)) for w in range(workers)]
    joined = [
        {name: np.concatenate([part[name] for part in step]) for name in step[0]}
        for step in zip(*parts, strict=True)
    ]
    assert_same(joined, whole)
    few = [evaluate(8, shares=InputShard(w, 4), rows=make_rows(TEXTS[:9])) for w in range(4)]
    found = np.concatenate([batch["row_ids"] for part in few for batch in part])
    assert sorted(found) == [-1] * 7 + list(range(9))


def test_evaluation_of_the_first_batches_alone():
    assert_same(evaluate(4, max_steps=2), evaluate(4)[:2])
    assert_same(evaluate(4, max_steps=99), evaluate(4))


@pytest.mark.parametrize(
    ("length", "options", "expected"),
    [
        (30, {"is_compiled": False}, [8, 16, 24, 30]),
        (32, {"is_compiled": False}, [8, 16, 24, 32]),
        (8, {"is_compiled": False}, [8]),
        (128, {"is_compiled": True}, [32, 64, 96, 128]),
        (200, {"is_compiled": True}, [32, 64, 96, 128, 192, 200]),
        (20, {"is_compiled": True}, [20]),
        (1024, {"is_compiled": True}, [32, 64, 96, 128, 192, 256, 384, 512, 1024]),
        (128, {"is_compiled": False, "is_plain": True}, [128]),
        (128, {"is_compiled": True, "is_plain": True}, [128]),
    ],
)
def test_buckets(length, options, expected):
    assert length_buckets(length, **options) == expected


def test_fingerprint_changes_with_any_piece_or_label():
    expected = make_rows().fingerprint()
    assert make_rows().fingerprint() == expected and len(expected) == 16
    seen = {expected}

    def see(texts=TEXTS, labels=0, tags=0):
        label_ids = np.arange(len(texts), dtype=np.int32) * 10
        label_ids[3] += labels
        other = make_rows(texts)
        other.labels["label_ids"] = label_ids
        pieces = [np.array(text.ids, np.int32) % 7 for text in texts]
        pieces[2][1] += tags
        seen.add(TokenizedDataset(texts, other.labels, {"tag_ids": pieces}).fingerprint())

    see()
    assert len(seen) == 1
    see(labels=1)
    see(tags=1)
    first = TEXTS[0]
    see([PackedText([first.ids[0] + 1, *first.ids[1:]], first.type_ids), *TEXTS[1:]])
    see([PackedText(first.ids, [1 - first.type_ids[0], *first.type_ids[1:]]), *TEXTS[1:]])
    see(TEXTS[::-1])
    see(TEXTS[:-1])
    # The same pieces, the end of one text at the start of the next.
    second = TEXTS[1]
    moved = PackedText(first.ids + second.ids[:1], first.type_ids + second.type_ids[:1])
    see([moved, PackedText(second.ids[1:], second.type_ids[1:]), *TEXTS[2:]])
    assert len(seen) == 8
