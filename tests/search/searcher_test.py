"""Stages of a search, each with a stand-in whose answers are known beforehand."""

import numpy as np
import pytest

from bert_tf.search import searcher
from bert_tf.search.index import Manifest, build_index
from bert_tf.search.searcher import Searcher
from bert_tf.search.segments import Batch

# By vectors a is best, then b, c, d; by words d, then c and b, which are equal; a has none.
VECTORS = np.float32([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]])
WORDS = np.float32([0.0, 2.0, 2.0, 5.0])
TEXTS = ["text a", "text b", "text c", "text d"]


class Embedder:
    fingerprint = "model"

    def __init__(self, source, pooling="", max_seq_length=0, batch_size=32):
        assert (source, pooling) == ("where", "cls")

    def queries(self, texts):
        return np.float32([[1.0, 0.0]] * len(texts))


class Words:
    def __init__(self, texts, language):
        assert (texts, language) == (TEXTS, "de")

    def search(self, queries, k):
        order = np.argsort(-WORDS, kind="stable")[:k]
        return np.tile(WORDS[order], (len(queries), 1)), np.tile(order, (len(queries), 1))

    def score(self, queries, rows):
        return [WORDS[chosen] for chosen in rows]


class CrossEncoder:
    def __init__(self, path):
        pass

    def pair_logits(self, queries, documents, batch_size):
        return np.float32([{"text c": 9.0, "text b": 1.0}.get(text, 0.0) for text in documents])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("bert_tf.search.embedding.SearchEmbedder", Embedder)
    stand_ins = {"Bm25": Words, "read_reranker": CrossEncoder}
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(searcher, name, stand_in)
    path = tmp_path / "index"
    batch = Batch(["a", "b", "c", "d"], VECTORS, TEXTS)
    build_index(path, [batch], model="model", source="where", pooling="cls", language="de")
    assert Manifest.read(path).pooling == "cls"
    return str(path)


def found(folder, k=4, **options):
    first, again = Searcher(folder, **options).search(["query", "again"], k)
    assert (first.rows == again.rows).all() and first.scores.dtype == np.float32
    return first.scores.tolist(), "".join("abcd"[row] for row in first.rows)


def test_vectors_or_words_alone(folder):
    scores, order = found(folder)
    assert order == "abcd" and scores == pytest.approx([1.0, 0.8, 0.6, 0.0])
    assert found(folder, mode="words") == ([5.0, 2.0, 2.0], "dbc")  # a shares no word.


def test_ranks_are_joined(folder):
    """Of words b stands before c, as rows do; a, which shares no word, gets nothing there."""
    places = {"a": (1,), "b": (2, 2), "c": (3, 3), "d": (4, 1)}
    points = {name: 0.5 * sum(1 / (60 + p) for p in own) for name, own in places.items()}
    expected = sorted(points, key=points.get, reverse=True)
    scores, order = found(folder, mode="hybrid")
    assert order == "".join(expected)
    assert scores == pytest.approx([points[name] for name in expected], rel=1e-6)


@pytest.mark.parametrize("fusion", ["ranks", "weights"])
def test_weight_of_vectors(folder, fusion):
    options = {"mode": "hybrid", "fusion": fusion}
    assert found(folder, vector_weight=1.0, **options)[1][:2] == "ab"
    assert found(folder, vector_weight=0.0, **options)[1][0] == "d"


@pytest.mark.parametrize(("hybrid_k", "expected"), [(100, "bacd"), (2, "bad")])
def test_scores_are_joined(folder, monkeypatch, hybrid_k, expected):
    """Cosines are scaled from -1, BM25 from 0, and both are computed for all that either found."""
    monkeypatch.setattr(searcher, "HYBRID_K", hybrid_k)
    points = {
        "a": 0.7 * 2 / 2,
        "b": 0.7 * 1.8 / 2 + 0.3 * 2 / 5,
        "c": 0.7 * 1.6 / 2 + 0.3 * 2 / 5,  # Of two found by each way, vectors have a and b,
        "d": 0.7 * 1.0 / 2 + 0.3 * 5 / 5,  # words d and b.
    }
    options = {"mode": "hybrid", "fusion": "weights", "vector_weight": 0.7}
    scores, order = found(folder, k=4 if hybrid_k > 4 else 2, **options)
    assert order == expected[: len(order)]
    assert scores == pytest.approx([points[name] for name in order], rel=1e-6)


