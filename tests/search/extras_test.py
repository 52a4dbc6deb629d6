"""FAISS and BM25 beside exact search and formulas; without the libraries an error names them."""

import json
import math
import pathlib
import sys

import numpy as np
import pytest

from bert_tf.search.bm25 import Bm25
from bert_tf.search.faiss_index import FaissIndex, build_faiss
from bert_tf.search.index import Index, add_to_index, build_index
from bert_tf.search.segments import Batch
from bert_tf.system.checksums import file_crc
from tests.damaged import flip_a_bit


def make_index(folder: pathlib.Path, count: int, dtype: str = "float32") -> Index:
    vectors = np.random.default_rng(0).normal(size=[count, 16])
    build_index(folder, [Batch([f"d{i}" for i in range(count)], vectors)], model="m", dtype=dtype)
    return Index(folder)


@pytest.mark.parametrize(
    ("kind", "dtype", "least"),
    [
        ("flat", "float32", 1),
        pytest.param("ivf_pq", "int8", 0.8, marks=pytest.mark.slow),
        pytest.param("hnsw", "float16", 0.9, marks=pytest.mark.slow),
    ],
)
def test_faiss_finds_what_exact_search_finds(
    tmp_path: pathlib.Path, kind: str, dtype: str, least: float
) -> None:
    index = make_index(tmp_path / "index", 1000, dtype)
    queries = np.random.default_rng(1).normal(size=[20, 16])
    _, exact = index.search(queries, 10)
    build_faiss(index, kind)
    scores, rows = FaissIndex(index, kind).search(queries, 10)
    shared = np.mean([len({*a} & {*b}) / 10 for a, b in zip(exact, rows, strict=True)])
    assert shared >= least
    expected = index.as_queries(queries)[:, None] @ index.vectors(rows.ravel()).reshape(
        20, 10, 16
    ).swapaxes(1, 2)
    np.testing.assert_allclose(scores, expected[:, 0], atol=1e-5)


@pytest.mark.parametrize("kind", ["flat", "hnsw", pytest.param("ivf_pq", marks=pytest.mark.slow)])
def test_faiss_of_another_index_is_refused(tmp_path: pathlib.Path, kind: str) -> None:
    index = make_index(tmp_path / "a", 300)
    vectors = index.vectors(np.arange(300))[::-1]
    build_index(tmp_path / "b", [Batch(index.ids, vectors)], model="m")
    other = Index(tmp_path / "b")
    build_faiss(index, kind)
    path = build_faiss(other, kind)
    for ending in (".bin", ".json"):
        source = path.with_suffix(ending)
        source.rename(tmp_path / "a" / source.name)
    with pytest.raises(ValueError, match=f"faiss-{kind}.bin"):
        FaissIndex(index, kind)


def test_a_faiss_file_of_another_kind_is_refused(tmp_path: pathlib.Path) -> None:
    index = make_index(tmp_path / "a", 20)
    path = build_faiss(index, "flat")
    for ending in (".bin", ".json"):
        path.with_suffix(ending).rename(tmp_path / "a" / f"faiss-hnsw{ending}")
    about = tmp_path / "a" / "faiss-hnsw.json"
    with pytest.raises(ValueError, match="faiss-hnsw"):
        FaissIndex(index, "hnsw")
    values = json.loads(about.read_text())
    del values["kind"]
    about.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="faiss-hnsw"):
        FaissIndex(index, "hnsw")


