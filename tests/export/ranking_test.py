"""A served reranker and a served search answer as the programs in Python do."""

import dataclasses
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.inference.serving_models import load
from bert_tf.metrics.exact import top_k
from bert_tf.search.embedding import SearchEmbedder
from bert_tf.search.index import Index
from bert_tf.search.serving import SearchServing, VectorStore
from bert_tf.tasks.base.serving.saving.writing import save
from bert_tf.tasks.reranking.model import BertReranker
from bert_tf.tasks.reranking.serving import NO_SCORE
from export.ask import ExportedModel
from export.checks.model_check import check, check_source
from export.checks.stored_model import read
from tests.export.made_models import TEXTS
from tests.float_bounds import assert_chosen, assert_close, bound
from tests.shared_data import golden_file

QUERIES = ["the river", "", "word " * 60]


def fixture(name: str) -> str:
    return str(golden_file("families", "sentence_transformers", name))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_store_finds_what_exact_search_finds(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr("bert_tf.search.serving.CHUNK_ROWS", 100)
    random = np.random.default_rng(0)
    vectors = random.normal(size=[350, 24]).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[200] = vectors[7]  # a tie
    queries = np.concatenate([random.normal(size=[3, 24]), vectors[7:8]]).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    expected, rows = top_k(queries, vectors, 120)
    scores, found = VectorStore(vectors, dtype).search(tf.constant(queries), tf.constant(120))
    least = {"float32": bound(1.0), "float16": 1e-3, "int8": 2e-5}[dtype]
    np.testing.assert_allclose(scores, expected, atol=least)
    np.testing.assert_array_equal(found[3, :2], [7, 200])
    if dtype == "float32":
        assert_chosen(found, queries @ vectors.T)
    assert all(len({*a.tolist()} & {*b}) > 117 for a, b in zip(found.numpy(), rows, strict=True))


def test_a_store_of_vectors_with_one_large_dimension() -> None:
    vectors = np.array([[100, 0, 0.3]] * 60 + [[100, 0.3, 0], [9e4, 3, 4]], np.float32)
    store = VectorStore(vectors, "int8")
    scores, rows = store.search(tf.constant([[0.0, 1, 0], [0, 0, 1]]), tf.constant(2))
    assert rows.numpy().tolist() == [[61, 60], [61, 0]]
    np.testing.assert_allclose(scores, [[3, 0.3], [4, 0.3]], rtol=0.01)


@pytest.mark.slow
def test_reranker() -> None:
    path = fixture("cross_encoder")
    served, model = load(path), BertReranker.from_pretrained(path)
    assert served.kind == "reranker" and served.max_seq_length == 40
    documents = [[TEXTS[0], "", "b " * 90], [TEXTS[4], TEXTS[1], TEXTS[0]], ["", "a", ""]]
    found = served.from_texts(tf.constant(QUERIES), tf.constant(documents))
    scores, order = found["scores"].numpy(), found["order"].numpy()
    for row, (query, texts) in enumerate(zip(QUERIES, documents, strict=True)):
        places = [place for place, text in enumerate(texts) if text]
        expected = np.array(model.score([(query, texts[place]) for place in places]))
        assert_close(scores[row, places], expected)
        best = [places[place] for place in np.argsort(-expected, kind="stable")]
        assert order[row, : len(places)].tolist() == best
        assert all(scores[row, place] == NO_SCORE for place in order[row, len(places) :])
    none = served.from_texts(tf.constant(["a"]), tf.constant([[]], tf.string, [1, 0]))
    assert none["scores"].shape == (1, 0)

    # In a search a stored text of nothing is a document, and those behind it keep their order.
    stored = types.SimpleNamespace(rerank_k=2, document_texts=tf.constant(["", "a", "b", "c"]))
    found, rows = SearchServing._rerank(
        stored, served, tf.constant(["the river"]), tf.constant([[1, 0, 3, 2]])
    )
    expected = np.array(model.score([("the river", "a"), ("the river", "")]))
    low = expected.min()
    expected = [*np.sort(expected)[::-1], low - 1, low - 2]
    assert_close(found[0], expected)
    assert rows[0, 2:].numpy().tolist() == [3, 2]


@pytest.mark.slow
def test_search(search_index: pathlib.Path) -> None:
    served = load("", "search", index=str(search_index))
    found = Index(search_index)
    vectors = SearchEmbedder(fixture("mean_normalize")).queries(QUERIES)
    expected, rows = found.search(vectors, 5)
    answer = served.search(tf.constant(QUERIES), tf.constant(5))
    assert_close(answer["scores"], expected)
    vectors = found.vectors(np.arange(len(found)))
    scores = (
        found.as_queries(SearchEmbedder(fixture("mean_normalize")).queries(QUERIES)) @ vectors.T
    )
    for row, own in enumerate(answer["rows"].numpy()):
        assert_close(scores[row, own], expected[row])
    assert answer["ids"].numpy()[0, 0].decode() == found.ids[answer["rows"][0, 0]]
    assert answer["texts"].numpy()[0, 0].decode() == found.text(int(answer["rows"][0, 0]))
    for k in (0, len(found) + 1):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"k.*28"):
            served.search(tf.constant(QUERIES), tf.constant(k))


