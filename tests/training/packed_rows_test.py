"""Texts in rows: plans by hand, no piece lost or twice, few rows, parts alike."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.training.packed_rows import first_fit, pack_batch, plan_rows, round_up


def test_a_plan_by_hand():
    plan = plan_rows(np.array([5, 2, 3]), 5)
    np.testing.assert_array_equal(plan.order, [0, 1, 2])
    np.testing.assert_array_equal(plan.positions, [[0, 1, 2, 3, 4], [10, 11, 12, 5, 6]])
    np.testing.assert_array_equal(plan.starts, [0, 8, 5])


def test_parts_by_hand():
    # The longest to the first part, the next two to the second, and so on.
    plan = plan_rows(np.array([4, 1, 3, 2]), 4, num_parts=2)
    np.testing.assert_array_equal(plan.order, [0, 1, 2, 3])
    np.testing.assert_array_equal(
        plan.positions, [[0, 1, 2, 3], [4, -1, -1, -1], [0, 1, 2, -1], [4, 5, -1, -1]]
    )
    np.testing.assert_array_equal(plan.starts, [0, 4, 0, 4])


def test_choices_are_texts_and_their_example_stays_whole():
    plan = plan_rows(np.array([[1, 1], [3, 1], [2, 2], [1, 2]]), 4, num_parts=2)
    np.testing.assert_array_equal(plan.order, [0, 1, 2, 3])  # Sizes 2 and 4, 4 and 3.
    np.testing.assert_array_equal(
        plan.positions.reshape(2, -1, 4),
        [[[8, 9, 10, 0], [4, 12, -1, -1]], [[0, 1, 4, 5], [12, 13, 8, -1]]],
    )
    np.testing.assert_array_equal(plan.starts, [[3, 4], [0, 5], [0, 2], [6, 4]])


@pytest.mark.parametrize("num_parts", [1, 2, 8])
@pytest.mark.parametrize("longest", [128, 30])
def test_every_piece_has_one_place(num_parts, longest):
    draw = np.random.default_rng(num_parts)
    lengths = draw.integers(0, longest + 1, 64)
    order, places, starts = plan_rows(lengths, 128, num_parts)
    np.testing.assert_array_equal(np.sort(order), np.arange(64))
    dealt = lengths[order].reshape(num_parts, -1)
    for part, rows, firsts in zip(
        dealt, places.reshape(num_parts, -1, 128), starts.reshape(num_parts, -1), strict=True
    ):
        padded = np.flatnonzero(np.arange(128) < part[:, None])  # places of the part's pieces
        np.testing.assert_array_equal(np.sort(rows[rows >= 0]), padded)
        for text, (first, length) in enumerate(zip(firsts, part, strict=True)):
            expected = text * 128 + np.arange(length)
            np.testing.assert_array_equal(rows.ravel()[first : first + length], expected)
            assert first // 128 == (first + max(1, length) - 1) // 128  # within one row


def test_parts_need_like_numbers_of_rows():
    """Far fewer than if the examples were dealt as they come: the worst part counts for all."""
    draw = np.random.default_rng(0)
    lengths = np.where(draw.random(256) < 0.2, draw.integers(5, 128, 256), 128)
    dealt, as_they_come = plan_rows(lengths, 128, 8), lengths.reshape(8, 32)
    worst = max(first_fit(part, 128)[1] for part in as_they_come)
    assert len(dealt.positions) < 8 * worst
    assert len(dealt.positions) <= np.ceil(lengths.sum() / 128) + 8


def test_rows_are_nearly_the_fewest():
    draw = np.random.default_rng(0)
    for longest in (20, 60, 128):
        lengths = draw.integers(2, longest + 1, 200)
        num_rows = first_fit(lengths, 128)[1]
        assert lengths.sum() / 128 <= num_rows <= 1.05 * lengths.sum() / 128 + 1


def test_nothing_but_padding_is_one_empty_row():
    plan = plan_rows(np.zeros([3], int), 4)
    np.testing.assert_array_equal(plan.positions, [[-1, -1, -1, -1]])
    np.testing.assert_array_equal(plan.starts, [0, 0, 0])


@pytest.mark.parametrize(
    ("num_rows", "rounded"), [(0, 1), (1, 1), (37, 37), (63, 63), (65, 66), (126, 126), (238, 240)]
)
def test_numbers_of_rows_are_few(num_rows, rounded):
    assert round_up(num_rows) == rounded


def test_padding_before_pieces_is_refused():
    mask = tf.constant([[1, 1, 0, 0], [1, 0, 1, 0]])
    with pytest.raises(ValueError, match="input_mask .*1 .*0; --pack_rows"):
        pack_batch({"input_mask": mask})


def test_all_features_are_dealt_alike():
    mask = (np.arange(4) < np.array([1, 3, 4, 2])[:, None]).astype(np.int32)
    batch = {"input_mask": mask, "row_ids": np.array([7, 8, 9, -1], np.int32)}
    data = tf.data.Dataset.from_tensors(batch).map(lambda b: pack_batch(b, num_parts=2))
    assert data.element_spec["packed_positions"].shape.as_list() == [None, 4]
    assert data.element_spec["packed_starts"].shape.as_list() == [4]
    (packed,) = data
    # Sizes 4 and 1, 3 and 2; in the order of the batch.
    np.testing.assert_array_equal(packed["row_ids"], [7, 9, 8, -1])
    np.testing.assert_array_equal(packed["input_mask"], mask[[0, 2, 1, 3]])
    np.testing.assert_array_equal(packed["packed_starts"], [4, 0, 0, 4])
    same = pack_batch({name: tf.constant(values) for name, values in batch.items()})
    np.testing.assert_array_equal(same["row_ids"], batch["row_ids"])
