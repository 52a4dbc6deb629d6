"""Reranking as a user runs it: lists and BEIR folders in; runs, measures and CrossEncoders out.

A document with one word is relevant, so that a model of 2 layers learns it.
"""

import random
import re

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

import bert_tf.run_reranker  # noqa: F401  Its flags.
from bert_tf.checkpoints.cross_encoder import read_cross_encoder
from bert_tf.config.ranking_config import RerankerConfig
from bert_tf.metrics.trec import read_run, write_run
from bert_tf.tasks.base.programs.program import read_configs
from bert_tf.tasks.reranking.model import BertReranker
from bert_tf.training.memory import choose_micro_batches
from tests.fine_tune import (
    WHOLE_RUN,
    fine_tune,
    read_results,
    read_tsv,
    refuse,
    write_table,
)
from tests.tasks.embedding.beir_test import write as write_beir
from tests.tiny_model import write_tiny_model

WORDS = ("boat", "house", "water", "mill")
FLAGS = {**WHOLE_RUN, "num_train_steps": 60}


def make_rows(seed: int, count: int) -> list[dict]:
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        query, *others = draw.sample(WORDS, 4)
        row = {"query": query, "positive": f"{query} good"}
        row["negatives"] = [f"{word} bad" for word in others[: draw.randint(1, 3)]]
        row["scores"] = [4.0, *[-1.0] * len(row["negatives"])]
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("reranker"))


def write_files(path):
    """Writes a model and data into a folder; returns the folder."""
    write_tiny_model(path / "model", *WORDS, "good", "bad", num_hidden_layers=2)
    write_table(path / "train.jsonl", make_rows(1, 100))
    write_table(path / "dev.jsonl", make_rows(2, 20))
    return path


def flags_of(folder, output_dir, **changed):
    files = {
        "init_checkpoint": folder / "model",
        "train_file": folder / "train.jsonl",
        "eval_file": folder / "dev.jsonl",
        "predict_file": folder / "dev.jsonl",
        "output_dir": folder / output_dir,
    }
    return {**FLAGS, **files, **changed}


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["bce", "mse", "margin_mse", "listnet", "lambda"])
def test_every_loss_learns_the_order(folder, loss):
    run = folder / loss
    assert fine_tune("run_reranker", **flags_of(folder, run.name, ranking_loss=loss)) == 0
    assert read_results(run)["eval_ndcg@10"] > 0.95
    found = read_cross_encoder(run)
    assert found.activation == ("sigmoid" if loss == "bce" else "identity")
    assert found.max_seq_length == 16
    rows = make_rows(2, 20)
    model = BertReranker.from_pretrained(run)
    predicted = [row for row in read_tsv(run / "predictions.tsv") if row["query_id"] == "1"]
    documents = [rows[0]["positive"], *rows[0]["negatives"]]
    logits = model.pair_logits([rows[0]["query"]] * len(documents), documents, 32)
    expected = [documents[place] for place in np.argsort(-logits)]
    assert [row["document"] for row in predicted] == expected
    assert [float(row["score"]) for row in predicted] == pytest.approx(-np.sort(-logits), abs=1e-4)


