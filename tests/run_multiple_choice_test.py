"""Multiple choice as a user runs it: SWAG's CSV or JSONL in; answers, scores and accuracy out.

One verb tells the right ending, so that a model of one layer learns it.
"""

import dataclasses
import json
import random
import re

import numpy as np
import pytest

from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.tasks.multiple_choice.examples import ChoiceExample
from bert_tf.tasks.multiple_choice.features import ChoiceExamples
from bert_tf.tasks.multiple_choice.program import MultipleChoice
from bert_tf.training.metrics_log import read_metrics
from tests.fine_tune import (
    WHOLE_RUN,
    fine_tune,
    read_results,
    read_tsv,
    refuse,
    write_table,
)
from tests.float_bounds import close_to
from tests.tiny_model import write_tiny_model

WORDS = ("the", "boat", "house", "on", "water", "floats", "sinks", "burns", "falls", "slowly")
WRONG = ("sinks", "burns", "falls")
NUM_WRONG = 3  # labels of dev.csv
FLAGS = {**WHOLE_RUN, "max_seq_length": 24, "num_train_steps": 30}


def make_rows(seed, count):
    """Returns rows with SWAG's columns, the first without a name, as pandas writes them."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        label = draw.randrange(4)
        verbs = draw.sample(WRONG, 3)
        verbs.insert(label, "floats")
        endings = [f'{verb}, "{draw.choice(WORDS[:5])}".' for verb in verbs]
        row = {"": number, "video-id": "x", "startphrase": "y"}
        row |= {"sent1": f"On the {draw.choice(WORDS)}, slowly.", "sent2": "The boat"}
        row |= {f"ending{place}": ending for place, ending in enumerate(endings)}
        rows.append({**row, "label": label})
    return rows


def as_lists(rows):
    return [
        {
            "context": row["sent1"],
            "question": row["sent2"],
            "choices": [row[f"ending{place}"] for place in range(4)],
            "label": row["label"],
        }
        for row in rows
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("choice"))


def write_files(path):
    """Writes a model and data into a folder; returns the folder."""
    write_tiny_model(path / "model", *WORDS, num_hidden_layers=1)
    dev = make_rows(2, 41)
    write_table(path / "train.csv", make_rows(1, 150))
    for row in dev[5 : 5 + NUM_WRONG]:
        row["label"] = (row["label"] + 1) % 4
    write_table(path / "dev.csv", dev)
    write_table(path / "dev.jsonl", as_lists(dev))
    unlabelled = [{name: row[name] for name in row if name != "label"} for row in dev]
    write_table(path / "test.csv", unlabelled)
    write_table(path / "unknown.csv", [{**row, "label": -1} for row in dev])
    write_table(path / "alike.csv", [{**row, "label": 0} for row in dev])
    return path


def flags_of(folder, output_dir, **changed):
    files = {
        "init_checkpoint": folder / "model",
        "train_file": folder / "train.csv",
        "eval_file": folder / "dev.csv",
        "predict_file": folder / "dev.csv",
        "output_dir": folder / output_dir,
    }
    return {**FLAGS, **files, **changed}


@pytest.fixture(scope="module")
def trained(folder):
    """Returns the run's directory."""
    assert fine_tune("run_multiple_choice", **flags_of(folder, "run")) == 0
    return folder / "run"


@pytest.mark.slow
def test_the_focal_loss_of_a_program(folder):
    """A new head gives each of four choices about a quarter."""
    flags = flags_of(folder, "focal", num_train_steps=1, do_predict="false")
    flags["loss_options"] = "focal_gamma=2"
    assert fine_tune("run_multiple_choice", **flags) == 0
    (first,) = read_metrics(folder / "focal" / "metrics.jsonl")
    assert first["loss"] == pytest.approx(np.log(4) * 0.75**2, rel=0.05)


