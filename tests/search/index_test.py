"""The index directory: written, added to, searched, and refused where it does not fit."""

import dataclasses
import json
import pathlib
from collections.abc import Iterator

import numpy as np
import pytest

from bert_tf.metrics import exact
from bert_tf.search import open_index, segments
from bert_tf.search.index import (
    Index,
    Manifest,
    add_to_index,
    build_index,
    delete_from_index,
)
from bert_tf.search.manifest import _digest
from bert_tf.search.segments import Batch
from bert_tf.system.checksums import file_crc
from tests.float_bounds import bound


def batches(start: int, stop: int, dimension: int = 8, size: int = 7) -> Iterator[Batch]:
    for first in range(start, stop, size):
        rows = range(first, min(first + size, stop))
        vectors = np.stack([np.random.default_rng(row).normal(size=dimension) for row in rows])
        yield Batch([f"d{row}" for row in rows], vectors, [f"text é {row}" for row in rows])


def unit_vectors(count: int) -> np.ndarray:
    vectors = np.concatenate([batch.vectors for batch in batches(0, count)])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 4 * 8 * 20)  # 20 documents
    monkeypatch.setattr(exact, "CHUNK_ROWS", 16)
    monkeypatch.setattr(exact, "CHUNK_SCORES", 1)


@pytest.mark.parametrize(
    ("dtype", "error"), [("float32", bound(1.0)), ("float16", 1e-3), ("int8", bound(1.0))]
)
def test_search_equals_a_full_sort(tmp_path: pathlib.Path, dtype: str, error: float) -> None:
    folder = tmp_path / "index"
    build_index(folder, batches(0, 50), model="m", dtype=dtype)
    add_to_index(folder, batches(50, 120), model="m")
    found = Index(folder, "m")
    assert len(found) == 120 and found.manifest.segments == (21, 21, 8, 21, 21, 21, 7)
    queries = np.random.default_rng(5).normal(size=[3, 8])
    scores, rows = found.search(queries, 9)
    expected = queries / np.linalg.norm(queries, axis=1, keepdims=True) @ unit_vectors(120).T
    np.testing.assert_allclose(scores, -np.sort(-expected)[:, :9], atol=error)
    if dtype != "float16":  # whose scores are rounded
        np.testing.assert_array_equal(rows, np.argsort(-expected)[:, :9])
    assert found.ids[rows[0, 0]] == f"d{rows[0, 0]}"
    assert found.text(117) == "text é 117" and found.text(0) == "text é 0"


def test_dot_products_are_of_the_vectors_as_they_are(tmp_path: pathlib.Path) -> None:
    vectors = np.array([[3.0, 0.0], [1.0, 1.0]])
    build_index(tmp_path / "a", [Batch(["a", "b"], vectors)], model="m", similarity="dot")
    found = Index(tmp_path / "a")
    assert found.search(np.array([[2.0, 1.0]]), 2)[0].tolist() == [[6, 3]]
    assert found.text(1) == ""


def outlier_vectors(count: int) -> np.ndarray:
    """Vectors whose first dimension is large and nearly constant, as mean-pooled encoders have."""
    random = np.random.default_rng(3)
    vectors = random.normal(scale=0.3, size=[count, 12])
    vectors[:, 0] += 100
    return vectors


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_one_large_dimension_does_not_hide_the_others(
    tmp_path: pathlib.Path, similarity: str
) -> None:
    """Only 4 k candidates are scored again, so the rounded scores must find them."""
    vectors = outlier_vectors(400)
    vectors[7] *= 50  # one long vector
    ids = [f"d{row}" for row in range(len(vectors))]
    for dtype in ("float32", "int8"):
        build_index(
            tmp_path / dtype,
            [Batch(ids, vectors)],
            model="m",
            dtype=dtype,
            similarity=similarity,
        )
    # Differences of documents: without the dimension that all of them share.
    queries = np.random.default_rng(4).normal(size=[20, 12])
    queries[:, 0] = 0
    expected, _ = Index(tmp_path / "float32").search(queries, 5)
    scores, _ = Index(tmp_path / "int8").search(queries, 5)
    np.testing.assert_allclose(scores, expected, rtol=1e-4)


