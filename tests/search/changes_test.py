"""Documents are deleted and replaced, and an index is compacted."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from bert_tf.search import segments
from bert_tf.search.bm25 import Bm25
from bert_tf.search.faiss_index import FaissIndex, build_faiss
from bert_tf.search.index import (
    Index,
    add_to_index,
    build_index,
    compact_index,
    delete_from_index,
    replace_in_index,
)
from bert_tf.search.segments import Batch
from tests.programs import fail, run

DTYPES = [("float32", ""), ("float16", ""), ("int8", ""), ("binary", "float32"), ("binary", "none")]


def vectors_of(numbers: range | list[int], seed: int = 0) -> np.ndarray:
    return np.stack([np.random.default_rng([seed, n]).normal(size=16) for n in numbers])


def batches(numbers: range | list[int], seed: int = 0) -> Iterator[Batch]:
    """Yields documents; the same number and seed give the same vector and text."""
    for start in range(0, len(numbers), 7):
        part = list(numbers[start : start + 7])
        texts = [f"text {seed} {n}" for n in part]
        yield Batch([f"d{n}" for n in part], vectors_of(part, seed), texts)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 4 * 16 * 20)  # 20 documents


def answers(folder: pathlib.Path, k: int = 12) -> tuple[np.ndarray, list[list[tuple[str, str]]]]:
    index = Index(folder)
    scores, rows = index.search(np.random.default_rng(9).normal(size=[4, 16]), k)
    return scores, [[(index.ids[row], index.text(row)) for row in found] for found in rows]


def assert_same(folder: pathlib.Path, other: pathlib.Path) -> None:
    """Compares documents, vectors and searches of two indexes that have the same documents."""
    index, expected = Index(folder), Index(other)
    order = [list(index.ids).index(name) for name in expected.ids]
    assert len(index) == len(expected) == len(order)
    everything = np.arange(len(index))
    assert [index.text(row) for row in order] == [expected.text(row) for row in everything]
    np.testing.assert_array_equal(index.vectors(np.array(order)), expected.vectors(everything))
    scores, documents = answers(folder)
    expected_scores, expected_documents = answers(other)
    np.testing.assert_array_equal(scores, expected_scores)
    assert documents == expected_documents


@pytest.mark.parametrize(("dtype", "rescore"), DTYPES[:2] + DTYPES[3:])
def test_an_index_after_changes_is_one_built_at_once(
    tmp_path: pathlib.Path, dtype: str, rescore: str
) -> None:
    folder, other = tmp_path / "a", tmp_path / "b"
    options = {"model": "m", "dtype": dtype, "rescore": rescore}
    build_index(folder, batches(range(50)), **options)
    deleted = [3, 20, 21, 49]
    manifest = delete_from_index(folder, [f"d{n}" for n in deleted])
    kept = [n for n in range(50) if n not in deleted]
    build_index(other, batches(kept), **options)
    assert manifest.count == 46
    assert_same(folder, other)

    replaced = [0, 30, 48, 77]
    _, count = replace_in_index(folder, batches(replaced, 1), model="m")
    assert count == 3
    add_to_index(folder, batches([3]), model="m")  # An id is free again after its deletion.
    other = tmp_path / "c"
    rest = [n for n in kept if n not in replaced]
    build_index(other, [*batches(rest), *batches(replaced, 1), *batches([3])], **options)
    assert_same(folder, other)
    files = {path.name for path in folder.iterdir()} - {".lock", "manifest.json"}
    assert files == set(Index(folder).manifest.files)

    before = answers(folder)
    manifest = compact_index(folder)
    assert manifest.count == sum(manifest.segments) == 48 and not manifest.deleted_file
    np.testing.assert_array_equal(answers(folder)[0], before[0])
    assert answers(folder)[1] == before[1]
    files = {path.name for path in folder.iterdir()} - {".lock", "manifest.json"}
    assert files == set(manifest.files)
    assert_same(folder, other)
    assert compact_index(folder) == manifest
    delete_from_index(folder, ["d77"])
    assert "d77" not in list(Index(folder).ids)


def test_int8_codes_survive_a_compaction(tmp_path: pathlib.Path) -> None:
    for rescore in ("float32", "none"):
        folder = tmp_path / rescore
        build_index(folder, batches(range(60)), model="m", dtype="int8", rescore=rescore)
        delete_from_index(folder, [f"d{n}" for n in range(5, 30)])
        before = answers(folder)
        compact_index(folder)
        assert answers(folder)[1] == before[1]
        np.testing.assert_array_equal(answers(folder)[0], before[0])
        vectors = Index(folder).vectors(np.arange(35))
        exact = vectors_of([*range(5), *range(30, 60)])
        exact /= np.linalg.norm(exact, axis=1, keepdims=True)
        np.testing.assert_allclose(vectors, exact, atol=1e-6 if rescore == "float32" else 0.01)


def test_equal_keys_share_a_vector(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "a"

    def documents(numbers: list[int], first: int) -> Batch:
        """Documents of these keys, numbered from `first`."""
        ids = [f"d{first + i}" for i in range(len(numbers))]
        return Batch(ids, vectors_of(numbers), [f"t{i}" for i in ids], numbers)

    build_index(folder, [documents([5, 6, 5, 7, 5], 0)], model="m")
    add_to_index(folder, [documents([6, 8, 5, 9], 5)], model="m")
    manifest = Index(folder).manifest
    assert manifest.segments == (5, 4) and manifest.vector_counts == (3, 2)

    def found(k: int) -> tuple[list[str], np.ndarray]:
        index = Index(folder)
        scores, rows = index.search(vectors_of([5]), k)
        return [index.ids[row] for row in rows[0]], scores[0]

    names, scores = found(4)
    assert names == ["d0", "d2", "d4", "d7"] and len({*scores.tolist()}) == 1
    names, scores = found(9)
    assert sorted(names) == [f"d{n}" for n in range(9)]
    expected = np.sort(vectors_of([5, 6, 5, 7, 5, 6, 8, 5, 9]) @ vectors_of([5])[0])
    assert len(expected) == len(scores) and (np.diff(scores) <= 0).all()
    delete_from_index(folder, ["d0", "d3", "d1"])
    for _ in range(2):  # with deleted rows, then compacted
        assert found(3)[0] == ["d2", "d4", "d7"]
        assert sorted(found(6)[0]) == ["d2", "d4", "d5", "d6", "d7", "d8"]
        assert Index(folder).text(4 - 1) == "td6"
        compact_index(folder)
    assert Index(folder).manifest.vector_counts == (2, 2)
    add_to_index(folder, [documents([7, 9], 20)], model="m")
    assert sum(Index(folder).manifest.vector_counts) == 5  # 7 has no vector any more, 9 has


def test_what_cannot_be_deleted(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "a"
    build_index(folder, batches(range(5)), model="m")
    before = (folder / "manifest.json").read_bytes()
    for ids, named in (
        (["d1", "none"], "'none'.*1 of 2"),
        ([], "ids"),
        ([f"d{n}" for n in range(5)], "5"),
    ):
        with pytest.raises(ValueError, match=named):
            delete_from_index(folder, ids)
    with pytest.raises(ValueError, match="input"):
        replace_in_index(folder, [], model="m")
    assert (folder / "manifest.json").read_bytes() == before
    delete_from_index(folder, ["d1"])
    with pytest.raises(ValueError, match="'d1'"):
        delete_from_index(folder, ["d1"])


def test_an_open_index_stays_and_words_follow(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "a"
    build_index(folder, batches(range(40)), model="m")
    index = Index(folder)
    before = answers(folder)
    delete_from_index(folder, ["d7"])
    replace_in_index(folder, batches([8], 5), model="m")
    compact_index(folder)
    scores, rows = index.search(np.random.default_rng(9).normal(size=[4, 16]), 12)
    np.testing.assert_array_equal(scores, before[0])
    assert [[(index.ids[row], index.text(row)) for row in found] for found in rows] == before[1]
    after = Index(folder)
    words = Bm25([after.text(row) for row in range(len(after))])
    assert words.search(["7"], 1)[0][0, 0] == 0 and words.search(["5"], 2)[0][0, 1] > 0


def test_a_faiss_index_is_refused_after_a_deletion(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("faiss")
    folder = tmp_path / "a"
    build_index(folder, batches(range(40)), model="m")
    build_faiss(Index(folder), "flat")
    delete_from_index(folder, ["d7"])
    for _ in range(2):  # with deleted rows, then compacted
        with pytest.raises(ValueError, match="--faiss=flat"):
            FaissIndex(Index(folder), "flat")
        build_faiss(Index(folder), "flat")
        queries = vectors_of(range(3), seed=2)
        _, rows = FaissIndex(Index(folder), "flat").search(queries, 39)
        np.testing.assert_array_equal(rows, Index(folder).search(queries, 39)[1])
        compact_index(folder)


def test_a_reader_that_meets_a_compaction(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the manifest that it has read are gone when it opens them."""
    folder = tmp_path / "a"
    build_index(folder, batches(range(40)), model="m")
    delete_from_index(folder, ["d1"])
    real_open = Index._open
    calls = []

    def slow(index: Index, checks_files: bool) -> None:
        calls.append(index)
        if len(calls) == 1:
            monkeypatch.setattr(Index, "_open", real_open)
            compact_index(folder)
            monkeypatch.setattr(Index, "_open", slow)
        real_open(index, checks_files)

    monkeypatch.setattr(Index, "_open", slow)
    index = Index(folder)
    assert len(calls) == 2 and index.manifest.first_segment == 2 and len(index) == 39


