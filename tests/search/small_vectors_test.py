"""Indexes of int8 and binary vectors, and of the first numbers of vectors."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.metrics.exact import top_k
from bert_tf.search import open_index, recall, segments
from bert_tf.search.index import Index, Manifest, add_to_index, build_index
from bert_tf.search.manifest import _digest
from bert_tf.search.segments import Batch, prepared
from bert_tf.search.serving import VectorStore
from tests.float_bounds import assert_close, bound
from tests.programs import fail, run


def clustered(count: int, size: int = 64) -> np.ndarray:
    """Unit vectors around 40 centres, as texts of 40 subjects have."""
    random = np.random.default_rng(count)
    vectors = random.normal(size=[40, size])[random.integers(0, 40, count)]
    vectors += random.normal(size=[count, size])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def build(folder: pathlib.Path, vectors: np.ndarray, **options) -> Index:
    ids = [f"d{row}" for row in range(len(vectors))]
    parts = [Batch(ids[i : i + 100], vectors[i : i + 100]) for i in range(0, len(ids), 100)]
    build_index(folder, parts, model="m", **options)
    return Index(folder)


@pytest.mark.parametrize("rescore", ["float32", "int8"])
def test_binary_candidates_are_scored_again(tmp_path: pathlib.Path, rescore: str) -> None:
    vectors = clustered(1000)
    index = build(tmp_path / "a", vectors, dtype="binary", rescore=rescore)
    stored = index.segments[0].arrays
    assert stored["vectors"].dtype == np.uint8 and stored["vectors"].shape[1] == 8
    queries = clustered(30)
    scores, rows = index.search(queries, 10)
    exact = np.take_along_axis(queries @ vectors.T, rows, axis=1)
    # int8: half a step of each dimension, and those of the code's lower end.
    np.testing.assert_allclose(scores, exact, atol=bound(1.0) if rescore == "float32" else 0.02)
    # By hand: the candidates are those of the fewest bits that differ, of equal ones the first.
    differing = ((queries[:, None] > 0) != (vectors > 0)).sum(axis=2)
    candidates = np.argsort(differing, axis=1, kind="stable")[:, :40]
    for number, chosen in enumerate(candidates):
        again = index.vectors(chosen) @ queries[number]
        assert set(rows[number]) <= set(chosen.tolist())
        assert_close(scores[number], -np.sort(-again)[:10])
    plain, rows = index.search(queries, 40, rescore_with="none")
    np.testing.assert_array_equal(rows, candidates)
    np.testing.assert_array_equal(plain, -np.take_along_axis(differing, candidates, axis=1))


def test_the_size_of_small_vectors(tmp_path: pathlib.Path) -> None:
    vectors = clustered(500)
    sizes = {}
    for dtype, rescore in (("binary", "none"), ("int8", "none"), ("float32", "")):
        index = build(tmp_path / dtype, vectors, dtype=dtype, rescore=rescore)
        names = [name for name in index.manifest.files if not name.startswith("ids")]
        sizes[dtype] = sum(index.manifest.files[name][0] for name in names)
    headers = 3 * 128  # of vectors, scales and ranges
    assert sizes["binary"] <= 500 * 8 + headers
    assert sizes["int8"] <= 500 * (64 + 4) + 2 * 64 * 4 + headers
    assert sizes["float32"] >= 500 * 64 * 4


def test_first_numbers_have_their_own_length(tmp_path: pathlib.Path) -> None:
    vectors = clustered(300)
    index = build(tmp_path / "a", 3 * vectors, dimensions=16)
    manifest = index.manifest
    assert (manifest.dimension, manifest.model_dimension) == (16, 64)
    assert index.segments[0].arrays["vectors"].shape == (300, 16)
    queries = clustered(7)
    scores, rows = index.search(queries, 5)
    cut = [
        values[:, :16] / np.linalg.norm(values[:, :16], axis=1, keepdims=True)
        for values in (queries, vectors)
    ]
    expected, expected_rows = top_k(cut[0], cut[1], 5)
    assert_close(scores, expected)
    np.testing.assert_array_equal(rows, expected_rows)
    add_to_index(tmp_path / "a", [Batch(["new"], queries[:1])], model="m")
    assert Index(tmp_path / "a").search(queries[:1], 1)[1].tolist() == [[300]]
    with pytest.raises(ValueError, match=r"\(1, 16\).* 64 "):
        index.search(queries[:1, :16], 1)
    with pytest.raises(ValueError, match="65.*64"):
        build(tmp_path / "b", vectors, dimensions=65)
    dot = build(tmp_path / "c", 3 * vectors, dimensions=16, similarity="dot")
    assert_close(dot.vectors(np.arange(300)), 3 * cut[1])


def test_recall_of_a_build(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "_FROM_FIRST", 200)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 4 * 64 * 150)
    vectors = clustered(700)
    assert build(tmp_path / "a", vectors).manifest.recall is None
    assert build(tmp_path / "one", vectors[:1], dtype="int8").manifest.recall is None
    assert build(tmp_path / "b", vectors, dtype="int8").manifest.recall == 1
    monkeypatch.setattr(open_index, "RESCORED", 1)
    index = build(tmp_path / "c", vectors, dtype="binary")
    queries = np.unique(np.linspace(0, 199, 100).astype(int))
    expected = np.argsort(-(vectors[queries] @ vectors.T), axis=1, kind="stable")[:, :11]
    _, found = index.search(vectors[queries], 11)
    hits = 0
    for number, row in enumerate(queries):
        # Where the search does not find a document itself, its first ten are one more.
        nearest, rows = (
            [name for name in names if name != row][:10]
            for names in (expected[number], found[number])
        )
        hits += len({*nearest} & {*rows})
    assert index.manifest.recall == pytest.approx(hits / (10 * len(queries)))
    cut = build(tmp_path / "d", vectors, dimensions=8).manifest.recall
    assert cut is not None and 0.05 < cut < index.manifest.recall


def test_copies_that_an_index_lacks(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="int8.*float32"):
        build(tmp_path / "a", clustered(9), rescore="int8")
    with pytest.raises(ValueError, match="'int8'.*int8"):
        build(tmp_path / "a", clustered(9), dtype="int8", rescore="int8")
    index = build(tmp_path / "a", clustered(9), dtype="binary", rescore="none")
    assert_close(np.linalg.norm(index.vectors(np.arange(9)), axis=1), np.ones(9))
    for copies in ("float32", "int8"):
        with pytest.raises(ValueError, match=f"{copies}.*binary"):
            index.search(clustered(1), 1, rescore_with=copies)
        done = run("search", index=tmp_path / "a", query="a", rescore=copies)
        assert "--rescore" in fail(done)
    options = {"init_checkpoint": "m", "input_file": "none", "output_dir": tmp_path / "b"}
    assert "int8" in fail(run("build_index", **options, rescore="int8"))


def test_an_index_of_format_2_is_read(tmp_path: pathlib.Path) -> None:
    """As 0.1.0 wrote it: without the fields and files of later versions."""
    vectors = clustered(50)
    expected = build(tmp_path / "a", vectors, dtype="int8").search(vectors[:3], 5)
    path = tmp_path / "a" / "manifest.json"
    values = json.loads(path.read_text())
    for name in ("digest", "rescore", "model_dimension", "recall", "first_segment"):
        del values[name]
    for name in ("vector_counts", "deletions", "deleted"):
        del values[name]
    values["format"] = 2
    path.write_text(json.dumps({**values, "digest": _digest(values)}))
    found = Index(tmp_path / "a").search(vectors[:3], 5)
    np.testing.assert_array_equal(found, expected)
    add_to_index(tmp_path / "a", [Batch(["new"], vectors[:1])], model="m")
    assert len(Index(tmp_path / "a")) == 51
    fields = {field.name for field in dataclasses.fields(Manifest)}
    assert fields < {*json.loads(path.read_text())}


def test_an_exported_store_shortens_queries() -> None:
    vectors = clustered(20)
    store = VectorStore(prepared(vectors, "cosine", 16), "float32")
    scores, _ = store.search(store.shorten(tf.constant(vectors[:3])), tf.constant(20))
    cut = vectors[:, :16] / np.linalg.norm(vectors[:, :16], axis=1, keepdims=True)
    assert_close(scores, -np.sort(-(cut[:3] @ cut.T)))
    whole = tf.constant(vectors)
    assert VectorStore(vectors, "float32").shorten(whole) is whole