def test_answers_and_scores(folder, trained):
    rows, answers = make_rows(2, 41), read_tsv(trained / "predictions.tsv")
    assert list(answers[0]) == ["id", "answer", "scores", "context", "chosen"]
    assert [row["id"] for row in answers] == [str(number) for number in range(41)]
    scores = np.array([[float(value) for value in row["scores"].split()] for row in answers])
    chosen = [int(row["answer"]) for row in answers]
    assert scores.shape == (41, 4) and scores.argmax(axis=1).tolist() == chosen
    assert np.mean([row["label"] == answer for row, answer in zip(rows, chosen, strict=True)]) > 0.9
    labels = [json.loads(line)["label"] for line in (folder / "dev.jsonl").read_text().splitlines()]
    losses = [
        np.log(np.exp(row).sum()) - row[label] for row, label in zip(scores, labels, strict=True)
    ]
    results = read_results(trained)
    assert results == {
        "global_step": 30,
        "loss": results["eval_loss"],
        "eval_loss": pytest.approx(np.mean(losses), abs=1e-5),
        "eval_accuracy": pytest.approx(np.mean(np.equal(chosen, labels))),
    }
    wrong = np.flatnonzero(np.not_equal(chosen, labels))
    table = read_tsv(trained / "worst_errors.tsv")
    assert set(range(5, 5 + NUM_WRONG)) <= set(wrong) and len(table) == len(wrong)
    assert [float(row["loss"]) for row in table] == close_to(
        sorted((losses[row] for row in wrong), reverse=True)
    )
    for row in table:
        place = int(row["source"].rsplit(" ", 1)[1]) - 2
        source = rows[place]
        assert row["source"] == f"{folder}/dev.csv line {place + 2}"
        assert (int(row["label"]), int(row["answer"])) == (labels[place], chosen[place])
        assert row["context"] == f"{source['sent1']} {source['sent2']}"
        assert row["chosen"] == source[f"ending{chosen[place]}"]
        assert row["right"] == source[f"ending{labels[place]}"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dev.jsonl", "test.csv", "unknown.csv", "alike.csv"])
def test_other_forms_of_the_same_rows(folder, trained, name):
    before = (trained / "predictions.tsv").read_bytes()
    (trained / "predictions.tsv").unlink()
    flags = {"do_train": "false", "do_eval": "false", "predict_file": folder / name}
    assert fine_tune("run_multiple_choice", **flags_of(folder, "run", **flags)) == 0
    assert (trained / "predictions.tsv").read_bytes() == before
    if name == "dev.jsonl":  # Labelled, and judged as dev.csv.
        results = read_results(trained, "eval_results_dev.txt")
        assert results == pytest.approx(read_results(trained), rel=1e-6)
    else:
        assert not (trained / f"eval_results_{name.removesuffix('.csv')}.txt").exists()


def test_a_bad_file(folder, trained):
    def message(rows, **changed):
        flags = {"train_file": write_table(folder / "bad.csv", rows), **changed}
        return refuse("run_multiple_choice", **flags_of(folder, "refused", **flags))

    rows = make_rows(3, 3)
    other = [*rows[:2], {**rows[2], "label": 4}]
    assert re.search(f"^{folder}/bad.csv line 4: .*'4', .*0 .*3", message(other))
    bare = [*rows[:2], {**rows[2], "label": ""}]
    assert re.search(f"{folder}/bad.csv line 4: .*label.*--skip_unlabelled", message(bare))
    test = message(rows, eval_file=folder / "test.csv")
    assert re.search(f"{folder}/test.csv line 2: .*label", test)
    assert "'nowhere.csv'" in message(rows, eval_file="nowhere.csv")
    assert not (folder / "refused/run.flags").exists()


@pytest.mark.slow
def test_a_head_of_another_task(folder):
    """That of a classifier of three classes: a new one is made only if asked for."""
    model = read_checkpoint(str(folder / "model"))
    head = {"output_weights": np.ones([3, 32]), "output_bias": np.ones([3])}
    weights = {f"cls/classifier/{name}": value.astype(np.float32) for name, value in head.items()}
    made = dataclasses.replace(model, weights=model.weights | weights, labels=("a", "b", "c"))
    write_checkpoint(made, folder / "classifier", "huggingface")
    alone = {"do_eval": "false", "do_predict": "false", "num_train_steps": 1}
    flags = flags_of(folder, "other", init_checkpoint=folder / "classifier", **alone)
    assert "3 labels ['a', 'b', 'c']" in refuse("run_multiple_choice", **flags)
    assert fine_tune("run_multiple_choice", **flags, new_head="true") == 0
    assert not (folder / "other/labels.txt").exists()


def test_the_worst_answers_come_first():
    examples = [
        ChoiceExample("a\tb", "c", ("right", "left", "up"), 0, "0", "f line 2"),
        ChoiceExample("d", "", ("right", "left", "up"), 2, "1", "f line 3"),
        ChoiceExample("e", "", ("right", "left", "up"), 1, "2", "f line 4"),
    ]
    made = ChoiceExamples(examples, None, np.array([0, 2, 1]), 0)
    logits = [np.array(row) for row in ([0.0, 2.0, 1.0], [0.0, 1.0, 9.0], [0.0, 0.0, 5.0])]
    outputs = {"logits": logits, "loss": [1.25, 7.0, 5.5]}
    texts = MultipleChoice(None, {}).report(made, outputs)
    assert texts["worst_errors.tsv"].splitlines() == [
        "loss\tlabel\tanswer\tsource\tcontext\tright\tchosen",
        "5.5000\t1\t2\tf line 4\te\tleft\tup",
        "1.2500\t0\t1\tf line 2\ta\\tb c\tright\tleft",
    ]


@pytest.mark.slow
def test_a_student_learns_the_choices_of_a_teacher(folder, trained):
    """All its own answers are wrong, and not learned."""
    rows = make_rows(1, 150)
    for row in rows:
        row["label"] = (row["label"] + 1) % 4
    write_table(folder / "wrong.csv", rows)
    given = {"train_file": folder / "wrong.csv", "teacher": trained, "learn_labels": "false"}
    assert fine_tune("run_multiple_choice", **flags_of(folder, "student", **given)) == 0
    expected = read_results(trained)["eval_accuracy"]
    assert read_results(folder / "student")["eval_accuracy"] > expected - 0.1


def test_a_classifier_is_no_teacher_of_choices(folder, trained, tmp_path):
    other = read_checkpoint(trained)
    weights = {
        name: np.repeat(value, 3, axis=0) if name.startswith("cls/") else value
        for name, value in other.weights.items()
    }
    three = dataclasses.replace(other, weights=weights, labels=("a", "b", "c"))
    write_checkpoint(three, tmp_path / "three", "bert_tf")
    given = flags_of(folder, "untaught", teacher=tmp_path / "three")
    message = refuse("run_multiple_choice", **given)
    assert re.search(r"classifier.*run_multiple_choice", message)
