"""run_classifier --zero_shot classifies tables among candidate labels."""

import json
import pathlib
import re

import numpy as np
import pytest

from tests.fine_tune import read_results, read_tsv, write_table
from tests.float_bounds import assert_close
from tests.programs import run
from tests.shared_data import golden_file

FOLDER = golden_file("families", "zero_shot")
GOLDEN = json.loads((FOLDER / "zero_shot.json").read_text(encoding="utf8"))
CANDIDATES = GOLDEN["candidate_labels"]
ROWS = [row for row in GOLDEN["rows"] if row["template"] == GOLDEN["templates"][1]]
ROWS = [row for row in ROWS if row["sequence"]]


def write_rows(path: pathlib.Path, labels: list[str] | None = None) -> None:
    rows = [{"text": row["sequence"]} for row in ROWS]
    if labels:
        rows = [{**row, "label": label} for row, label in zip(rows, labels, strict=True)]
    write_table(path, rows)


def command(tmp_path: pathlib.Path, **values):
    given = {
        "zero_shot": ",".join(CANDIDATES),
        "template": GOLDEN["templates"][1],
        "init_checkpoint": FOLDER / "model",
        "predict_file": tmp_path / "texts.csv",
        "output_dir": tmp_path / "out",
        "do_predict": True,
    }
    return run("run_classifier", **{**given, **values})


def test_probabilities_of_the_pipeline_and_scores(tmp_path):
    write_rows(tmp_path / "texts.csv")
    expected = np.array([row["scores"]["folder"]["single"] for row in ROWS])
    best = [CANDIDATES[index] for index in expected.argmax(axis=1)]
    # One label is wrong.
    labels = [CANDIDATES[(CANDIDATES.index(best[0]) + 1) % 4], *best[1:]]
    write_rows(tmp_path / "labelled.csv", labels)
    done = command(tmp_path, do_eval=True, eval_file=tmp_path / "labelled.csv")
    assert done.returncode == 0, done.printed
    found = np.loadtxt(tmp_path / "out" / "test_results.tsv", delimiter="\t")
    assert_close(found, expected)
    rows = read_tsv(tmp_path / "out" / "predictions.tsv")
    assert [row["answer"] for row in rows] == best
    assert abs(read_results(tmp_path / "out")["eval_accuracy"] - 5 / 6) < 1e-6
    assert (tmp_path / "out" / "report.txt").exists()


def test_several_labels(tmp_path):
    expected = [row["scores"]["folder"]["multi_contradiction_by_name"] for row in ROWS]
    assert np.min(expected) > 0.5
    write_rows(tmp_path / "texts.csv", ["|".join(CANDIDATES)] * len(ROWS))
    done = command(
        tmp_path, do_eval=True, eval_file=tmp_path / "texts.csv", problem_type="multi_label"
    )
    assert done.returncode == 0, done.printed
    found = np.loadtxt(tmp_path / "out" / "test_results.tsv", delimiter="\t")
    assert_close(found, expected)
    assert read_results(tmp_path / "out")["eval_micro_f1"] == 1.0


WRONG = {
    "--do_train": {"do_train": True},
    "--do_predict": {"do_predict": False},
    "--init_checkpoint": {"init_checkpoint": ""},
    "--predict_file": {"predict_file": ""},
    "template=.*zero_shot": {"zero_shot": ""},
    "template .*'no place'": {"template": "no place"},
    "candidates .*'sport'": {"zero_shot": "sport,sport"},
    "--problem_type=regression": {"problem_type": "regression"},
}


@pytest.mark.parametrize("named", WRONG)
def test_wrong_flags_are_one_line(tmp_path, named):
    write_rows(tmp_path / "texts.csv")
    done = command(tmp_path, **WRONG[named])
    assert done.returncode == 1 and re.search(named, done.printed)
    assert "Traceback" not in done.printed and not (tmp_path / "out").exists()


def test_labels_that_are_no_candidates(tmp_path):
    write_rows(tmp_path / "texts.csv", ["weather", *["sport"] * 5])
    done = command(tmp_path, do_eval=True, eval_file=tmp_path / "texts.csv")
    assert done.returncode == 1 and "weather" in done.printed and "Traceback" not in done.printed


def test_a_run_is_not_overwritten(tmp_path):
    write_rows(tmp_path / "texts.csv")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.flags").write_text("--do_train\n")
    done = command(tmp_path)
    assert done.returncode == 1 and str(tmp_path / "out") in done.printed