def test_dot_products_are_scaled_from_the_lowest_found(tmp_path, folder):
    path = tmp_path / "dot"
    batch = Batch(["a", "b", "c", "d"], VECTORS * 30 + 50, TEXTS)
    build_index(
        path, [batch], model="model", source="where", pooling="cls", similarity="dot", language="de"
    )
    scores, order = found(str(path), mode="hybrid", fusion="weights")
    points = {"a": 0.8, "b": 0.8 * 0.8 + 0.2 * 0.4, "c": 0.8 * 0.6 + 0.2 * 0.4, "d": 0.2}
    assert order == "abcd"
    assert scores == pytest.approx([points[name] for name in order], rel=1e-5)


def test_a_reranker_orders_the_first_anew(folder):
    assert found(folder, k=2, reranker="ce", rerank_k=3) == ([9.0, 1.0], "cb")
    assert found(folder, k=2, reranker="ce", rerank_k=2)[1] == "ba"


def test_documents_behind_those_that_a_reranker_reads_keep_their_order(folder):
    """Logits of a, b, c, d are 0, 1, 9, 0."""
    assert found(folder, k=4, reranker="ce", rerank_k=2) == ([1.0, 0.0, -1.0, -2.0], "bacd")
    assert found(folder, k=3, reranker="ce", rerank_k=1) == ([0.0, -1.0, -2.0], "abc")
    assert found(folder, mode="words", reranker="ce", rerank_k=2) == ([1.0, 0.0, -1.0], "bdc")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"mode": "word"}, "mode .*'word',.*vectors, words, hybrid"),
        ({"mode": "hybrid", "fusion": "rrf"}, "fusion .*'rrf',.*ranks, weights"),
        ({"faiss": "ivf"}, "faiss .*'ivf', .*flat, ivf_pq, hnsw"),
        ({"mode": "hybrid", "vector_weight": 3.0}, "vector_weight .*3.0"),
        ({"reranker": "ce", "rerank_k": 0}, "rerank_k .*0"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(folder, options, named):
    with pytest.raises(ValueError, match=named):
        Searcher(folder, **options)


def test_a_single_string_is_no_list_of_queries(folder):
    with pytest.raises(ValueError, match="queries .*'abcd',"):
        Searcher(folder, mode="words").search("abcd", 1)


def test_words_that_no_document_has_find_none_to_rerank(folder, monkeypatch):
    monkeypatch.setitem(globals(), "WORDS", np.zeros(4, np.float32))
    assert found(folder, mode="words", reranker="ce") == ([], "")


def test_a_model_that_has_moved(folder, monkeypatch):
    def missing(source, *_):
        raise ValueError(f"{source} does not exist.")

    monkeypatch.setattr("bert_tf.search.embedding.SearchEmbedder", missing)
    with pytest.raises(ValueError, match="'where', .* --init_checkpoint"):
        Searcher(folder)
    with pytest.raises(ValueError, match="^there "):
        Searcher(folder, model="there")


def test_fewer_than_asked_for_are_no_documents(folder, monkeypatch):
    class Faiss:
        def __init__(self, index, kind):
            pass

        def search(self, queries, k):
            return np.float32([[1.0, -np.inf]]), np.array([[2, -1]])

    monkeypatch.setattr(searcher, "FaissIndex", Faiss)
    with pytest.raises(ValueError, match="FAISS.* 2 documents .*--faiss"):
        found(folder, k=2, faiss="ivf_pq")
