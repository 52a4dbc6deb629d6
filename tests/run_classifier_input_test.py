"""What is wrong with tables and labels is named with its place; what is odd is counted."""

import logging
import re

import pytest

from bert_tf.training.metrics_log import read_metrics
from tests.fine_tune import (
    FLAGS,
    fine_tune,
    read_results,
    read_tsv,
    refuse,
    texts,
    write_folder,
    write_table,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("input"))


def flags_of(folder, **changed):
    return {
        **FLAGS,
        "do_train": "true",
        "do_eval": "true",
        "num_train_steps": 2,
        "init_checkpoint": folder / "model",
        "train_file": folder / "train.csv",
        "eval_file": folder / "dev.csv",
        "output_dir": folder / "run",
        **changed,
    }


GOOD = "text,label\nthe film,pos\n"


@pytest.mark.parametrize(
    ("name", "content", "changed", "expected"),
    [
        ("x.csv", "text,label\na,pos\nb,\n", {}, "x.csv line 3: .*--skip_unlabelled"),
        ("x.csv", "text,label\na,pos\nb,pos\n", {}, "'pos'"),
        ("x.tsv", GOOD.replace(",", "\t") + "a\tb\tneg\n", {}, "x.tsv line 3 .*3 columns"),
        ("x.csv", GOOD, {"text_column": "said"}, "--text_column .*'said',"),
        (
            "x.csv",
            GOOD,
            {"problem_type": "regression"},
            "x.csv line 2: .*'pos'; regression ",
        ),
        ("x.csv", 'text,label\na,"b\nc"\nd,e\n', {}, r"label 'b\\nc'"),
        ("x.csv", "text,label\ra,pos\rb,neg\r", {}, "tr '"),
        ("x.tsv", 'text\tlabel\n"a\nb"\tpos\n', {}, ".csv"),
        ("x.json", '{"text": {"0": "a"}, "label": {"0": "x"}}', {}, r"to_json\("),
        (
            "x.csv",
            'text,label\na,"[0, 1]"\nb,"[1, 0]"\n',
            {"problem_type": "multi_label"},
            "--label_column=",
        ),
        ("x.csv", b"text,label\n\xff,pos\n", {}, r"x.csv line 2: .*b'\\xff' .*UTF-8"),
        (
            "x.csv",
            GOOD + "b,neg\n",
            {"class_weights": "pso=2"},
            "--class_weights: .*'pso=2'",
        ),
        ("x.csv", "text,label\na,Joy\nb,joy\n", {}, "'Joy'"),
        (
            "x.csv",
            "text,label\na,1\nb,2\n",
            {"problem_type": "regression", "class_weights": "balanced"},
            "--class_weights=balanced",
        ),
    ],
)
def test_bad_tables(folder, tmp_path, name, content, changed, expected):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    flags = {"train_file": path, "output_dir": tmp_path / "run", "do_eval": "false", **changed}
    message = refuse("run_classifier", **flags_of(folder, **flags))
    assert re.search(expected, message)
    assert not (tmp_path / "run/run.flags").exists() and not (tmp_path / "run/labels.txt").exists()


def test_a_label_that_training_lacks(folder):
    rows = [{"text": "the film", "label": label} for label in ("pos", "odd", "odd")]
    table = write_table(folder / "unknown.csv", rows)
    message = refuse("run_classifier", **flags_of(folder, eval_file=table))
    assert re.search(f"^{table} line 3: .*'odd' .*'neg', 'pos', 'so-so'; 2 of 3 ", message)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"task_name": "glue"}, "cola, sst-2"),
        ({"task_name": "rte", "data_dir": ""}, "--task_name=rte .*--data_dir"),
        ({"task_name": "rte"}, "RTE"),
        ({"task_name": "ax"}, r"\['test'\]"),
        ({"task_name": "rte", "train_file": "x.csv"}, "--train_file=x.csv"),
        ({"task_name": "rte", "predict_file": "x"}, "--predict_file=x"),
        ({"task_name": "rte", "text_column": "said"}, "--text_column=said"),
        (
            {
                "task_name": "rte",
                "do_train": "false",
                "eval_file": "x",
                "problem_type": "multi_label",
            },
            "--problem_type=multi_label",
        ),
    ],
)
def test_tasks_that_cannot_be_read(folder, changed, expected):
    flags = {"data_dir": folder, "eval_file": "", "train_file": "", **changed}
    assert re.search(expected, refuse("run_classifier", **flags_of(folder, **flags)))


