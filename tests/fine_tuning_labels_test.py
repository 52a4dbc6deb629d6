"""Heads whose labels stand in another order or spelling than the task's."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.tasks.base.models.label_order import label_order, spelled_as, with_labels
from bert_tf.tasks.base.programs.teacher import check_labels
from bert_tf.text.vocab import Vocab
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.fine_tune import WORDS, fine_tune, log_of, read_results, read_tsv, refuse, write_table
from tests.float_bounds import close_to
from tests.tiny_model import tiny_words

GLUE = ("contradiction", "entailment", "neutral")
OTHERS = {
    "upper case": (("CONTRADICTION", "NEUTRAL", "ENTAILMENT"), [0, 2, 1]),
    "another order": (("entailment", "neutral", "contradiction"), [1, 2, 0]),
    "the task's": (GLUE, [0, 1, 2]),
}
HEADER = "index\tpromptID\tpairID\tgenre\tb1\tb2\tp1\tp2\tsentence1\tsentence2\tgold_label"


def make_head() -> Checkpoint:
    """Makes a classifier with a head that tells texts apart, labels in GLUE's order."""
    tokens = tiny_words(*WORDS)
    made = make_checkpoint(
        "classifier",
        7,
        vocab_size=len(tokens),
        hidden_size=16,
        num_attention_heads=4,
        num_hidden_layers=1,
        max_position_embeddings=32,
        type_vocab_size=2,
        hidden_act="gelu_exact",
        do_lower_case=True,
    )
    return dataclasses.replace(made, vocab=Vocab(tokens), labels=GLUE, problem_type="single_label")


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory) -> pathlib.Path:
    """MNLI's dev sets, and the same model with its labels in several orders and spellings."""
    folder = tmp_path_factory.mktemp("labels")
    (folder / "MNLI").mkdir()
    for split in ("dev_matched", "dev_mismatched"):
        rows = [
            [str(n), "p", "q", "g", *"1234", "the film", WORDS[n % 8], GLUE[n % 3]]
            for n in range(24)
        ]
        lines = [HEADER, *map("\t".join, rows)]
        (folder / "MNLI" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    table = [{"text": f"the film {WORDS[n % 8]}", "label": GLUE[n % 3]} for n in range(24)]
    write_table(folder / "dev.csv", table)
    made = make_head()
    for name, (labels, order) in OTHERS.items():
        write_checkpoint(with_labels(made, labels, order), folder / name, "huggingface")
    return folder


def evaluate(folder: pathlib.Path, model: str, output: pathlib.Path, **values) -> dict[str, float]:
    flags = {
        "do_eval": "true",
        "do_train": "false",
        "init_checkpoint": folder / model,
        "output_dir": output,
        "data_dir": folder,
        "task_name": "MNLI",
        **values,
    }
    assert fine_tune("run_classifier", **flags) == 0
    return read_results(output)


def test_orders_and_spellings_of_labels():
    for labels, order in OTHERS.values():
        inverse = [order.index(index) for index in range(3)]
        assert label_order(labels, GLUE) == inverse
    assert label_order(("a", "b"), ("a", "c")) is None
    assert label_order(("a", "A"), ("A", "a")) == [1, 0]  # Two labels.
    assert label_order(("a", "A"), ("a", "b")) is None
    assert label_order(("not-entailment", "Entailment"), ("entailment", "not_entailment")) == [1, 0]
    assert label_order((), ()) == []
    assert spelled_as(("YES", "NO"), ["no", "yes"]) == ("yes", "no")
    assert spelled_as(("YES", "NO", "MAYBE"), ["no"]) == ("YES", "no", "MAYBE")
    assert spelled_as(("YES", "NO"), ["no", "No"]) == ("YES", "NO")
    assert spelled_as(("YES", "NO"), ["never"]) == ("YES", "NO")


def test_rows_of_the_head_move_with_their_labels():
    made = make_head()
    labels, order = OTHERS["upper case"]
    moved = with_labels(made, labels, order)
    for index, label in enumerate(labels):
        before = GLUE.index(label.lower())
        for name in ("cls/classifier/output_weights", "cls/classifier/output_bias"):
            np.testing.assert_array_equal(moved.weights[name][index], made.weights[name][before])
    assert moved.weights.keys() == made.weights.keys() and moved.labels == labels


@pytest.mark.slow
def test_a_head_with_the_labels_of_the_task_in_another_order(folder, tmp_path):
    expected = evaluate(folder, "the task's", tmp_path / "first")
    assert 0 < expected["eval_accuracy"] < 1  # So that another order would show.
    for model in ("upper case", "another order"):
        assert evaluate(folder, model, tmp_path / model) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_labels_of_a_table_in_another_case(folder, tmp_path):
    table = {"task_name": "", "eval_file": folder / "dev.csv", "problem_type": "single_label"}
    table |= {"do_predict": "true", "predict_file": folder / "dev.csv"}
    expected = evaluate(folder, "the task's", tmp_path / "first", **table)
    received = evaluate(folder, "upper case", tmp_path / "second", **table)
    assert received == close_to(expected)
    rows = [read_tsv(tmp_path / name / "predictions.tsv") for name in ("first", "second")]
    assert [row["answer"] for row in rows[0]] == [row["answer"] for row in rows[1]]


@pytest.mark.slow
def test_training_goes_on_with_the_head(folder, tmp_path, caplog):
    flags = {
        "do_train": "true",
        "do_eval": "true",
        "num_train_steps": 1,
        "learning_rate": 1e-9,
        "train_file": folder / "dev.csv",
        "eval_file": folder / "dev.csv",
    }
    losses = []
    for model in ("the task's", "upper case"):
        run = {**flags, "init_checkpoint": folder / model, "output_dir": tmp_path / model}
        log_of(caplog, "run_classifier", **run)
        losses.append(read_results(tmp_path / model)["eval_loss"])
        assert read_checkpoint(tmp_path / model).labels == GLUE
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.slow
def test_a_head_without_names(folder, tmp_path):
    made = dataclasses.replace(make_head(), labels=())
    write_checkpoint(made, tmp_path / "nameless", "huggingface")
    values = json.loads((tmp_path / "nameless" / "config.json").read_text())
    assert values["id2label"]["0"] == "LABEL_0"
    flags = {
        "do_eval": "true",
        "init_checkpoint": tmp_path / "nameless",
        "output_dir": tmp_path / "run",
        "data_dir": folder,
        "task_name": "MNLI",
    }
    assert "id2label" in refuse("run_classifier", **flags)
    nameless = read_checkpoint(tmp_path / "nameless")
    with pytest.raises(ValueError, match="id2label"):
        check_labels(nameless, GLUE)
    assert check_labels(nameless, ("0", "1", "2")) == [0, 1, 2]
    assert check_labels(make_head(), OTHERS["upper case"][0]) == [0, 2, 1]
