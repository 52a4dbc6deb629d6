"""Exact search beside a full sort by NumPy."""

import pathlib

import numpy as np
import pytest

from bert_tf.metrics.exact import BLOCK, top_k
from tests.float_bounds import assert_close


def sorted_by_numpy(queries: np.ndarray, documents: np.ndarray, k: int) -> tuple:
    scores = queries.astype(np.float64) @ documents.astype(np.float64).T
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, rows, axis=1), rows


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize(
    ("documents", "k", "chunk"), [(1, 1, 7), (40, 40, 7), (1000, 10, 333), (1000, 700, 100)]
)
def test_equals_a_full_sort_with_ties(dtype: str, documents: int, k: int, chunk: int) -> None:
    """Small integers: sums are exact and nearly all scores tie."""
    random = np.random.default_rng(documents + k)
    queries = random.integers(-2, 3, [5, 4]).astype(np.float32)
    values = random.integers(-2, 3, [documents, 4]).astype(dtype)
    scores, rows = top_k(queries, values, k, chunk_rows=chunk)
    expected, order = sorted_by_numpy(queries, values, k)
    np.testing.assert_array_equal(scores, expected)
    np.testing.assert_array_equal(rows, order)
    assert scores.dtype == np.float32 and rows.dtype == np.int64


def test_more_queries_than_are_scored_at_once(tmp_path: pathlib.Path) -> None:
    random = np.random.default_rng(0)
    queries, documents = random.normal(size=[300, 8]), random.normal(size=[500, 8])
    np.save(tmp_path / "a.npy", documents.astype(np.float32))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    scores, rows = top_k(queries, mapped, 20, chunk_rows=3 * BLOCK)
    expected, order = sorted_by_numpy(queries, documents, 20)
    assert_close(scores, expected)
    np.testing.assert_array_equal(rows, order)


def test_shifts_are_added_before_the_scales() -> None:
    documents = np.array([[1, 0], [0, 1], [2, 2]], np.int8)
    queries, scales = np.array([[1.0, 2.0], [3.0, 0.0]]), np.float32([1, 2, 0.5])
    shifts = np.float32([10, -4])
    scores, rows = top_k(queries, documents, 3, chunk_rows=2, scales=scales, shifts=shifts)
    # (1, 2, 6) + 10 and (3, 0, 6) - 4, times the scales
    assert rows.tolist() == [[1, 0, 2], [2, 0, 1]]
    assert scores.tolist() == [[24, 11, 8], [1, -1, -8]]


def test_searches_with_and_without_scales_follow_each_other() -> None:
    """With another number of documents each, so that the sizes are not traced any more."""
    random = np.random.default_rng(4)
    queries = random.normal(size=[3, 6]).astype(np.float32)
    for count, is_scaled in ((40, False), (41, True), (42, False), (43, True), (44, False)):
        documents = random.integers(-127, 127, size=[count, 6]).astype(np.int8)
        scales = random.uniform(0.5, 1, size=count).astype(np.float32) if is_scaled else None
        expected = queries @ documents.T * (1 if scales is None else scales)
        scores, _ = top_k(queries, documents, 5, scales=scales)
        assert_close(scores, -np.sort(-expected)[:, :5])


@pytest.mark.parametrize(
    ("queries", "documents", "k", "named"),
    [
        (np.ones([1, 3]), np.ones([2, 4], np.float32), 1, r"queries .*\(1, 3\), .*\(2, 4\)"),
        (np.ones([1, 3]), np.ones([2, 3], np.float32), 3, r"k .*3; .*\b2, "),
        (np.ones([1, 3]), np.ones([0, 3], np.float32), 1, r"k .*1; .*\b0, "),
        (np.ones([1, 3]), np.ones([2, 3], np.int64), 1, "documents .*int64"),
        (np.full([1, 3], np.nan), np.ones([2, 3], np.float32), 1, "Query 0 "),
        (np.ones([1, 3]), np.full([2, 3], np.inf, np.float32), 1, "documents 0 .*1 "),
    ],
)
def test_bad_input_is_named(queries: np.ndarray, documents: np.ndarray, k: int, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        top_k(queries, documents, k)
