"""Losses of token vectors against products and softmaxes by NumPy, and their gradients."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.metrics.maxsim import TokenMatrix, maxsim
from bert_tf.tasks.embedding import losses
from bert_tf.tasks.embedding.examples import EmbeddingExample
from bert_tf.tasks.embedding.loss_names import check_examples
from tests.float_bounds import assert_close


def draw(*shape, seed=1, least=2):
    """Returns token vectors float32 [..., T, D], of which the last ones of some texts are 0."""
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=shape).astype(np.float32)
    lengths = generator.integers(least, shape[-2] + 1, size=shape[:-2])
    return vectors * (np.arange(shape[-2]) < lengths[..., None])[..., None]


def scoring(vectors):
    return [one[one.any(axis=-1)] for one in vectors.reshape(-1, *vectors.shape[-2:])]


@pytest.mark.parametrize("similarity", ["maxsim", "meanmaxsim"])
def test_scores_and_gradients_are_those_of_all_products(similarity):
    queries, documents = draw(3, 4, 6), draw(5, 7, 6, seed=2)
    upstream = np.random.default_rng(3).normal(size=[3, 5]).astype(np.float32)
    arrays = [tf.constant(queries), tf.constant(documents)]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(arrays)
        found = losses.token_scores(*arrays, similarity)
        products = tf.einsum("qtd,nsd->qnts", *arrays)
        products = tf.where(documents.any(-1)[None, :, None], products, -1e9)
        is_token = queries.any(-1)
        whole = tf.reduce_sum(tf.reduce_max(products, -1) * is_token[:, None], -1)
        if similarity == "meanmaxsim":
            whole /= is_token.sum(-1)[:, None]
    expected = maxsim(scoring(queries), TokenMatrix.of(scoring(documents)), similarity)
    assert_close(found, expected)
    for own, plain in zip(
        tape.gradient(found, arrays, upstream), tape.gradient(whole, arrays, upstream), strict=True
    ):
        assert_close(own, plain)


def test_the_positive_of_each_query_is_found_among_all_documents():
    queries, documents = draw(3, 4, 6), draw(3, 2, 7, 6, seed=2)
    weights = np.array([[1, 1], [1, 0], [1, 1]], np.float32)
    vectors = losses.Vectors(queries, documents, weights)
    found = losses.in_batch_negatives(vectors, scale=0.5, similarity="maxsim").mean()
    in_order = np.concatenate([documents[:, 0], documents[:, 1]])  # the positives first
    scores = 0.5 * maxsim(scoring(queries), TokenMatrix.of(scoring(in_order)))[:, [0, 1, 2, 3, 5]]
    expected = np.mean(np.log(np.exp(scores).sum(1)) - scores[[0, 1, 2], [0, 1, 2]])
    assert found.numpy() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("similarity", ["maxsim", "dot"])
def test_divergence_is_that_of_two_softmaxes(similarity):
    """The second query has one negative; the teacher's scores are given as margins."""
    if similarity == "dot":
        queries, documents = draw(2, 6, least=2), draw(2, 3, 6, seed=2)
        scores = np.einsum("bd,bmd->bm", queries, documents)
    else:
        queries, documents = draw(2, 4, 6), draw(2, 3, 7, 6, seed=2)
        scores = np.stack(
            [
                maxsim(scoring(query), TokenMatrix.of(scoring(own)))[0]
                for query, own in zip(queries, documents, strict=True)
            ]
        )
    teacher = np.array([[3.0, 1.0, 2.0], [0.5, 1.5, 9.0]])
    weights = np.array([[1, 1, 1], [1, 1, 0]], np.float32)
    margins = (teacher[:, :1] - teacher[:, 1:]).astype(np.float32)
    expected = []
    for own, target, count in zip(scores, teacher, (3, 2), strict=True):
        q, p = (np.exp(one[:count]) / np.exp(one[:count]).sum() for one in (own, target))
        expected.append((p * np.log(p / q)).sum())
    vectors = losses.Vectors(queries, documents, weights, margins)
    found = losses.divergence(vectors, scale=1.0, similarity=similarity)
    assert found.mean().numpy() == pytest.approx(np.mean(expected), rel=1e-5)


def test_a_divergence_needs_negatives_with_margins():
    for scores, negatives in (((1.0,), ()), ((), ("c",))):
        example = EmbeddingExample("a", "b", negatives, scores, "rows.csv, line 2")
        with pytest.raises(ValueError, match=r"rows.csv, line 2 .*divergence"):
            check_examples([example], "divergence")
