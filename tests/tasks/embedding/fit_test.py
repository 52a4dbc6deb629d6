"""`BertEmbedder.fit`: the examples, batches and losses of `run_retriever`, in Keras' loop."""

import csv

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.token_vectors import TokenVectors
from bert_tf.config.pooled_layers import DenseStep
from bert_tf.tasks.embedding.examples import read_embedding_columns
from bert_tf.training.metrics_log import read_metrics
from tests.fine_tune import fine_tune
from tests.float_bounds import OTHER_FRAMEWORK, assert_close, close_to
from tests.run_retriever_test import COLBERT, PROGRAM, flags_of, folder  # noqa: F401

SEED = 12345  # the default of --random_seed
STEPS = 4


def columns(path):
    """Returns the columns of a table of triplets or scored pairs, and the numbers if any."""
    with path.open(encoding="utf8") as file:
        rows = list(csv.DictReader(file))
    numbers = [name for name in rows[0] if name in ("margin", "score")]
    texts = tuple([row[name] for row in rows] for name in rows[0] if name not in numbers)
    return texts, [float(row[numbers[0]]) for row in rows] if numbers else None


@pytest.fixture
def same_order(monkeypatch):
    """Gives `fit` the order of the program's batches."""
    monkeypatch.setattr(np.random, "randint", lambda *_, **__: SEED)


@pytest.fixture(scope="module", autouse=True)
def tokens(folder):  # noqa: F811
    """A model of late interaction without dropout, whose folder is `tokens`."""
    source = read_checkpoint(folder / "still")
    embedding = EmbeddingConfig(
        dense=(DenseStep(source.config.hidden_size, 8, use_bias=False, activation="linear"),),
        normalize=True,
        max_seq_length=16,
        similarity="maxsim",
        tokens=TokenVectors(query_length=12, expansion_length=12),
    )
    model = bert_tf.BertLateInteraction(source.config, embedding, source.vocab)
    model.save_pretrained(folder / "tokens")
    return model


def fit_losses(model, x, y, **options):
    """Returns the loss of each of the first steps."""
    given = {"batch_size": 8, "epochs": STEPS, "steps_per_epoch": 1, "verbose": 0}
    return model.fit(x, y, **given, **options).history["loss"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "table, loss, flags, settings",
    [
        ("triplets", "", {}, {}),
        ("triplets", "symmetric", {}, {"loss_scale_factor": 5.0, "num_negatives": 0}),
        ("triplets", "triplet", {}, {"triplet_margin": 0.5, "triplet_distance": "cosine"}),
        ("margins", "", {}, {}),
        ("scored", "", {}, {}),
        ("scored", "cosine", {}, {}),
        (
            "triplets",
            "in_batch",
            {"matryoshka_dims": "32,16", "matryoshka_weights": "1,0.5"},
            {"matryoshka_dims": [32, 16], "matryoshka_weights": [1, 0.5]},
        ),
        ("triplets", "", COLBERT, {}),
        (
            "triplets",
            "symmetric",
            {**COLBERT, "loss_scale_factor": 0.5},
            {"loss_scale_factor": 0.5},
        ),
        ("margins", "divergence", COLBERT, {}),
    ],
)
def test_losses_are_those_of_the_program(
    folder,  # noqa: F811
    tmp_path,
    same_order,
    table,
    loss,
    flags,
    settings,
):
    file = folder / f"{table}.csv"
    has_tokens = "embedding_type" in flags
    start = folder / ("tokens" if has_tokens else "still")
    given = flags_of(
        folder,
        tmp_path / "run",
        init_checkpoint=start,
        train_file=file,
        retrieval_loss=loss,
        optimizer="adamw",
        random_seed=SEED,
        **(flags or settings),
    )
    assert fine_tune(PROGRAM, **given) == 0
    expected = [line["loss"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert len(expected) == STEPS and len(set(expected)) == STEPS
    kind = bert_tf.BertLateInteraction if has_tokens else bert_tf.BertEmbedder
    model = kind.from_pretrained(start, max_seq_length=16)
    found = fit_losses(model, *columns(file), learning_rate=3e-3, loss=loss, **settings)
    assert_close(found, expected)
    trained = kind.from_pretrained(tmp_path / "run")
    texts = ["the cat eats grass", "what does the hen eat"]
    for vectors, wanted in zip(model.predict(texts), trained.predict(texts), strict=True):
        np.testing.assert_allclose(vectors, wanted, atol=1e-4)


def examples_of(x, y=None):
    """Returns the texts and scores of each example."""
    return [tuple(example)[:4] for example in read_embedding_columns(x, y)]


def test_columns_and_tuples_are_the_same_examples():
    first, second, third = ["a", "b"], ["c", "d"], ["e", "f"]
    pairs = [("a", "c", (), ()), ("b", "d", (), ())]
    assert examples_of((first, second)) == pairs
    assert examples_of([("a", "c"), ("b", "d")]) == pairs
    assert examples_of((np.array(first), tuple(second))) == pairs
    triplets = [("a", "c", ("e",), ()), ("b", "d", ("f",), ())]
    assert examples_of((first, second, third)) == triplets
    assert examples_of([("a", "c", "e"), ("b", "d", "f")]) == triplets
    several = examples_of((["a"], [["b", "c"]], [["d", "e"]]))
    assert several == [("a", "b", ("d", "e"), ()), ("a", "c", ("d", "e"), ())]
    assert examples_of((["a"], ["b"], ["c"], ["d"])) == [("a", "b", ("c", "d"), ())]
    assert examples_of([("a", "c"), ("b", "d")], [1, 0.5]) == [
        ("a", "c", (), (1.0,)),
        ("b", "d", (), (0.5,)),
    ]
    margins = examples_of((["a"], ["b"], [["c", "d"]]), [[1.0, 2.0]])
    assert margins == [("a", "b", ("c", "d"), (1.0, 2.0))]
    assert examples_of(["a", "b"]) == [("a", "a", (), ()), ("b", "b", (), ())]


@pytest.mark.parametrize(
    "x, y, named",
    [
        ((["a", "b"], ["c"]), None, "^x .* 1 .* 2 "),
        ((["a"], ["c"]), [1, 2], " 2 .* y .* 1 "),
        ((["a", "b"], ["c", ""]), None, r"x\[1\]: positive .*''"),
        ((["a", "b"], ["c", None]), None, r"x\[1\]: positive .*None"),
        ((["a", "b"], ["c", "d"]), [1, "high"], r"x\[1\]: score .*'high'"),
        ([("a", "b"), ("c",)], None, "^x .* 1, 2 "),
        ((["a"], ["b"], [["c", "d"]]), [1.0], r"x\[0\]: 1 .*score.* 2"),
        ((["a"], ["b"], ["a"]), None, r"x\[0\]: 'a' .*negative"),
        ("text", None, "^x .*'text'"),
    ],
)
def test_wrong_examples_are_named(x, y, named):
    with pytest.raises(ValueError, match=named):
        read_embedding_columns(x, y)


@pytest.fixture(scope="module")
def trained(folder):  # noqa: F811
    """A model that was trained on triplets, and its history."""
    model = bert_tf.BertEmbedder.from_pretrained(folder / "still", max_seq_length=16)
    x, _ = columns(folder / "triplets.csv")
    seen = []
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs))
    history = model.fit(
        x,
        batch_size=8,
        epochs=6,
        learning_rate=3e-3,
        validation_data=tuple(column[:10] for column in x),
        callbacks=[callback],
        verbose=0,
    )
    assert len(seen) == 6
    return model, history.history


