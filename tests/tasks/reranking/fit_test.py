"""`BertReranker.fit`: the examples, rows and losses of `run_reranker`, in Keras' loop."""

import json

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.tasks.reranking.examples import read_ranking, read_ranking_columns
from tests.fine_tune import write_table
from tests.float_bounds import assert_close
from tests.run_reranker_test import WORDS, make_rows
from tests.tiny_model import write_tiny_model

SEED = 12345
STEPS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model without dropout, and tables."""
    path = tmp_path_factory.mktemp("reranker")
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    write_tiny_model(path / "model", *WORDS, "good", "bad", **still)
    write_table(path / "train.jsonl", make_rows(1, 64))
    write_table(path / "dev.jsonl", make_rows(2, 20))
    return path


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()]


def lists_of(rows):
    """Returns queries, lists of documents and lists of labels."""
    documents = [[row["positive"], *row["negatives"]] for row in rows]
    labels = [[1, *[0] * len(row["negatives"])] for row in rows]
    return [row["query"] for row in rows], documents, labels


def test_columns_are_read_as_tables_are(tmp_path):
    rows = make_rows(3, 8)
    queries, documents, labels = lists_of(rows)
    bare = [{name: row[name] for name in row if name != "scores"} for row in rows]
    table = read_ranking(str(write_table(tmp_path / "lists.jsonl", bare)))
    lists = read_ranking_columns((queries, documents), labels)
    columns = ("query", "positive", "negatives")
    groups = read_ranking_columns(tuple([row[name] for row in rows] for name in columns))
    names = [f"q{number} {row['query']}" for number, row in enumerate(rows)]
    cells = zip(names, documents, labels, strict=True)
    flat = [(q, d, y) for q, texts, ys in cells for d, y in zip(texts, ys, strict=True)]
    pairs = read_ranking_columns([(q, d) for q, d, _ in flat], [y for *_, y in flat])
    for found in (lists, groups):
        assert [example[1:] for example in found] == [example[1:] for example in table]
    assert [example[2:] for example in pairs] == [example[2:] for example in table]
    (scored,) = read_ranking_columns((["a"], ["b"], ["c"]), [[3.0, -1.0]])
    assert scored.scores == (3.0, -1.0) and scored.labels == (1.0, 0.0)


@pytest.mark.parametrize(
    "x, y, named",
    [
        ((["a"], ["b"]), None, "^y .*labels"),
        ((["a"], ["b", "c"]), [1], "^x .* 1 .* 2 "),
        ((["a", "b"], ["b", "c"]), [1], " 1 .* y .* 2 "),
        ((["a"], [["b", "c"]]), [[1]], r"x\[0\]: 2 .* 1 labels"),
        ((["a", "b"], ["c", ""]), [1, 0], r"x\[1\]: document .*''"),
        ((["a", "b"], ["c", "d"]), [1, "high"], r"x\[1\]: label .*'high'"),
        ((["a"], ["b"], ["b"]), None, r"x\[0\]: 'b' .*negative"),
        (["a", "b"], [1, 0], r"^x .*\(queries, documents\)"),
    ],
)
def test_wrong_examples_are_named(x, y, named):
    with pytest.raises(ValueError, match=named):
        read_ranking_columns(x, y)


@pytest.fixture(scope="module")
def trained(folder):
    model = bert_tf.BertReranker.from_pretrained(folder / "model", max_seq_length=16, new_head=True)
    queries, documents, labels = lists_of(read_lines(folder / "train.jsonl"))
    few = lists_of(read_lines(folder / "dev.jsonl"))
    history = model.fit(
        (queries, documents),
        labels,
        loss="lambda",
        batch_size=16,
        epochs=12,
        learning_rate=3e-3,
        validation_data=(few[:2], few[2]),
        verbose=0,
    )
    return model, history.history, few


@pytest.mark.slow
def test_it_learns_the_order(trained):
    model, history, (queries, documents, labels) = trained
    assert history["loss"][-1] < history["loss"][0] / 2
    assert history["val_loss"][-1] < history["val_loss"][0] / 2
    loss = model.evaluate((queries, documents), labels, batch_size=16, verbose=0)
    assert loss == pytest.approx(history["val_loss"][-1], rel=1e-4)
    firsts = [model.rank(*pair)[0]["index"] for pair in zip(queries, documents, strict=True)]
    assert np.mean(np.array(firsts) == 0) > 0.9
    assert model.activation == "identity"


@pytest.mark.slow
def test_a_trained_model_leaves_python(trained, tmp_path):
    model, _, (queries, documents, _) = trained
    expected = model.rank(queries[0], documents[0])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.rank(queries[0], documents[0]) == expected
    model.save_pretrained(tmp_path / "folder")
    again = bert_tf.BertReranker.from_pretrained(tmp_path / "folder")
    assert again.rank(queries[0], documents[0]) == expected
    assert (again.activation, again.max_seq_length) == ("identity", 16)
    model.export(tmp_path / "served")
    served = bert_tf.load(tmp_path / "served").rank(queries[0], documents[0])
    assert [row["index"] for row in served] == [row["index"] for row in expected]
    scores = [[row["score"] for row in rows] for rows in (served, expected)]
    assert_close(*scores)


def test_wrong_settings_and_heads_are_refused(folder, tmp_path):
    path = folder / "model"
    with pytest.raises(ValueError, match="new_head"):
        bert_tf.BertReranker.from_pretrained(path)
    classes = bert_tf.BertClassifier.from_pretrained(path, labels=["a", "b"])
    classes.save(tmp_path / "classes.keras")
    with pytest.raises(ValueError, match=r"classes.keras .* 2 labels"):
        bert_tf.BertReranker.from_pretrained(tmp_path / "classes.keras")
    model = bert_tf.BertReranker.from_pretrained(path, max_seq_length=16, new_head=True)
    pairs = (["boat", "mill"], ["boat good", "boat bad"])
    for options, named in (
        ({"loss": "margin_mse"}, "margin_mse"),
        ({"loss": "none"}, "'none'.*'margin_mse'"),
        (
            {"loss": "listnet"},
            "--ranking_loss=listnet: .*query",
        ),  # Each query has a single document.
        ({"lambda_k": 3}, "lambda_k"),
        ({"sample_weight": [1, 2]}, "sample_weight"),
    ):
        with pytest.raises(ValueError, match=named):
            model.fit(pairs, [1, 0], verbose=0, **options)
    with pytest.raises(ValueError, match=r"x\[0\] .*labels .*3.0.* bce "):
        model.fit(pairs, [3, 0], verbose=0)
    bare = bert_tf.BertReranker.from_pretrained(path, preprocessor=None, new_head=True)
    with pytest.raises(ValueError, match="preprocessor"):
        bare.rank("boat", ["mill"])
