"""Pooling against NumPy, row by row; padding of any content; rows without pieces."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.network.pooling import POOLINGS, l2_normalize, pool_tokens
from tests.float_bounds import assert_close

LENGTHS = (7, 1, 3, 5)


def random_case() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    # Below zero throughout: a maximum that saw padding of zeros would be zero.
    sequence = -1 - draw.random((len(LENGTHS), 7, 11), np.float32)
    return sequence, (np.arange(7) < np.array(LENGTHS)[:, None]).astype(np.int32)


@pytest.mark.parametrize(
    ("pooling", "function"),
    [
        ("cls", lambda pieces: pieces[0]),
        ("mean", lambda pieces: pieces.astype(np.float64).mean(axis=0)),
        ("max", lambda pieces: pieces.max(axis=0)),
    ],
)
def test_each_row_alone_without_its_padding(pooling, function):
    sequence, mask = random_case()
    pooled = pool_tokens(sequence, mask, pooling)
    assert pooled.shape == (4, 11) and pooled.dtype == "float32"
    expected = [function(row[:length]) for row, length in zip(sequence, LENGTHS, strict=True)]
    assert_close(pooled, expected)


@pytest.mark.parametrize("content", [1e30, np.inf, np.nan])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_may_hold_anything(pooling, content):
    sequence, mask = random_case()
    expected = pool_tokens(sequence, mask, pooling)
    padded = np.where(mask[..., None] == 1, sequence, np.float32(content))
    np.testing.assert_array_equal(pool_tokens(padded, mask, pooling), expected)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_row_of_padding_stays_finite(pooling):
    sequence, mask = random_case()
    vectors = l2_normalize(pool_tokens(sequence, mask * 0, pooling))
    assert np.isfinite(vectors).all()


def test_half_precision_is_summed_in_full():
    # In bfloat16 a sum stops growing at 256 ones: the mean of 1000 would be about a quarter.
    ones = tf.ones((1, 1000, 2), tf.bfloat16)
    np.testing.assert_array_equal(pool_tokens(ones, np.ones((1, 1000)), "mean"), [[1.0, 1.0]])


def test_lengths_are_one():
    vectors = np.array([[3.0, 4], [0, -1e-3], [0, 0]], np.float32)
    np.testing.assert_allclose(l2_normalize(vectors), [[0.6, 0.8], [0, -1], [0, 0]], rtol=1e-6)


def test_an_unknown_pooling_is_refused():
    with pytest.raises(ValueError, match=r"pooling: .*'sum', .*\['cls', 'max'"):
        pool_tokens(*random_case(), "sum")
