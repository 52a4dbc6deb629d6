"""Losses of embeddings against sentence-transformers' own values and gradients."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.tasks.embedding import losses
from tests.float_bounds import OTHER_FRAMEWORK, assert_close, close_to
from tests.shared_data import golden_file, read_arrays

NAMES = ("anchor", "positive", "negative", "negative2")
CASES = {
    "mnrl_pairs": (losses.in_batch_negatives, 2, None),
    "mnrl_hard_negatives": (losses.in_batch_negatives, 3, None),
    "mnrl_two_hard_negatives": (losses.in_batch_negatives, 4, None),
    "cosent": (losses.cosent, 2, "similarity_labels"),
    "cosine_similarity": (losses.cosine_similarity, 2, "similarity_labels"),
    "triplet_euclidean_margin5": (losses.triplet, 3, None),
    "triplet_cosine_margin0.3": (
        functools.partial(losses.triplet, margin=0.3, distance="cosine"),
        3,
        None,
    ),
    "margin_mse": (losses.margin_mse, 3, "margins"),
    "margin_mse_two_negatives": (losses.margin_mse, 4, "margins2"),
    "matryoshka_mnrl_hard_negatives": (
        losses.matryoshka(losses.in_batch_negatives, [24, 12, 5], [1.0, 0.5, 0.25]),
        3,
        None,
    ),
}


def run(loss, texts, weights, scores):
    """Returns a loss and its gradients; texts are float [B, D], the query first."""
    texts = [tf.constant(text) for text in texts]
    with tf.GradientTape() as tape:
        tape.watch(texts)
        documents = tf.stack(texts[1:], axis=1)
        vectors = losses.Vectors(texts[0], documents, tf.constant(weights), scores)
        value = loss(vectors).mean()
    return value.numpy(), [gradient.numpy() for gradient in tape.gradient(value, texts)]


# sentence-transformers 5.2.3, which made the goldens, takes minus the distance for the distance:
# the negative is then in the positive's place. Later releases do not.
SWAPPED = {"triplet_euclidean_margin5": ("anchor", "negative", "positive")}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_sentence_transformers(name):
    golden = read_arrays(golden_file("families", "sentence_transformers", "losses.npz"))
    loss, count, labels = CASES[name]
    names = SWAPPED.get(name, NAMES[:count])
    texts = [golden[f"in_{part}"] for part in names]
    scores = None
    if labels:
        scores = golden[f"in_{labels}"]
        scores = scores.reshape(len(scores), -1)
    value, gradients = run(loss, texts, np.ones([6, count - 1], np.float32), scores)
    assert_close(value, golden[f"out_{name}"], OTHER_FRAMEWORK)
    for part, gradient in zip(names, gradients, strict=True):
        assert_close(gradient, golden[f"grad_{name}_{part}"], OTHER_FRAMEWORK)


def plain_ranking(queries, candidates, places, scale=20.0):
    """Returns the mean cross-entropy, written out."""
    unit = [x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (queries, candidates)]
    scores = scale * unit[0] @ unit[1].T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return -np.mean(np.log(shares[np.arange(len(queries)), places]))


def test_the_symmetric_loss_also_finds_the_query_of_each_positive():
    rng = np.random.default_rng(1)
    queries, positives, negatives = rng.normal(size=[3, 5, 8]).astype(np.float32)
    forth = plain_ranking(queries, np.concatenate([positives, negatives]), np.arange(5))
    back = plain_ranking(positives, queries, np.arange(5))
    loss = functools.partial(losses.in_batch_negatives, symmetric=True)
    value, _ = run(loss, [queries, positives, negatives], np.ones([5, 2], np.float32), None)
    assert value == close_to((forth + back) / 2)


@pytest.mark.parametrize("symmetric", [False, True])
def test_what_only_fills_is_no_candidate_and_has_no_gradient(symmetric):
    rng = np.random.default_rng(2)
    texts = rng.normal(size=[3, 5, 8]).astype(np.float32)
    weights = np.ones([5, 2], np.float32)
    weights[3:] = 0.0  # examples
    weights[1, 1] = 0.0  # a negative
    loss = functools.partial(losses.in_batch_negatives, symmetric=symmetric)
    value, gradients = run(loss, list(texts), weights, None)
    candidates = np.concatenate([texts[1, :3], texts[2, [0, 2]]])
    expected = plain_ranking(texts[0, :3], candidates, np.arange(3))
    if symmetric:
        expected = (expected + plain_ranking(texts[1, :3], texts[0, :3], np.arange(3))) / 2
    assert value == close_to(expected)
    for gradient in gradients:
        assert not gradient[3:].any()
    assert not gradients[2][1].any()


@pytest.mark.parametrize("name", ["cosent", "cosine_similarity", "triplet", "margin_mse"])
def test_rows_that_fill_change_no_other_loss(name):
    rng = np.random.default_rng(3)
    count = 2 if name.startswith("cos") else 4
    texts = list(rng.normal(size=[count, 5, 8]).astype(np.float32))
    scores = rng.uniform(size=[5, max(1, count - 2)]).astype(np.float32)
    weights = np.ones([5, count - 1], np.float32)
    weights[3:] = 0.0
    loss = getattr(losses, name)
    value, _ = run(loss, texts, weights, tf.constant(scores))
    fewer = [text[:3] for text in texts]
    expected, _ = run(loss, fewer, weights[:3], tf.constant(scores[:3]))
    assert value == close_to(expected)


def plain_same_label(texts, labels):
    """Returns the loss of texts float [n, D] with sets of labels, by loops over their pairs."""
    errors = {True: [], False: []}
    for i, text in enumerate(texts):
        for j, other in enumerate(texts):
            if i == j:
                continue
            cosine = text @ other / np.sqrt((text @ text) * (other @ other))
            has_common = bool(labels[i] & labels[j])
            errors[has_common].append((cosine - has_common) ** 2)
    means = [np.mean(values) for values in errors.values() if values]
    return np.mean(means) if means else 0.0


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param([{0}, {1}, {2}, {0}, {0}, {1}], id="classes"),
        pytest.param([{0, 1}, {1}, {2}, set(), set(), {1, 2}], id="several"),
        pytest.param([{0}] * 6, id="one class"),
        pytest.param([{0}, {1}, {2}, {3}, {4}, {5}], id="no common label"),
    ],
)
@pytest.mark.parametrize("num_filling", [0, 2, 3])
def test_same_label_compares_every_two_texts(labels, num_filling):
    rng = np.random.default_rng(4)
    texts = rng.normal(size=[2, 3, 8]).astype(np.float32)
    sets = np.array([[float(label in one) for label in range(6)] for one in labels], np.float32)
    scores = np.concatenate([sets[:3], sets[3:]], axis=1)
    weights = np.ones([3, 1], np.float32)
    count = 3 - num_filling
    weights[count:] = 0.0
    value, gradients = run(losses.same_label, list(texts), weights, tf.constant(scores))
    flat = np.concatenate([texts[0, :count], texts[1, :count]]).astype(np.float64)
    kept = [*labels[:count], *labels[3 : 3 + count]]
    assert value == close_to(plain_same_label(flat, kept))
    for gradient in gradients:
        assert np.isfinite(gradient).all()
        assert not gradient[count:].any()


def test_accuracy_counts_positives_that_score_highest():
    queries = tf.constant([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    documents = tf.constant([[[1.0, 0.1]], [[1.0, 0.0]], [[9.0, 9.0]]])
    ones = tf.ones([3, 1])
    found = losses.in_batch_accuracy(losses.Vectors(queries, documents, ones)).mean()
    assert found.numpy() == pytest.approx(1 / 3)
