"""Rerankers give the same scores and the same order by every road."""

import numpy as np
import pytest

import bert_tf
from bert_tf.metrics.trec import read_run
from tests.export.made_models import ODD_TEXT, TEXTS, write_model
from tests.fine_tune import fine_tune, read_tsv, write_table
from tests.roads.roads import (
    check_roads,
    largest_difference,
    lite_file,
    load_onnx,
    load_saved_model,
    rest_rows,
    saved_model,
)

QUERY = "the river w40"
DOCUMENTS = [*TEXTS, "the river", ODD_TEXT]


def make_run(folder, loss, is_multilingual=False):
    """Writes a checkpoint with the record of a run of run_reranker."""
    run = {"ranking_loss": loss, "max_seq_length": "24"}
    return write_model(folder, "reranker", run, is_multilingual, num_hidden_layers=1)


@pytest.mark.parametrize(
    ("loss", "is_multilingual"),
    [
        pytest.param("bce", False, marks=pytest.mark.slow),
        pytest.param("lambda", False, marks=pytest.mark.slow),
        pytest.param("bce", True, marks=pytest.mark.slow),
    ],
)
def test_answers_are_the_same(tmp_path, record_property, loss, is_multilingual):
    folder = make_run(tmp_path / "run", loss, is_multilingual)
    model = bert_tf.BertReranker.from_pretrained(folder)
    assert model.activation == ("sigmoid" if loss == "bce" else "identity")
    assert model.max_seq_length == 24
    model.save(tmp_path / "model.keras")
    model.save_pretrained(tmp_path / "cross_encoder")
    version = saved_model(folder, tmp_path)
    predictors = {
        "run": bert_tf.load(folder),
        "keras": bert_tf.load(tmp_path / "model.keras"),
        "CrossEncoder": bert_tf.load(tmp_path / "cross_encoder"),
        "SavedModel": load_saved_model(version),
        "LiteRT": bert_tf.load(lite_file(folder, tmp_path)),
        **load_onnx(folder, tmp_path),
    }
    pairs = [(query, text) for text in DOCUMENTS for query in (QUERY, "b")]
    columns = ([query for query, _ in pairs], [text for _, text in pairs])

    def ask(answers):
        return answers.score(pairs), answers.score(columns), answers.rank(QUERY, DOCUMENTS)

    expected = ask(model)
    assert [row["document"] for row in expected[2]] == [
        DOCUMENTS[row["index"]] for row in expected[2]
    ]
    assert expected[0] == expected[1]
    check_roads(expected, predictors, ask, record_property)
    for predictor in predictors.values():
        assert predictor.kind == "reranker" and predictor.inputs == ("query", "documents")
        assert predictor.rank(QUERY, []) == [] and predictor.score([]) == []
        with pytest.raises(ValueError, match="documents"):
            predictor.rank(QUERY, "the river")
        with pytest.raises(ValueError, match="encode"):
            predictor.encode(["a text"])
        with pytest.raises(AttributeError, match="BertReranker"):
            predictor.fit(pairs, [1, 0])

    # "" stands for no document in a request; a blank text is one without words.
    documents = [text or " " for text in DOCUMENTS]
    (row,) = rest_rows(version, {"query": [QUERY], "documents": [documents]})
    assert row["order"] == [answer["index"] for answer in expected[2]]
    scores = [row["scores"][index] for index in row["order"]]
    assert largest_difference([answer["score"] for answer in expected[2]], scores) < 1e-5


@pytest.mark.parametrize("is_multilingual", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_program_writes_the_same_order(tmp_path, is_multilingual):
    """The run and the table that run_reranker predicts hold the unnormalised scores."""
    folder = make_run(tmp_path / "run", "bce", is_multilingual)
    documents = [text for text in DOCUMENTS if text.strip()]
    table = write_table(tmp_path / "dev.jsonl", [{"query": QUERY, "documents": documents}])
    given = {"do_predict": "true", "init_checkpoint": folder, "predict_file": table}
    out = tmp_path / "out"
    assert fine_tune("run_reranker", output_dir=out, max_seq_length=24, **given) == 0
    model = bert_tf.BertReranker.from_pretrained(folder)
    logits = model.predict([(QUERY, text) for text in documents])
    run = read_run(out / "predictions.run")["1"]
    found = np.array([run[str(number)] for number in range(1, len(documents) + 1)])
    np.testing.assert_allclose(found, logits, atol=1e-5)
    ranked = [row["document"] for row in model.rank(QUERY, documents)]
    assert [row["score"] for row in read_tsv(out / "predictions.tsv")] == [
        f"{logits[documents.index(text)]:.6f}" for text in ranked
    ]
