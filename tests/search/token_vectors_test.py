"""The index of token vectors against MaxSim of the vectors themselves, and reranking by it."""

import numpy as np
import pytest

from bert_tf.metrics import maxsim as maxsims
from bert_tf.metrics.maxsim import TokenMatrix, maxsim
from bert_tf.search import token_vectors
from bert_tf.search.reranker import read_reranker
from bert_tf.search.token_vectors import TokenIndex
from bert_tf.tasks.embedding.late_interaction_model import BertLateInteraction
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


def test_wrong_input_is_named(tmp_path):
    index = TokenIndex.of(unit_vectors(3, 4))
    with pytest.raises(ValueError, match="float64"):
        TokenIndex.of(unit_vectors(3), "float64")
    with pytest.raises(ValueError, match="16"):
        index.search([np.zeros([2, 8], np.float32)], 1)
    with pytest.raises(ValueError, match="3"):
        index.search(unit_vectors(2), 3)
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
