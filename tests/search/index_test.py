"""The index directory: written, added to, searched, and refused where it does not fit."""

import json
import pathlib
from collections.abc import Iterator

import numpy as np
import pytest

from bert_tf.search import index as index_module
from bert_tf.search.index import Batch, Index, add_to_index, build_index, quantize


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
    monkeypatch.setattr(index_module, "SEGMENT_BYTES", 4 * 8 * 20)  # 20 documents


@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-6), ("float16", 1e-3), ("int8", 1e-6)])
def test_search_equals_a_full_sort(tmp_path: pathlib.Path, dtype: str, error: float) -> None:
    folder = tmp_path / "index"
    build_index(folder, batches(0, 50), model="m", dtype=dtype)
    add_to_index(folder, batches(50, 120), model="m")
    found = Index(folder, "m")
    assert len(found) == 120 and found.manifest.segments == (21, 21, 8, 21, 21, 21, 7)
    queries = np.random.default_rng(5).normal(size=[3, 8])
    scores, rows = found.search(queries, 9, chunk_rows=16)
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


def test_int8_is_within_half_a_step() -> None:
    vectors = np.random.default_rng(0).normal(size=[40, 16]).astype(np.float32)
    vectors[3] = 0
    values, scales = quantize(vectors)
    assert np.abs(values).max() == 127 and not values[3].any()
    assert (np.abs(values * scales[:, None] - vectors) <= scales[:, None] / 2 + 1e-7).all()


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
    with pytest.raises(ValueError, match="a build was stopped before its end"):
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
    with pytest.raises(OSError, match="busy: .*building"):
        build_index(tmp_path / "mounted", batches(0, 5), model="m")
    assert len(Index(tmp_path / ".mounted.building")) == 5


def test_the_current_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="is no index"):
        Index(pathlib.Path())


def test_an_addition_that_fails_changes_nothing(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "index"
    build_index(folder, batches(0, 30), model="m")
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(ValueError, match="'d29' comes twice"):
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

    with pytest.raises(ValueError, match="'a' comes twice"):
        build(Batch(["a", "a"], np.ones([2, 3])))
    with pytest.raises(ValueError, match="vector of document 'b' holds numbers"):
        build(Batch(["a", "b"], np.array([[1.0], [np.nan]])))
    with pytest.raises(ValueError, match=r"shape \(1, 4\); expected \[1, 3\]"):
        build(Batch(["a"], np.ones([1, 3])), Batch(["b"], np.ones([1, 4])))
    with pytest.raises(ValueError, match="no document to put"):
        build()
    with pytest.raises(ValueError, match="no document to put"):
        build(Batch([], np.ones([0, 3])))
    with pytest.raises(ValueError, match="2 documents came with 1 texts"):
        build(Batch(["a", "b"], np.ones([2, 3]), ["text"]))
    with pytest.raises(ValueError, match="id is 7, expected a string"):
        build(Batch([7], np.ones([1, 3])))
    with pytest.raises(ValueError, match="too large for float16"):
        build(Batch(["a"], np.full([1, 3], 1e6)), dtype="float16", similarity="dot")
    assert not (tmp_path / "index").exists()
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "x").touch()
    with pytest.raises(ValueError, match="exists already"):
        build(Batch(["a"], np.ones([1, 3])))


def test_an_index_of_another_model_is_refused(tmp_path: pathlib.Path) -> None:
    build_index(tmp_path / "index", batches(0, 5), model="one", source="path/one")
    with pytest.raises(ValueError, match=r"fingerprint is one \(of path/one\), this model's two"):
        Index(tmp_path / "index", "two")
    with pytest.raises(ValueError, match="two"):
        add_to_index(tmp_path / "index", batches(5, 6), model="two")
    found = Index(tmp_path / "index", "one")
    with pytest.raises(ValueError, match=r"shape \(1, 9\), but .* vectors of 8 numbers"):
        found.search(np.ones([1, 9]), 1)
    with pytest.raises(ValueError, match=r"shape \(8,\); expected \[Q, 8\]"):
        found.search(np.ones([8]).tolist(), 1)
    for k in (6, 0):
        with pytest.raises(ValueError, match=f"k is {k}, but .* has 5 documents; give 1 to as"):
            found.search(np.ones([1, 8]), k)


@pytest.mark.parametrize("name", ["vectors-00000.npy", "ids-00000.utf8", "texts-00000.ends.npy"])
def test_damage_is_named(tmp_path: pathlib.Path, name: str) -> None:
    folder = tmp_path / "index"
    build_index(folder, batches(0, 5), model="m")
    path = folder / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} is damaged: its checksum"):
        Index(folder)
    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=f"{name} has {len(content) - 1} bytes"):
        Index(folder, checks_files=False)
    path.unlink()
    with pytest.raises(ValueError, match=f"{name} is missing"):
        Index(folder)


def test_a_damaged_manifest_is_named(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "index"
    build_index(folder, batches(0, 5), model="m")
    values = json.loads((folder / "manifest.json").read_text())
    for change, named in (({"format": 9}, "not of format 1"), ({"dtype": None}, "lacks dtype")):
        (folder / "manifest.json").write_text(json.dumps({**values, **change}))
        with pytest.raises(ValueError, match=named):
            Index(folder)
    del values["max_seq_length"]  # as an earlier release wrote it
    (folder / "manifest.json").write_text(json.dumps(values))
    assert Index(folder).manifest.max_seq_length == 0
    with pytest.raises(ValueError, match="none is no index"):
        Index(tmp_path / "none")
