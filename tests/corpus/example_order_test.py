"""The order of examples: a permutation an epoch, uniform, the same wherever one begins."""

import collections

import numpy as np
import pytest

from bert_tf.corpus.example_order import order_examples, permute


@pytest.mark.parametrize("size", [*range(1, 40), 63, 64, 65, 127, 128, 129, 1000, 4096, 100_003])
def test_every_epoch_shows_every_example_once(size):
    for epoch in (0, 1, 1000):
        permuted = permute(np.arange(size), size, np.full(size, epoch), seed=3)
        np.testing.assert_array_equal(np.sort(permuted), np.arange(size))


def test_places_do_not_depend_on_how_they_are_asked_for():
    whole, epochs = order_examples(np.arange(1000), 37, seed=9)
    np.testing.assert_array_equal(epochs, np.arange(1000) // 37)
    for start in (0, 36, 37, 500):
        ids, _ = order_examples(np.arange(start, start + 64), 37, seed=9)
        np.testing.assert_array_equal(ids, whole[start : start + 64])
    backwards, _ = order_examples(np.arange(1000)[::-1], 37, seed=9)
    np.testing.assert_array_equal(backwards[::-1], whole)


def test_epochs_and_seeds_have_orders_of_their_own():
    size = 10_000
    first, epochs = order_examples(np.arange(2 * size), size, seed=1)
    other, _ = order_examples(np.arange(size), size, seed=2)
    # Two random orders agree at one place on average (Poisson); 12 has probability 1e-9.
    for order in (first[size:], other, np.arange(size)):
        assert (first[:size] == order).sum() < 12
    assert epochs[-1] == 1


def test_all_orders_of_four_are_equally_frequent():
    epochs = np.repeat(np.arange(24_000), 4)
    orders = permute(np.tile(np.arange(4), 24_000), 4, epochs, seed=0).reshape(-1, 4)
    counts = np.array(list(collections.Counter(map(tuple, orders.tolist())).values()))
    assert len(counts) == 24
    assert ((counts - 1000) ** 2 / 1000).sum() < 51.0  # 23 degrees of freedom: p = 0.0007


@pytest.mark.parametrize("size", [50, 1000])
def test_each_place_gets_each_example_equally_often(size):
    num_epochs = 200 * size
    for place in (0, 1, size // 2, size - 1):
        seen = permute(np.full(num_epochs, place), size, np.arange(num_epochs), seed=4)
        counts = np.bincount(seen, minlength=size)
        chi_square = ((counts - 200) ** 2 / 200).sum()
        freedom = size - 1
        assert abs(chi_square - freedom) < 4 * np.sqrt(2 * freedom)


def test_neighbours_are_parted():
    size = 100_000
    permuted = permute(np.arange(size), size, np.zeros(size, int), seed=8)
    distances = np.abs(np.diff(permuted))
    # |difference| of two uniform numbers: mean size / 3, standard deviation size / sqrt(18).
    assert abs(distances.mean() - size / 3) < 4 * size / np.sqrt(18 * size)
    correlation = np.corrcoef(np.arange(size), permuted)[0, 1]
    assert abs(correlation) < 4 / np.sqrt(size)


def test_no_examples_are_refused():
    with pytest.raises(ValueError, match="num_examples.* 0"):
        order_examples(np.arange(3), 0, seed=0)