@pytest.mark.slow
def test_it_learns_and_reports_accuracy_and_validation(trained, folder):  # noqa: F811
    model, history = trained
    assert set(history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert history["loss"][-1] < history["loss"][0]
    assert history["accuracy"][-1] > history["accuracy"][0]
    assert history["val_loss"][-1] < history["val_loss"][0]
    x, _ = columns(folder / "triplets.csv")
    few = tuple(column[:10] for column in x)
    loss, accuracy = model.evaluate(few, batch_size=8, verbose=0)
    assert loss == pytest.approx(history["val_loss"][-1], rel=1e-5)
    assert accuracy == pytest.approx(history["val_accuracy"][-1], rel=1e-5)
    pairs = few[:2]
    vectors = [model.encode(column) for column in pairs]
    vectors = [values / np.linalg.norm(values, axis=1, keepdims=True) for values in vectors]
    scores = 20.0 * vectors[0] @ vectors[1].T
    expected = np.mean(np.log(np.exp(scores).sum(axis=1)) - np.diag(scores))
    assert model.evaluate(pairs, verbose=0)[0] == close_to(expected, OTHER_FRAMEWORK)
    one = model.test_on_batch(pairs, return_dict=True)["loss"]
    assert one == pytest.approx(expected, rel=1e-4)


def test_wrong_settings_are_refused_before_training(trained, folder):  # noqa: F811
    model = bert_tf.BertEmbedder.from_pretrained(folder / "still", max_seq_length=16)
    pairs = (["the cat", "the dog"], ["eats", "honey"])
    for options, named in (
        ({"loss": "triplet"}, "triplet"),  # There are no negatives.
        ({"loss": "cosent"}, "cosent"),  # There are no scores.
        ({"loss": "denoising"}, "denoising"),
        ({"loss": "none"}, "'none'.*'in_batch'"),
        ({"triplet_margin": 1.0}, "triplet_margin"),
        ({"matryoshka_dims": [64]}, "matryoshka_dims"),
        ({"sample_weight": [1, 2]}, "sample_weight"),
    ):
        with pytest.raises(ValueError, match=named):
            model.fit(pairs, verbose=0, **options)
    with pytest.raises(ValueError, match="cosent"):  # The loss of the training examples.
        model.fit(pairs, [0.1, 0.9], validation_data=pairs, verbose=0)
    with pytest.raises(ValueError, match="dropout"):
        model.fit(["the cat", "the dog"], verbose=0)
    model.compile("adam", loss="mse")
    with pytest.raises(ValueError, match="compile.* loss=.in_batch"):
        model.fit(pairs, verbose=0)


def slow_results(model, x):
    """Returns loss and accuracy of triplets, from the score of each query with each document."""
    queries = model.encode_queries(x[0])
    documents = model.encode_documents([*x[1], *x[2]])
    scores = np.zeros([len(queries), len(documents)])
    for row, query in enumerate(queries):
        for column, document in enumerate(documents):
            scores[row, column] = (query @ document.T).max(axis=1).sum()
    losses = np.log(np.exp(scores).sum(axis=1)) - np.diag(scores)
    return losses.mean(), np.mean(scores.argmax(axis=1) == np.arange(len(queries)))


def test_the_loss_of_token_vectors_is_that_of_a_slow_twin(tokens, folder):  # noqa: F811
    # No text twice, so that they are one batch.
    x = tuple(column[:5] for column in columns(folder / "triplets.csv")[0])
    assert tokens.evaluate(x, verbose=0) == close_to(slow_results(tokens, x)[0], OTHER_FRAMEWORK)
    assert tokens.predict(["the cat"])[0].shape == (4, 8)
    for given, y, named in (
        ({"loss": "triplet"}, None, "triplet"),
        ({}, [1.0] * 5, "cosent"),
        ({"matryoshka_dims": [4]}, None, "matryoshka_dims"),
    ):
        with pytest.raises(ValueError, match=named):
            tokens.fit(x[:2] if y else x, y, **given)


def test_an_embedder_learns_late_interaction(folder):  # noqa: F811
    start = folder / "still"
    dense = bert_tf.BertEmbedder.from_pretrained(start)
    given = {"token_dimension": dense.config.hidden_size, "max_seq_length": 16}
    model = bert_tf.BertLateInteraction.from_pretrained(start, **given)
    # A layer of as many numbers changes nothing before it is trained.
    text = "the cat eats grass"
    row = dense.pack(text)
    ids = np.array([row.ids])
    inputs = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    vectors = dense.bert(inputs)["sequence_output"][0]
    (found,) = model.encode_documents([text])
    assert_close(found, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    x, _ = columns(folder / "triplets.csv")
    first, *_, last = fit_losses(model, x, None, learning_rate=3e-3)
    assert last < first
    small = bert_tf.BertLateInteraction.from_pretrained(start, token_dimension=8)
    assert small.encode_queries([text])[0].shape == (32, 8)
    own = bert_tf.BertLateInteraction.from_pretrained(folder / "tokens", token_dimension=128)
    assert own.dimension == 8  # Its layers are those of its folder.
    with pytest.raises(ValueError, match="token_dimension"):
        bert_tf.BertLateInteraction.from_pretrained(start, token_dimension=-1)
    with pytest.raises(ValueError, match="token_dimension"):
        bert_tf.BertLateInteraction.from_pretrained(start)


@pytest.mark.slow
def test_token_vectors_learn(tokens, folder):  # noqa: F811
    x, _ = columns(folder / "triplets.csv")
    few = tuple(column[:5] for column in x)
    options = {"batch_size": 8, "epochs": 4, "learning_rate": 3e-3, "verbose": 0}
    history = tokens.fit(x, validation_data=few, **options).history
    assert history["loss"][-1] < history["loss"][0] and history["accuracy"][-1] > 1 / 8
    loss, accuracy = slow_results(tokens, few)
    assert history["val_loss"][-1] == close_to(loss, OTHER_FRAMEWORK)
    assert history["val_accuracy"][-1] == pytest.approx(accuracy)


@pytest.mark.slow
def test_its_own_optimizer_and_another_loss_later(folder):  # noqa: F811
    model = bert_tf.BertEmbedder.from_pretrained(folder / "still", max_seq_length=16)
    model.compile(bert_tf.AdamW(1e-9))
    x, _ = columns(folder / "triplets.csv")
    losses = [
        model.fit(x, batch_size=24, epochs=1, verbose=0, shuffle=False, loss=loss).history["loss"][
            0
        ]
        for loss in ("in_batch", "triplet", "in_batch")
    ]
    assert losses[0] == pytest.approx(losses[2], rel=1e-5)
    assert losses[1] != pytest.approx(losses[0], rel=0.01)
    split = model.fit(x, batch_size=8, verbose=0, validation_split=0.25).history
    assert "val_loss" in split
