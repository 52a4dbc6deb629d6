"""`run_classifier --folds`: each training example is predicted by a model that did not learn it."""

import json

import numpy as np
import pytest

import bert_tf
from bert_tf.tasks.classification.examples import TextExample
from bert_tf.tasks.classification.folds import assign_folds, digest_of
from tests.fine_tune import (
    LABELS,
    fine_tune,
    interrupt,
    read_tsv,
    refuse,
    texts,
    write_folder,
    write_table,
)
from tests.float_bounds import assert_close


def examples_of(labels) -> list[TextExample]:
    return [TextExample("a", "", str(label), "0", "made line 1") for label in labels]


def test_each_fold_has_its_share_of_each_label():
    labels = ["a"] * 20 + ["b"] * 10 + ["c"] * 5
    folds = assign_folds(examples_of(labels), 5, seed=3)
    for label, expected in (("a", 4), ("b", 2), ("c", 1)):
        counts = np.bincount(folds[[one == label for one in labels]], minlength=5)
        assert counts.tolist() == [expected] * 5
    assert (assign_folds(examples_of(labels), 5, seed=3) == folds).all()
    assert (assign_folds(examples_of(labels), 5, seed=4) != folds).any()
    numbers = assign_folds(examples_of(range(100)), 4, seed=3, is_number=True)
    for fold in range(4):
        assert abs(np.flatnonzero(numbers == fold).mean() - 49.5) < 2
    with pytest.raises(ValueError, match="--folds=5"):
        assign_folds(examples_of("abc"), 5, seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = write_folder(tmp_path_factory.mktemp("folds"))
    write_table(path / "train.csv", rows_of())
    return path


def rows_of() -> list[dict[str, str]]:
    """Returns 32 texts, one of them with a label that no other has."""
    return [*texts(31), {"text": "the film", "label": "once"}]


def flags_of(folder, **changed):
    return {
        "do_train": "true",
        "folds": 2,
        "num_train_steps": 2,
        "init_checkpoint": folder / "model",
        "train_file": folder / "train.csv",
        "output_dir": folder / "run",
        **changed,
    }


def test_the_digest_of_a_fold_stays_as_recorded():
    rows = [("a", "b\ud800", None), ("é", "", "x")]
    examples = [TextExample(*row, "0", "here") for row in rows]
    recorded = "553c8c3e7a68fa7377439e802e7f313bdf9206f78134c29e27a84708d59b9e11"
    assert digest_of(examples, np.array([1, 3])) == recorded


@pytest.mark.slow
def test_out_of_fold_predictions(folder, monkeypatch):
    path = folder / "run"
    runs = interrupt(monkeypatch, "run_classifier", **flags_of(folder))
    assert not (path / "out_of_fold.tsv").exists()
    assert fine_tune("run_classifier", **flags_of(folder)) == 0
    assert runs == ["fold-1", "fold-2", "fold-2"]  # The first is not run again.
    rows = read_tsv(path / "out_of_fold.tsv")
    given = rows_of()
    assert [row["row"] for row in rows] == list(map(str, range(32)))
    assert [row["text"] for row in rows] == [row["text"] for row in given]
    assert [row["label"] for row in rows] == [row["label"] for row in given]
    names = sorted([*LABELS.values(), "once"])
    table = np.array([[float(row[f"p({name})"]) for name in names] for row in rows])
    np.testing.assert_allclose(table.sum(axis=1), 1, atol=1e-4)
    assert [row["answer"] for row in rows] == [names[index] for index in table.argmax(axis=1)]
    folds = json.loads((path / "folds.json").read_text())
    accuracies = []
    for fold in (1, 2):
        held_out = [row for row in rows if row["fold"] == str(fold)]
        assert len(held_out) == 16  # One of the two did not learn the rare label.
        accuracies.append(np.mean([row["label"] == row["answer"] for row in held_out]))
        assert folds["folds"][str(fold)]["accuracy"] == pytest.approx(accuracies[-1])
        # The run of the fold gives these numbers, and learned from the others only.
        predictor = bert_tf.load(path / f"fold-{fold}")
        found = predictor.probabilities([row["text"] for row in held_out])
        expected = [[float(row[f"p({name})"]) for name in names] for row in held_out]
        assert_close([list(one.values()) for one in found], expected)
    assert folds["summary"]["accuracy"]["mean"] == pytest.approx(np.mean(accuracies))
    assert folds["summary"]["accuracy"]["sd"] == pytest.approx(np.std(accuracies, ddof=1))
    # A fold of other examples is not taken for done.
    write_table(folder / "other.csv", texts(32))
    message = refuse("run_classifier", **flags_of(folder, train_file=folder / "other.csv"))
    assert "fold-1" in message


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"folds": 1}, "--folds=1"),
        ({"folds": 33}, "--folds=33"),
        ({"num_seeds": 2}, "--num_seeds=2"),
        ({"do_train": "false", "do_eval": "true", "eval_file": "x.csv"}, "--do_train"),
        ({"html_report": "true"}, "--html_report"),
    ],
)
def test_flags_that_contradict_folds(folder, tmp_path, changed, named):
    message = refuse("run_classifier", **flags_of(folder, output_dir=tmp_path / "run", **changed))
    assert named in message