@pytest.mark.parametrize(
    ("kind", "written"),
    [("flat", (8, 20)), ("flat", (16, 21)), ("hnsw", (16, 20)), ("flat", b"IxFI" + b"\xff" * 60)],
)
def test_a_faiss_file_of_other_vectors_is_refused(
    tmp_path: pathlib.Path, kind: str, written: tuple[int, int] | bytes
) -> None:
    import faiss

    index = make_index(tmp_path / "a", 20)
    path = build_faiss(index, kind)
    if isinstance(written, tuple):
        dimension, count = written
        other = faiss.IndexFlatIP(dimension)
        other.add(np.ones([count, dimension], np.float32))
        written = faiss.serialize_index(other).tobytes()
    path.write_bytes(written)
    record = json.loads(path.with_suffix(".json").read_text()) | {"crc32c": file_crc(path)}
    path.with_suffix(".json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=f"faiss-{kind}.bin"):
        FaissIndex(index, kind)


def test_a_damaged_faiss_file_is_not_deserialized(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = make_index(tmp_path / "a", 20)
    flip_a_bit(build_faiss(index, "flat"), 40)
    monkeypatch.setattr("faiss.deserialize_index", lambda _: pytest.fail("read before its check"))
    with pytest.raises(ValueError, match="faiss-flat.bin"):
        FaissIndex(index, "flat")


def test_faiss_of_fewer_documents_is_refused(tmp_path: pathlib.Path) -> None:
    index = make_index(tmp_path / "index", 20)
    with pytest.raises(ValueError, match="faiss-flat.bin .*missing.*--faiss=flat"):
        FaissIndex(index, "flat")
    with pytest.raises(ValueError, match="ivf_pq .*256 .*20"):
        build_faiss(index, "ivf_pq")
    path = build_faiss(index, "flat")
    add_to_index(index.folder, [Batch(["new"], np.ones([1, 16]))], model="m")
    with pytest.raises(ValueError, match="20 documents .* 21"):
        FaissIndex(Index(index.folder), "flat")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match="faiss-flat.bin .*damaged"):
        FaissIndex(index, "flat")


def test_bm25_by_its_formula() -> None:
    texts = ["A clock strikes.", "The clocks of the tower: clock after clock", "water"]
    scores, rows = Bm25(texts).search(["The clock"], 3)
    # Lengths without stop words: clock strike; clock tower clock after clock; water.
    mean = 8 / 3

    def expected(count: int, length: int) -> float:
        idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
        return idf * count / (count + 0.9 * (1 - 0.4 + 0.4 * length / mean))

    assert rows.tolist() == [[1, 0, 2]]
    assert scores[0] == pytest.approx([expected(3, 5), expected(1, 2), 0], abs=1e-6)


def test_bm25_finds_words_of_one_character() -> None:
    texts = ["vitamin D for bones", "vitamin C for colds", "Article 5.", "Article 6", "a plan B"]
    found = Bm25(texts)
    scores, rows = found.search(["vitamin C", "Article 5", "C++", "c#", "a"], 2)
    assert rows[:, 0].tolist() == [1, 2, 1, 1, 0]
    assert (scores > 0).sum(1).tolist() == [2, 2, 1, 1, 0]  # "a" is a stop word.
    assert scores[0, 0] > scores[0, 1]
    for (chosen,), row in zip(found.score(["C++"], [np.array([1])]), scores[2:3], strict=True):
        assert chosen == row[0]


def test_bm25_has_the_stemmer_of_its_language() -> None:
    texts = ["Das Programm löscht Dateien.", "Er stahl zwei Uhren, was nie auffiel."]
    queries = ["Dateiname", "Datei", "was"]

    def number_found(language: str) -> list[int]:
        scores, _ = Bm25(texts, language=language).search(queries, 2)
        return (scores > 0).sum(1).tolist()

    assert number_found("de") == [0, 1, 1]
    assert number_found("en") == [0, 0, 0]  # "was" is a stop word.
    assert number_found("other") == [0, 0, 1]


def test_bm25_without_shared_words_and_with_too_few_documents() -> None:
    found = Bm25(["one", "two"])
    assert found.search(["", "three the"], 2)[0].tolist() == [[0, 0], [0, 0]]
    with pytest.raises(ValueError, match="k .*3; .*1 .*2"):
        found.search(["one"], 3)
    with pytest.raises(ValueError, match="corpus"):
        Bm25([])
    assert Bm25(["the"]).search(["one"], 1)[0].tolist() == [[0]]


def test_missing_libraries_are_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(ValueError, match=r"pip install '\.\[faiss\]'"):
        build_faiss(make_index(tmp_path / "index", 3), "flat")
    with pytest.raises(ValueError, match=r"pip install '\.\[search\]'"):
        Bm25(["a"])