@pytest.mark.slow
def test_the_documents_of_a_run_are_ranked_anew(folder, tmp_path):
    corpus = [
        {"_id": word, "text": f"{word} {'good' if word == 'mill' else 'bad'}"} for word in WORDS
    ]
    queries = [{"_id": f"q{word}", "text": word} for word in WORDS]
    judged = "".join(f"q{word}\tmill\t1\n" for word in WORDS)
    write_beir(tmp_path, corpus, queries, judged)
    (tmp_path / "qrels" / "train.tsv").write_text(judged)
    run = {f"q{query}": {word: float(word != "mill") for word in WORDS} for query in WORDS}
    write_run(tmp_path / "first.run", run)
    files = {"train_file": tmp_path, "eval_file": tmp_path, "predict_file": tmp_path}
    runs = {"train_run_file": tmp_path / "first.run", "eval_run_file": tmp_path / "first.run"}
    values = flags_of(folder, "beir", **files, **runs, ranking_loss="listnet")
    out = tmp_path / "cross-encoder"
    assert fine_tune("run_reranker", **values, cross_encoder_dir=out) == 0
    assert read_results(folder / "beir")["eval_mrr@10"] == 1
    found = read_run(folder / "beir" / "predictions.run")
    assert {max(scores, key=scores.get) for scores in found.values()} == {"mill"}
    pairs = [("boat", "boat boat"), ("boat", "mill mill")]
    ours, written = (BertReranker.from_pretrained(path) for path in (folder / "beir", out))
    assert ours.score(pairs) == written.score(pairs)
    assert written.activation == "identity" and written.max_seq_length == 16
    # The first two of the run are wrong ones.
    again = {**values, "do_train": "false", "rerank_k": 2, "do_predict": "false"}
    assert fine_tune("run_reranker", **again) == 0
    assert read_results(folder / "beir")["eval_mrr@10"] == 0
    message = refuse("run_reranker", **{**values, "train_run_file": ""})
    assert "--train_run_file" in message and "--split=train" in message


@pytest.mark.slow
def test_memory_is_estimated_for_all_documents_of_a_list(folder, monkeypatch):
    """Of lists of 4 an example has four times the bytes of a document."""
    found = {}
    for loss in ("bce", "listnet"):

        def choose(training, example_bytes, *rest, loss=loss):
            found[loss] = example_bytes
            return choose_micro_batches(training, example_bytes, *rest)

        monkeypatch.setattr("bert_tf.tasks.base.programs.defaults.choose_micro_batches", choose)
        values = {"num_train_steps": 1, "do_eval": "false", "do_predict": "false"}
        values = flags_of(folder, f"bytes-{loss}", ranking_loss=loss, **values)
        assert fine_tune("run_reranker", **values) == 0
    assert found["listnet"] == 4 * found["bce"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--do_eval"], 7),
        (["--do_eval", "--do_predict", "--predict_file=x"], 7),
        (["--do_predict", "--predict_file=x"], 100),
        (["--do_eval", "--do_predict", "--eval_file=x", "--predict_file=x"], 100),
    ],
)
def test_a_run_says_how_its_own_file_is_judged(tmp_path, given, expected):
    """Also where another file is predicted beside it, but not how others are."""
    (tmp_path / "run.flags").write_text("--eval_file=own\n--rerank_k=7\n")
    with flagsaver.flagsaver():
        flags.FLAGS(["", "--output_dir=out", f"--init_checkpoint={tmp_path}", *given])
        assert read_configs(RerankerConfig).task.rerank_k == expected


def test_bad_input_is_refused(folder, tmp_path):
    rows = make_rows(3, 4)
    del rows[2]["positive"]
    path = write_table(tmp_path / "bad.jsonl", rows)
    message = refuse("run_reranker", **flags_of(folder, "bad", train_file=path))
    assert "bad.jsonl line 3" in message
    path = write_table(tmp_path / "none.jsonl", [{"query": "a", "documents": ["b"], "labels": [0]}])
    message = refuse("run_reranker", **flags_of(folder, "bad", eval_file=path))
    assert re.search("none.jsonl line 1 .*document", message)
    message = refuse("run_reranker", **flags_of(folder, "bad", list_size=2))
    assert re.search(r"--list_size=2 .*--ranking_loss=bce", message)
    for name in ("train_run_file", "eval_run_file", "beir_split", "rerank_k"):
        message = refuse("run_reranker", **flags_of(folder, "bad", **{name: 7}))
        file = "train.jsonl" if name == "train_run_file" else "dev.jsonl"
        assert re.search(f"--{name}=7 .*{folder}/{file} ", message)
    assert not (folder / "bad" / "run.flags").exists()
