"""Exact search beside a full sort by NumPy."""

import pathlib

import numpy as np
import pytest

from bert_tf.metrics import exact
from bert_tf.metrics.exact import top_k
from tests.float_bounds import assert_close


def sorted_by_numpy(queries: np.ndarray, documents: np.ndarray, k: int) -> tuple:
    scores = queries.astype(np.float64) @ documents.astype(np.float64).T
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, rows, axis=1), rows


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize(
    ("documents", "k", "chunk"), [(1, 1, 7), (40, 40, 7), (1000, 10, 333), (1000, 700, 100)]
)
def test_equals_a_full_sort_with_ties(
    monkeypatch: pytest.MonkeyPatch, dtype: str, documents: int, k: int, chunk: int
) -> None:
    """Small integers: sums are exact and nearly all scores tie."""
    monkeypatch.setattr(exact, "CHUNK_ROWS", chunk)
    monkeypatch.setattr(exact, "CHUNK_SCORES", 1)
    random = np.random.default_rng(documents + k)
    queries = random.integers(-2, 3, [5, 4]).astype(np.float32)
    values = random.integers(-2, 3, [documents, 4]).astype(dtype)
    scores, rows = top_k(queries, values, k)
    expected, order = sorted_by_numpy(queries, values, k)
    np.testing.assert_array_equal(scores, expected)
    np.testing.assert_array_equal(rows, order)
    assert scores.dtype == np.float32 and rows.dtype == np.int64


def test_more_queries_than_are_scored_at_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "CHUNK_ROWS", 96)
    monkeypatch.setattr(exact, "CHUNK_SCORES", 1)
    random = np.random.default_rng(0)
    queries, documents = random.normal(size=[300, 8]), random.normal(size=[500, 8])
    np.save(tmp_path / "a.npy", documents.astype(np.float32))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    scores, rows = top_k(queries, mapped, 20)
    expected, order = sorted_by_numpy(queries, documents, 20)
    assert_close(scores, expected)
    np.testing.assert_array_equal(rows, order)


@pytest.mark.parametrize("count", [1, 3, 32])
def test_equal_documents_have_equal_scores(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Matrix products add in another order at the end of a chunk; the lower row comes first."""
    monkeypatch.setattr(exact, "CHUNK_ROWS", 1003)
    monkeypatch.setattr(exact, "CHUNK_SCORES", 1)
    random = np.random.default_rng(count)
    documents = random.normal(size=[2003, 384]).astype(np.float32)
    documents[5::7] = documents[5]
    queries = np.concatenate([documents[5:6], random.normal(size=[count - 1, 384])])
    scores, rows = top_k(queries, documents, 200)
    assert rows[0].tolist() == list(range(5, 2003, 7))[:200]
    assert len({*scores[0].tolist()}) == 1
    alone, _ = top_k(queries[-1:], documents, 200)
    np.testing.assert_array_equal(scores[-1:], alone)


def test_all_numbers_of_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "CHUNK_ROWS", 5000)
    monkeypatch.setattr(exact, "CHUNK_SCORES", 1)
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    numbers = numbers[np.isfinite(numbers)][:, None]
    scores, rows = top_k(np.ones([1, 1]), numbers, len(numbers))
    np.testing.assert_array_equal(scores[0], -np.sort(-numbers[:, 0].astype(np.float32)))
    assert len({*rows[0].tolist()}) == len(numbers)
    with pytest.raises(ValueError, match="documents 0 .*1 "):
        top_k(np.ones([1, 1]), np.array([[1], [np.nan]], np.float16), 1)


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