def test_int8_segments_of_other_ranges_and_lengths(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounded scores of all segments are on one scale: here nothing is scored again."""
    monkeypatch.setattr(open_index, "RESCORED", 1)
    random = np.random.default_rng(6)
    vectors = np.concatenate([random.normal(size=[40, 8]), random.normal(5, 1, size=[40, 8])])
    vectors *= random.uniform(0.1, 10, size=[80, 1])
    parts = [
        Batch([f"d{row}" for row in rows], vectors[rows]) for rows in (range(40), range(40, 80))
    ]
    build_index(tmp_path / "a", parts, model="m", dtype="int8", similarity="dot")
    index = Index(tmp_path / "a")
    assert len(index.segments) == 2
    queries = random.normal(size=[10, 8])
    expected = queries @ vectors.T
    order = np.argsort(-expected, axis=1)[:, :5]
    lowest = np.take_along_axis(expected, order[:, -1:], axis=1)
    scores, _ = index.search(queries, 5)
    assert (scores >= lowest - 0.02 * np.abs(lowest)).all()


def test_int8_by_hand(tmp_path: pathlib.Path) -> None:
    batch = Batch(["a", "b"], np.array([[4.0, 0, 2], [0, 1, 2]]))
    build_index(tmp_path / "b", [batch], model="m", dtype="int8", similarity="dot")
    scores, rows = Index(tmp_path / "b").search(np.array([[1.0, 3, 2]]), 2)
    assert scores.tolist() == [[8, 7]] and rows.tolist() == [[0, 1]]


def test_an_unknown_language_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="xx"):
        build_index(tmp_path / "a", batches(0, 3), model="m", language="xx")
    build_index(tmp_path / "a", batches(0, 3), model="m", language="de")
    add_to_index(tmp_path / "a", batches(3, 6), model="m")
    assert Manifest.read(tmp_path / "a").language == "de"


def test_a_build_that_is_stopped_leaves_nothing(tmp_path: pathlib.Path) -> None:
    def broken() -> Iterator[Batch]:
        yield from batches(0, 40)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(tmp_path / "index", broken(), model="m")
    assert not any(tmp_path.iterdir())


def test_what_a_killed_build_leaves_is_named_and_replaced(tmp_path: pathlib.Path) -> None:
    left = tmp_path / ".index.building"
    left.mkdir()
    (left / "vectors-00000.npy").write_bytes(b"half")
    with pytest.raises(ValueError, match="/index .*manifest.json.*build"):
        Index(tmp_path / "index")
    build_index(tmp_path / "index", batches(0, 5), model="m")
    assert len(Index(tmp_path / "index")) == 5 and not left.exists()


def test_what_is_finished_stays_if_it_cannot_be_renamed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "link").symlink_to("index")
    build_index(tmp_path / "link", batches(0, 5), model="m")
    assert len(Index(tmp_path / "index")) == 5
    replace = pathlib.Path.replace

    def busy(path: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
        if target.name == "mounted":
            raise OSError(16, "Device or resource busy", path, None, target)
        return replace(path, target)

    monkeypatch.setattr(pathlib.Path, "replace", busy)
    with pytest.raises(OSError, match=r"\.mounted\.building"):
        build_index(tmp_path / "mounted", batches(0, 5), model="m")
    assert len(Index(tmp_path / ".mounted.building")) == 5


def test_the_current_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="manifest.json"):
        Index(pathlib.Path())


def test_an_addition_that_fails_changes_nothing(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "index"
    build_index(folder, batches(0, 30), model="m")
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(ValueError, match="'d29'"):
        add_to_index(folder, [*batches(40, 80), *batches(29, 30)], model="m")
    assert (folder / "manifest.json").read_bytes() == before
    assert len(Index(folder)) == 30
    there = {".lock", "manifest.json", *Index(folder).manifest.files}
    assert {path.name for path in folder.iterdir()} <= there  # The failed one leaves no file.
    (folder / "ids-00002.utf8").write_bytes(b"of one that was killed")
    add_to_index(folder, batches(100, 105), model="m")
    assert Index(folder).ids[-1] == "d104"


def test_bad_documents_are_named(tmp_path: pathlib.Path) -> None:
    def build(*found: Batch, **options: str) -> None:
        build_index(tmp_path / "index", found, **{"model": "m", **options})

    with pytest.raises(ValueError, match="'a'"):
        build(Batch(["a", "a"], np.ones([2, 3])))
    with pytest.raises(ValueError, match="vector .*document 'b'"):
        build(Batch(["a", "b"], np.array([[1.0], [np.nan]])))
    with pytest.raises(ValueError, match=r"\(1, 4\) .*\[1, 3\]"):
        build(Batch(["a"], np.ones([1, 3])), Batch(["b"], np.ones([1, 4])))
    with pytest.raises(ValueError, match="documents .*/index;"):
        build()
    with pytest.raises(ValueError, match="documents .*/index;"):
        build(Batch([], np.ones([0, 3])))
    with pytest.raises(ValueError, match="1 texts .*2 documents"):
        build(Batch(["a", "b"], np.ones([2, 3]), ["text"]))
    with pytest.raises(ValueError, match="id .*7, .*string"):
        build(Batch([7], np.ones([1, 3])))
    with pytest.raises(ValueError, match="float16"):
        build(Batch(["a"], np.full([1, 3], 1e6)), dtype="float16", similarity="dot")
    assert not (tmp_path / "index").exists()
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "x").touch()
    with pytest.raises(ValueError, match=f"^{tmp_path}/index "):
        build(Batch(["a"], np.ones([1, 3])))


def test_an_index_of_another_model_is_refused(tmp_path: pathlib.Path) -> None:
    build_index(tmp_path / "index", batches(0, 5), model="one", source="path/one")
    with pytest.raises(ValueError, match=r"fingerprint .*one \(.*path/one\), .*two"):
        Index(tmp_path / "index", "two")
    with pytest.raises(ValueError, match="two"):
        add_to_index(tmp_path / "index", batches(5, 6), model="two")
    found = Index(tmp_path / "index", "one")
    with pytest.raises(ValueError, match=r"queries .*\(1, 9\), .*8 dimensions"):
        found.search(np.ones([1, 9]), 1)
    with pytest.raises(ValueError, match=r"queries .*\(8,\); .*\[Q, 8\]"):
        found.search(np.ones([8]).tolist(), 1)
    for k in (6, 0):
        with pytest.raises(ValueError, match=f"^k .*{k}; .*1 .*5, "):
            found.search(np.ones([1, 8]), k)


@pytest.mark.parametrize("name", ["vectors-00000.npy", "ids-00000.utf8", "texts-00000.ends.npy"])
def test_damage_is_named(tmp_path: pathlib.Path, name: str) -> None:
    folder = tmp_path / "index"
    build_index(folder, batches(0, 5), model="m")
    path = folder / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} .*checksum"):
        Index(folder)
    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=f"{name} .*{len(content) - 1} bytes"):
        Index(folder, checks_files=False)
    path.unlink()
    with pytest.raises(ValueError, match=f"{name} .*missing"):
        Index(folder)


def test_a_damaged_manifest_is_named(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "index"
    build_index(folder, batches(0, 5), model="m")
    values = json.loads((folder / "manifest.json").read_text())
    del values["digest"]
    without = {name: value for name, value in values.items() if name != "max_seq_length"}
    for changed, named in (({**values, "format": 9}, "9"), (without, "max_seq_length")):
        (folder / "manifest.json").write_text(json.dumps({**changed, "digest": _digest(changed)}))
        with pytest.raises(ValueError, match=named):
            Index(folder)
    with pytest.raises(ValueError, match="/none .*manifest.json"):
        Index(tmp_path / "none")


@pytest.mark.parametrize(
    "change",
    [
        {"segments": 5},
        {"segments": ["5"]},
        {"segments": []},
        {"segments": [5.0]},
        {"vector_counts": None},
        {"vector_counts": [2, 3]},
        {"vector_counts": [-5]},
        {"files": []},
        {"files": {"a": 3}},
        {"files": {"../a": [3, "b"]}},
        {"dimension": "8"},
        {"dimension": 0},
        {"dimension": 10**12},
        {"dtype": ["float32"]},
        {"similarity": "l2"},
        {"rescore": "int8"},
        {"first_segment": "0"},
        {"first_segment": -1},
        {"has_texts": "no"},
        {"language": None},
        {"deleted": -1},
    ],
    ids=str,
)
def test_fields_of_a_manifest_that_no_index_has(tmp_path: pathlib.Path, change: dict) -> None:
    folder = tmp_path / "index"
    build_index(folder, batches(0, 5), model="m")
    values = json.loads((folder / "manifest.json").read_text()) | change
    del values["digest"]
    (folder / "manifest.json").write_text(json.dumps({**values, "digest": _digest(values)}))
    with pytest.raises(ValueError, match=r"manifest\.json"):
        Index(folder)


@pytest.mark.parametrize("rows", [[5], [-1], [1, 1], [2, 1], [1.0], [[1]], [1]], ids=str)
def test_deleted_rows_that_no_index_has(tmp_path: pathlib.Path, rows: list) -> None:
    folder = tmp_path / "index"
    build_index(folder, batches(0, 5), model="m")
    delete_from_index(folder, ["d3", "d4"])
    rewrite(folder / "deleted-00001.npy", np.array(rows))
    with pytest.raises(ValueError, match="deleted-00001"):
        Index(folder)


def answers(folder: pathlib.Path) -> tuple:
    found = Index(folder, "m")
    scores, rows = found.search(np.arange(8.0)[None], 3)
    names = [found.ids[row] for row in rows[0]]
    return scores.tolist(), names, [found.text(int(row)) for row in rows[0]]


def test_any_byte_of_the_manifest(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "index"
    build_index(folder, batches(0, 5), model="m")
    expected, manifest = answers(folder), Manifest.read(folder)
    path = folder / "manifest.json"
    content = path.read_bytes()
    refused = 0
    for position, byte in enumerate(content):
        for other in {byte ^ 1, ord('"')} - {byte}:
            path.write_bytes(content[:position] + bytes([other]) + content[position + 1 :])
            try:
                is_same = Manifest.read(folder) == manifest  # white space
                found = expected if is_same else answers(folder)
            except ValueError:
                refused += 1
                continue
            assert found == expected, path.read_text()
    assert refused > len(content)


def rewrite(path: pathlib.Path, values: np.ndarray) -> None:
    """Replaces an array of an index and its checksum, so that only its content is wrong."""
    np.save(path, values)
    manifest = Manifest.read(path.parent)
    entry = (path.stat().st_size, file_crc(path))
    dataclasses.replace(manifest, files={**manifest.files, path.name: entry}).write(path.parent)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_vectors_that_are_not_finite(tmp_path: pathlib.Path, dtype: str) -> None:
    build_index(tmp_path / "a", batches(0, 5), model="m", dtype=dtype)
    path = tmp_path / "a" / f"{'exact' if dtype == 'int8' else 'vectors'}-00000.npy"
    vectors = np.load(path)
    vectors[2, 3] = np.nan
    rewrite(path, vectors)
    with pytest.raises(ValueError, match="documents 0 .*4 |'d2'"):
        Index(tmp_path / "a").search(np.ones([1, 8]), 1)
    with pytest.raises(ValueError, match="'d2'"):
        Index(tmp_path / "a").vectors(np.arange(5))
    with pytest.raises(ValueError, match="Query 1"):
        Index(tmp_path / "a").search(np.array([[1.0] * 8, [np.inf] * 8]), 1)


def test_arrays_that_do_not_fit(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "a"
    build_index(folder, batches(0, 5), model="m")
    for name, values in (
        ("vectors", np.ones([5, 8])),
        ("vectors", np.ones([4, 8], np.float32)),
        ("ids", np.array([2, 4, 6, 8])),
        ("ids", np.array([2, 6, 4, 8, 10])),
        ("ids", np.array([2.0, 4, 6, 8, 10])),
    ):
        ending = "ends.npy" if name == "ids" else "npy"
        path = folder / f"{name}-00000.{ending}"
        before = np.load(path)
        rewrite(path, values)
        with pytest.raises(ValueError, match=f"{name}-00000"):
            Index(folder)
        rewrite(path, before)
    assert len(Index(folder)) == 5
