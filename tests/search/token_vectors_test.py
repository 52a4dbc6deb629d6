"""The index of token vectors against MaxSim of the vectors themselves, and reranking by it."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.inference.serving_models import load
from bert_tf.metrics import maxsim as maxsims
from bert_tf.metrics.maxsim import TokenMatrix, maxsim
from bert_tf.search import token_vectors
from bert_tf.search.reranker import read_reranker
from bert_tf.search.serving import TokenStore
from bert_tf.search.token_vectors import TokenIndex
from bert_tf.tasks.base.serving.saving.writing import save
from bert_tf.tasks.embedding.late_interaction_model import BertLateInteraction
from export.checks.model_check import check
from tests.float_bounds import assert_close
from tests.shared_data import shared_data


def unit_vectors(*lengths, seed=1):
    generator = np.random.default_rng(seed)
    texts = [generator.normal(size=[length, 16]).astype(np.float32) for length in lengths]
    return [text / np.maximum(np.linalg.norm(text, axis=1, keepdims=True), 1e-9) for text in texts]


@pytest.mark.parametrize("dtype", token_vectors.DTYPES)
@pytest.mark.parametrize("most", [0, 1 << 30])
def test_search_is_that_of_the_stored_vectors(tmp_path, monkeypatch, dtype, most):
    """Each number is rounded to 2^-12, or to half of 1/127 of the vector's largest one."""
    monkeypatch.setattr(token_vectors, "MOST_DECODED", most)
    monkeypatch.setattr(maxsims, "MAX_PRODUCTS", 8 * 13)
    monkeypatch.setattr(maxsims, "PART", 3)
    documents = unit_vectors(3, 0, 20, 1, 7, 7)
    queries = unit_vectors(4, 9, seed=2)
    TokenIndex.of(documents, dtype).save(tmp_path / "tokens")
    index = TokenIndex.load(tmp_path / "tokens")
    scores, rows = index.search(queries, 5)
    exact = maxsim(queries, TokenMatrix.of(documents))
    # A cosine changes by at most the sum over 16 numbers; each is at most 1 in size.
    error = {"float16": 2**-12, "int8": 0.5 / 127}[dtype] * np.sqrt(16) * 9
    found = np.take_along_axis(exact, rows, axis=1)
    np.testing.assert_allclose(scores, found, rtol=0, atol=error)
    assert (np.diff(scores, axis=1) <= 0).all() and 1 not in rows
    assert rows[:, 0].tolist() == exact.argmax(axis=1).tolist()
    np.testing.assert_allclose(
        index.score(queries, "meanmaxsim")[:, 0], exact[:, 0] / [4, 9], atol=error
    )


def test_all_numbers_of_float16_are_decoded():
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    numbers = numbers[np.isfinite(numbers)][:, None]
    found = TokenMatrix(numbers, np.array([0, len(numbers)])).decode(0, len(numbers))
    np.testing.assert_array_equal(found, numbers.astype(np.float32))


def test_equal_documents_are_in_order():
    document = unit_vectors(4)[0]
    _, rows = TokenIndex.of([document] * 5).search([document[:2]], 5)
    assert rows.tolist() == [[0, 1, 2, 3, 4]]


def test_without_some_documents_it_is_the_index_of_the_others():
    documents = unit_vectors(3, 0, 20, 1, 7)
    names = list("abcde")
    rest = TokenIndex.of(documents, "int8", names, texts=names).without([0, 3])
    expected = TokenIndex.of([documents[row] for row in (1, 2, 4)], "int8")
    for name in ("vectors", "starts", "scales"):
        np.testing.assert_array_equal(getattr(rest, name), getattr(expected, name))
    assert rest.ids == rest.texts == ["b", "c", "e"]


@pytest.mark.parametrize("similarity", maxsims.MAXSIM)
def test_a_store_in_the_graph_finds_the_same(monkeypatch, similarity):
    monkeypatch.setattr("bert_tf.search.serving.CHUNK_ROWS", 8)
    documents = unit_vectors(3, 0, 20, 1, 7, 7)
    documents.append(documents[2])  # a tie
    queries = unit_vectors(4, 0, 9, seed=2)
    vectors = np.zeros([3, 9, 16], np.float32)
    scored = np.zeros([3, 9], np.int32)
    for row, query in enumerate(queries):
        # Tokens that do not score stand between those that do.
        places = np.arange(len(query)) * 2 % 9
        vectors[row, places] = query
        scored[row, places] = 1
    index = TokenIndex.of(documents, "int8", ids=list("abcdefg"))
    expected, rows = index.search(queries, 7, similarity)
    store = TokenStore(index, similarity)
    outputs = {"vectors": tf.constant(vectors), "scored": tf.constant(scored)}
    scores, found = store.search(store.queries_of(outputs), tf.constant(7))
    assert_close(scores.numpy(), expected)
    np.testing.assert_array_equal(found, rows)