@pytest.mark.slow
def test_search_and_rerank(search_index: pathlib.Path) -> None:
    rerank = fixture("cross_encoder")
    served = load("", "search", index=str(search_index), rerank=rerank, rerank_k=6, store="int8")
    answer = served.search(tf.constant(["the river"]), tf.constant(2))
    found = Index(search_index)
    first = served.store.search(
        served.embedder.from_texts(tf.constant(["the river"]))["embedding"], tf.constant(6)
    )[1].numpy()[0]
    model = BertReranker.from_pretrained(rerank)
    scores = np.array(model.score([("the river", found.text(int(row))) for row in first]))
    best = np.argsort(-scores, kind="stable")[:2]
    assert answer["rows"].numpy()[0].tolist() == first[best].tolist()
    assert_close(answer["scores"][0], scores[best])

    served.rerank_k = 3  # The others follow as the store has them, below the worst of these.
    answer = served.search(tf.constant(["the river"]), tf.constant(5))
    best = [*np.argsort(-scores[:3], kind="stable"), 3, 4]
    assert answer["rows"].numpy()[0].tolist() == first[best].tolist()
    low = scores[:3].min()
    expected = [*np.sort(scores[:3])[::-1], low - 1, low - 2]
    assert_close(answer["scores"][0], expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["reranker", "search and rerank"])
def test_saved_models_pass_all_checks(
    search_index: pathlib.Path, tmp_path: pathlib.Path, kind: str
) -> None:
    """The operations are those of TensorFlow and tensorflow-text, and the answers are Python's."""
    source, options = fixture("cross_encoder"), {}
    if kind != "reranker":
        source, options = fixture("mean_normalize"), {"index": str(search_index)}
    if kind == "search and rerank":
        options |= {"rerank": fixture("cross_encoder"), "rerank_k": 4, "store": "int8"}
    served = load(source, kind.split()[0], **options)
    paths = save(served, tmp_path / "model", 1, source, options)
    assert len(paths) == (2 if kind == "reranker" else 1)
    for path in paths:
        printed = "\n".join(check(path))
        assert str(source) in printed, printed
    if kind == "reranker":
        answer = ExportedModel(paths[0]).answer([QUERIES[0], "the river\nb b b"])
        assert len(answer["scores"]) == len(answer["order"]) == 2
        return
    assert len(ExportedModel(paths[0]).answer(QUERIES[:1])["ids"]) == 10
    stored = read(paths[0])
    gone = {**stored.card, "options": {**options, "index": "gone.index"}}
    said = check_source(dataclasses.replace(stored, card=gone), [], "")
    assert "gone.index" in said