@pytest.mark.parametrize("ids", ["d3\n\nd9\n", "\ufeffd3\r\n\r\nd9\r\n"], ids=ascii)
def test_the_program_deletes(tmp_path: pathlib.Path, ids: str) -> None:
    folder = tmp_path / "a"
    build_index(folder, batches(range(10)), model="m")
    (tmp_path / "ids").write_bytes(ids.encode())
    run("build_index", output_dir=folder, delete=tmp_path / "ids", compact=True)
    assert len(Index(folder)) == sum(Index(folder).manifest.segments) == 8
    given = {"output_dir": folder, "delete": tmp_path / "ids"}
    assert "'d3'" in fail(run("build_index", **given))
    assert "--delete" in fail(run("build_index", **given, input_file=tmp_path / "ids"))
    assert "--input_file" in fail(run("build_index", output_dir=folder, replace=True))


CHANGE = """
import pathlib, sys
from tests.search.changes_test import batches
from bert_tf.search.index import compact_index, delete_from_index, replace_in_index
folder = pathlib.Path(sys.argv[1])
print("ready", flush=True)
delete_from_index(folder, [f"d{n}" for n in range(0, 600, 2)])
replace_in_index(folder, batches(range(1, 600, 4), 1), model="m")
compact_index(folder)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends SIGKILL")
def test_kills_at_random_moments(tmp_path: pathlib.Path) -> None:
    """After each kill the index is that before or after one of the three changes."""
    states = []
    names = {n: f"text 0 {n}" for n in range(600)}
    states.append(dict(names))
    names = {n: text for n, text in names.items() if n % 2}
    states.append(dict(names))
    names |= {n: f"text 1 {n}" for n in range(1, 600, 4)}
    states.append(names)
    reached = set()
    seconds = 600.0
    for kill in range(11):
        folder = tmp_path / str(kill)
        build_index(folder, batches(range(600)), model="m")
        process = subprocess.Popen(
            [sys.executable, "-c", CHANGE, str(folder)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout and process.stdout.readline() == "ready\n"
        start = time.monotonic()
        delay = random.Random(kill).uniform(0, seconds) if kill else seconds
        try:
            assert process.wait(delay) == 0
            # The first run measures the changes; on a busy machine a later one may be faster.
            seconds = time.monotonic() - start
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        process.stdout.close()
        index = Index(folder)
        found = {int(name[1:]): index.text(row) for row, name in enumerate(index.ids)}
        state = states.index(found)
        reached.add(state)
        seeds = [int(found[n].split()[1]) for n in found]
        vectors = np.concatenate([vectors_of([n], s) for n, s in zip(found, seeds, strict=True)])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        np.testing.assert_allclose(index.vectors(np.arange(len(index))), vectors, atol=1e-6)
        add_to_index(folder, batches([5000]), model="m")  # The lock is free; files left are gone.
        files = {path.name for path in folder.iterdir()} - {".lock", "manifest.json"}
        assert files == set(Index(folder).manifest.files)
    assert len(reached) > 1
