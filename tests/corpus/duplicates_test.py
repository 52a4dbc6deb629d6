"""Duplicates beside a twin that compares all pairs of documents, with sets of tuples."""

import itertools

import numpy as np
import pytest

from bert_tf.corpus import duplicates
from bert_tf.corpus.duplicates import (
    BANDS,
    ROWS,
    find_duplicates,
    kept_documents,
    minimum_hashes,
    shingles,
    write_keys,
)
from bert_tf.corpus.token_store import TokenStore, write_part


def make_store(folder, documents, per_file=100, sentence=7):
    """Writes documents, lists of ids, in sentences and files of these sizes."""
    cut = [[d[i : i + sentence] for i in range(0, len(d), sentence)] for d in documents]
    paths = []
    for number, start in enumerate(range(0, len(cut), per_file)):
        paths.append(folder / f"{number}.tokens")
        write_part(paths[-1], cut[start : start + per_file], 2)
    return TokenStore(paths)


def jaccard(a, b):
    """Returns the similarity of two lists of ids."""
    a, b = ({tuple(d[i : i + 5]) for i in range(max(1, len(d) - 4))} for d in (a, b))
    return len(a & b) / len(a | b)


def copies_of(rng, document):
    """Returns a copy with some pieces changed: its similarity may be anything above 0.3."""
    copy = list(document)
    for position in rng.integers(0, len(copy), rng.integers(0, 1 + len(copy) // 12)):
        copy[position] = int(rng.integers(1000))
    return copy


@pytest.fixture(scope="module")
def documents():
    """200 documents of 1 to 300 pieces; half of them are changed copies of others."""
    rng = np.random.default_rng(1)
    found = [rng.integers(1000, size=rng.integers(1, 300)).tolist() for _ in range(100)]
    for _ in range(100):
        found.append(copies_of(rng, found[rng.integers(len(found))]))
    return [found[i] for i in rng.permutation(200)]


def test_near_duplicates_are_those_of_the_twin(documents, tmp_path):
    store = make_store(tmp_path, documents)
    kept = kept_documents(store, "near", num_workers=1)
    left_out = set(range(200)) - set(kept.tolist())
    alike = {pair for pair in itertools.combinations(range(200), 2)
             if jaccard(documents[pair[0]], documents[pair[1]]) >= 0.8}  # fmt: skip
    later = {second for _, second in alike}
    assert 20 < len(later) < 90
    assert left_out <= later  # none is left out by chance
    assert len(left_out) >= 0.97 * len(later)
    # Whatever was left out, something like it that stands before it was met.
    assert not any(first in left_out and second not in left_out for first, second in alike
                   if not any((x, first) in alike for x in range(first)))  # fmt: skip


def test_exact_duplicates_are_those_of_the_twin(documents, tmp_path):
    store = make_store(tmp_path, documents)
    first = {}
    for number, document in enumerate(documents):
        first.setdefault(tuple(document), number)
    assert kept_documents(store, "exact", num_workers=1).tolist() == sorted(first.values())
    assert 0 < len(first) < 195


def test_where_sentences_end_plays_no_part(tmp_path):
    write_part(tmp_path / "a", [[[1, 2, 3], [4, 5]], [[1, 2], [3, 4, 5]], [[1, 2, 3, 4]]], 2)
    store = TokenStore([tmp_path / "a"])
    assert kept_documents(store, "exact", num_workers=1).tolist() == [0, 2]


def test_workers_files_and_slices_change_nothing(documents, tmp_path, monkeypatch):
    results = []
    for name, per_file, workers, at_once in [("a", 400, 1, 1 << 22), ("b", 37, 2, 50)]:
        (tmp_path / name).mkdir()
        monkeypatch.setattr(duplicates, "KEYS_AT_ONCE", at_once)
        store = make_store(tmp_path / name, documents, per_file)
        results.append(kept_documents(store, "near", workers).tolist())
    assert results[0] == results[1]


def test_what_is_there_is_not_made_again(documents, tmp_path, monkeypatch):
    store = make_store(tmp_path, documents)
    made = kept_documents(store, "near", 1)
    monkeypatch.setattr(duplicates, "find_duplicates", None)
    assert (kept_documents(store, "near", 1) == made).all()
    assert kept_documents(store, "none", 1).tolist() == list(range(200))


def test_keys_that_are_equal_by_chance_remove_nothing(documents, tmp_path, monkeypatch):
    same = lambda pieces: np.zeros(BANDS, np.uint64)  # noqa: E731
    comparison = duplicates.COMPARISONS["near"]._replace(keys=same)
    monkeypatch.setitem(duplicates.COMPARISONS, "near", comparison)
    different = [[n] * 9 for n in range(60)]
    store = make_store(tmp_path, different)
    write_keys(store.paths[0], "near")
    assert find_duplicates(store, "near").tolist() == []


def test_minima_estimate_the_similarity():
    rng = np.random.default_rng(2)
    common = rng.integers(1000, size=3000)
    for share in (0.2, 0.5, 0.9):
        size = int(3000 * share)
        a, b = (shingles(np.append(common[:size], rng.integers(1000, size=3000 - size)))
                for _ in range(2))  # fmt: skip
        true = duplicates.similarity(a, b)
        estimate = (minimum_hashes(a) == minimum_hashes(b)).mean()
        assert abs(estimate - true) < 4 * np.sqrt(true * (1 - true) / (BANDS * ROWS))


def test_shingles_are_a_set():
    assert len(shingles(np.array([7, 7, 7, 7, 7, 7, 7], np.uint16))) == 1
    assert len(shingles(np.array([1, 2, 3], np.uint16))) == 1
    assert shingles(np.array([1, 2], np.uint16)) != shingles(np.array([2, 1], np.uint16))
    a, b = shingles(np.arange(10, dtype=np.uint16)), shingles(np.arange(9, dtype="<i4"))
    assert (len(a), len(b)) == (6, 5) and set(b) < set(a)