@pytest.mark.slow
def test_empty_and_endless_texts_are_counted(folder, caplog):
    rows = texts(6) + [{"text": "", "label": "pos"}, {"text": "very " * 100_000, "label": "neg"}]
    table = write_table(folder / "odd.csv", rows)
    flags = {"train_file": table, "eval_file": table, "predict_file": table}
    with caplog.at_level(logging.INFO, logger="absl"):
        flags |= {"do_predict": "true", "output_dir": folder / "odd", "train_batch_size": 4}
        assert fine_tune("run_classifier", **flags_of(folder, **flags)) == 0
    lines = [record.getMessage() for record in caplog.records]
    assert any("train: 8 examples; labels: neg 3, pos 3, so-so 2" in line for line in lines)
    assert any("1 of 8 texts are empty" in line for line in lines)
    cut = [line for line in lines if re.search(r"1 of 8 .*max_seq_length=16 .*100,002", line)]
    assert len(cut) == 2
    assert len(read_tsv(folder / "odd/predictions.tsv")) == 8
    assert len(read_metrics(folder / "odd/metrics.jsonl")) == 2


def test_columns_that_are_swapped(folder):
    """160 questions are no 160 classes; 20 classes of one example each may be."""
    rows = [{"text": f"{n % 6}", "label": f"what is {n}?"} for n in range(160)]
    message = refuse(
        "run_classifier", **flags_of(folder, train_file=write_table(folder / "swapped.csv", rows))
    )
    assert re.search(r"--train_file: 160 .*160 labels, .*'what is 0\?'", message)
    assert re.search("--text_column .*'text' .*--label_column .*'label'", message)
    assert "--problem_type=regression" in message
    table = write_table(folder / "few.csv", rows[:20])
    message = refuse("run_classifier", **flags_of(folder, train_file=table))
    assert "dev.csv line 2: label 'pos'" in message  # of dev.csv: nothing else is wrong


@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_the_run(folder):
    flags = {"learning_rate": 1e30, "num_train_steps": 40, "output_dir": folder / "lost"}
    message = refuse("run_classifier", **flags_of(folder, **flags, clip_norm=0))
    assert re.search(r"^loss, .* step \d+ .*--learning_rate", message)
    assert not list((folder / "lost").glob("model.ckpt-*"))


@pytest.mark.slow
def test_columns_of_decisions_are_labels(folder, tmp_path):
    table = tmp_path / "toxic.csv"
    rows = [f"the film was {word},{int(word == 'bad')},0" for word in ("good", "bad") * 4]
    table.write_text("\n".join(["comment_text,toxic,threat", *rows, "the film,-1,-1"]) + "\n")
    flags = {
        "train_file": table,
        "eval_file": table,
        "output_dir": tmp_path / "run",
        "text_column": "comment_text",
        "label_column": "toxic,threat",
        "problem_type": "multi_label",
    }
    assert "toxic.csv line 10" in refuse("run_classifier", **flags_of(folder, **flags))
    flags["skip_unlabelled"] = "true"
    assert fine_tune("run_classifier", **flags_of(folder, **flags)) == 0
    assert (tmp_path / "run/labels.txt").read_text() == "toxic\nthreat\n"
    assert read_results(tmp_path / "run")["eval_accuracy"] >= 0
