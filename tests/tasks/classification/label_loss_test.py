"""Losses of labels in `fit`: by hand from the scores of a model that does not learn."""

import keras
import numpy as np
import pytest

from bert_tf.network.losses import class_losses, several_losses
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice
from bert_tf.tasks.tagging.model import BertTokenClassifier
from tests.tiny_model import write_tiny_model

TEXTS = ["good a b", "bad c", "good d e f", "bad"] * 2
LABELS = ("bad", "good", "long")
NAMES = ["good", "bad", "long", "bad"] * 2
SETS = [["good"], ["bad"], ["good", "long"], []] * 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    path = tmp_path_factory.mktemp("start") / "model"
    return write_tiny_model(path, "good", "bad", num_hidden_layers=1, **no_dropout)


def start(folder, problem_type="single_label") -> BertClassifier:
    keras.utils.set_random_seed(3)
    model = BertClassifier.from_pretrained(folder, labels=LABELS, problem_type=problem_type)
    model.compile(keras.optimizers.SGD(0.0))
    return model


def fit(model, y, **options) -> float:
    """Returns the loss of an epoch that changes nothing."""
    return model.fit(TEXTS, y, batch_size=len(TEXTS), verbose=0, **options).history["loss"][0]


@pytest.mark.slow
def test_classes(folder):
    model = start(folder)
    logits = model.predict(TEXTS, verbose=0)
    ids = np.array([LABELS.index(name) for name in NAMES])
    plain = float(np.mean(class_losses(logits, ids)))
    assert fit(model, NAMES) == pytest.approx(plain, rel=1e-5)
    options = {"label_smoothing": 0.2, "focal_gamma": 2.0}
    expected = float(np.mean(class_losses(logits, ids, **options)))
    assert abs(expected - plain) > 0.1
    assert fit(model, NAMES, **options) == pytest.approx(expected, rel=1e-5)
    # Evaluations, and the next `fit` without these options, have the plain loss.
    assert model.evaluate(TEXTS, NAMES, verbose=0) == pytest.approx(plain, rel=1e-5)
    assert fit(model, NAMES) == pytest.approx(plain, rel=1e-5)


@pytest.mark.slow
def test_several_labels_and_their_weights(folder):
    model = start(folder, "multi_label")
    logits = model.predict(TEXTS, verbose=0)
    rows = np.array([[name in chosen for name in LABELS] for chosen in SETS], int)
    # Of 8 examples, 2 are bad, 4 good and 2 long.
    for given, weights in (("balanced", [3, 1, 3]), ({"long": 5.0}, [1, 1, 5])):
        expected = float(np.mean(several_losses(logits, rows, pos_weight=weights)))
        assert fit(model, SETS, class_weight=given) == pytest.approx(expected, rel=1e-5)
    expected = float(np.mean(several_losses(logits, rows, 0.2, 1.5)))
    found = fit(model, SETS, label_smoothing=0.2, focal_gamma=1.5)
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_a_model_compiled_by_default_is_traced_for_each_loss(folder):
    keras.utils.set_random_seed(3)
    model = BertClassifier.from_pretrained(folder, labels=LABELS)
    logits = model.predict(TEXTS, verbose=0)
    ids = np.array([LABELS.index(name) for name in NAMES])
    for options in ({}, {"focal_gamma": 2.0}, {}):
        expected = float(np.mean(class_losses(logits, ids, **options)))
        found = fit(model, NAMES, learning_rate=1e-30, epochs=1, **options)
        assert found == pytest.approx(expected, rel=1e-4)


def test_words(folder):
    model = BertTokenClassifier.from_pretrained(folder, labels=["O", "X"])
    model.compile(keras.optimizers.SGD(0.0))
    words, tags = [["good", "bad"], ["bad", "a"]], [["X", "O"], ["O", "O"]]
    logits = np.concatenate([rows[:2] for rows in model.predict(words, verbose=0)])
    ids = np.array([1, 0, 0, 0])
    options = {"label_smoothing": 0.2, "focal_gamma": 2.0}
    expected = float(np.mean(class_losses(logits, ids, **options)))
    found = model.fit(words, tags, verbose=0, **options).history["loss"][0]
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_choices(folder):
    """Of each question the classes are its choices."""
    model = BertMultipleChoice.from_pretrained(folder, new_head=True)
    model.compile(keras.optimizers.SGD(0.0))
    asked = ["good a", "bad c"], [["a b", "c", "d e"], ["bad", "good f", "e"]]
    scores = model.predict(asked, verbose=0).astype(np.float64)  # [2, 3]
    right = [2, 0]
    chances = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    targets = 0.8 * np.eye(3)[right] + 0.2 / 3
    expected = np.mean(np.sum(targets * (1 - chances) ** 2 * -np.log(chances), axis=-1))
    plain = np.mean(-np.log(chances[[0, 1], right]))
    assert abs(expected - plain) > 0.1
    options = {"label_smoothing": 0.2, "focal_gamma": 2.0}
    found = model.fit(asked, right, verbose=0, **options).history["loss"][0]
    assert found == pytest.approx(expected, rel=1e-5)
    assert model.evaluate(asked, right, verbose=0) == pytest.approx(plain, rel=1e-5)
    # A weight of a class would be one of a position.
    with pytest.raises(ValueError, match="class_weight"):
        model.fit(asked, right, class_weight={0: 2.0})


def test_losses_that_are_refused(folder):
    model = start(folder)
    with pytest.raises(ValueError, match="label_smoothing"):
        fit(model, NAMES, label_smoothing=1.5)
    with pytest.raises(ValueError, match="focal_gamma"):
        fit(model, NAMES, focal_gamma=-1.0)
    model.compile("sgd", "sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="compile"):
        fit(model, NAMES, focal_gamma=2.0)
    number = BertClassifier.from_pretrained(folder, num_labels=1)
    for name in ("label_smoothing", "focal_gamma"):
        with pytest.raises(ValueError, match=name):
            fit(number, [0.5] * len(TEXTS), **{name: 0.5})
    with pytest.raises(ValueError, match="focal_gamma"):
        BertEmbedder.from_pretrained(folder).fit(TEXTS, TEXTS, focal_gamma=2.0)
    with pytest.raises(ValueError, match="class_weight"):
        fit(start(folder, "multi_label"), SETS, class_weight="balance")


@pytest.mark.parametrize("labels", [["Joy", "joy"], ["caf\xe9", "cafe\u0301"], ["ß", "SS"]])
def test_labels_equal_but_for_case_or_normal_form_are_refused(folder, labels):
    with pytest.raises(ValueError) as caught:
        BertClassifier.from_pretrained(folder, labels=labels)
    assert all(ascii(label) in str(caught.value) for label in labels)