def test_wrong_input_is_named(tmp_path):
    index = TokenIndex.of(unit_vectors(3, 4))
    with pytest.raises(ValueError, match="float64"):
        TokenIndex.of(unit_vectors(3), "float64")
    with pytest.raises(ValueError, match="16"):
        index.search([np.zeros([2, 8], np.float32)], 1)
    with pytest.raises(ValueError, match="3"):
        index.search(unit_vectors(2), 3)
    with pytest.raises(ValueError, match="ids"):
        TokenIndex.of(unit_vectors(3, 4), ids=["a", "a"])
    (tmp_path / "x").write_text("nothing")
    with pytest.raises(ValueError, match="x is no index"):
        TokenIndex.load(tmp_path / "x")
    np.savez(tmp_path / "y.npz", vectors=index.vectors, starts=index.starts[:2], scales=[1])
    with pytest.raises(ValueError, match="y.npz"):
        TokenIndex.load(tmp_path / "y.npz")


@pytest.mark.slow
@pytest.mark.needs(data="fixtures/families/colbert")
def test_late_interaction_scores_pairs_in_the_place_of_a_cross_encoder():
    folder = shared_data("fixtures", "families", "colbert", "stanford")
    model = BertLateInteraction.from_pretrained(folder)
    queries, documents = ["a", "b c", "a"], ["The sea.", "a wolf", "b"]
    found = read_reranker(str(folder)).pair_logits(queries, documents, 2)
    np.testing.assert_allclose(found, np.diag(model.score(queries, documents)), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.needs(data="fixtures/families/colbert")
def test_an_exported_search_finds_what_the_index_finds(tmp_path):
    folder = shared_data("fixtures", "families", "colbert", "stanford")
    model = BertLateInteraction.from_pretrained(folder)
    documents = ["The sea.", "a wolf", "b", "", "The sea wolf of the north"]
    index = TokenIndex.of(model.encode_documents(documents), "int8", ids=list("abcde"))
    file = tmp_path / "words.tokens"
    index.save(file)
    queries = ["the sea wolf", "b", ""]
    expected, rows = index.search(model.encode_queries(queries), 3)
    options = {"index": str(file)}
    (path,) = save(load(str(folder), "search", **options), tmp_path / "m", 1, str(folder), options)
    answer = tf.saved_model.load(str(path)).signatures["serving_default"](
        query=tf.constant(queries), k=tf.constant(3)
    )
    assert_close(answer["scores"].numpy(), expected)
    np.testing.assert_array_equal(answer["rows"], rows)
    assert answer["ids"].numpy()[0].tolist() == [b"abcde"[row : row + 1] for row in rows[0]]
    assert str(folder) in "\n".join(check(path))
    for wrong in ({"store": "int8"}, {"rerank": str(folder)}):
        with pytest.raises(ValueError, match="words.tokens"):
            load(str(folder), "search", **options, **wrong)
    with pytest.raises(ValueError, match="words.tokens"):
        load("", "search", **options)
    TokenIndex.of([np.zeros([3, 8], np.float32)]).save(file)
    with pytest.raises(ValueError, match=r"8.*16"):
        load(str(folder), "search", **options)


@pytest.mark.slow
@pytest.mark.needs(data="fixtures/families/colbert")
def test_pooled_documents_are_not_exported_without_their_pooling(tmp_path):
    folder = shared_data("fixtures", "families", "colbert", "st6")
    model = BertLateInteraction.from_pretrained(folder)
    tokens = dataclasses.replace(model.tokens, pool_factor=2.0)
    embedding = dataclasses.replace(model.embedding, tokens=tokens)
    BertLateInteraction.from_pretrained(folder, embedding=embedding).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="pool_factor 2"):
        load(str(tmp_path), side="document")
    assert load(str(tmp_path), side="query").side == "query"
