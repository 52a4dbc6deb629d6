"""run_squad with the joint head, as a user runs it; data of `run_squad_test`."""

import json
import re
import shutil

import pytest

from bert_tf.metrics.squad import evaluate_v2
from tests.fine_tune import fine_tune, read_results, refuse
from tests.run_squad_test import ALL, FLAGS, OTHERS, PLACES, make_data, questions_of, read
from tests.tiny_model import write_tiny_model

pytestmark = pytest.mark.slow

JOINT = {"span_head": "joint", "beam_size": 6, "version_2_with_negative": "true"}
STEPS = {"num_train_steps": 60, "save_checkpoints_steps": 30}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("joint"))


def write_files(path):
    """Writes a model and data into a folder; returns the folder."""
    write_tiny_model(path / "model", *PLACES, *OTHERS, "greater", "where")
    for name, content in {
        "train.json": make_data(3, 200, version_2=True),
        "dev.json": make_data(4, 39, version_2=True),
        "train1.json": make_data(1, 40),
        "dev1.json": make_data(2, 10),
    }.items():
        (path / name).write_text(json.dumps(content))
    return path


def flags_of(folder, output_dir, **changed):
    files = {
        "init_checkpoint": folder / "model",
        "train_file": folder / "train.json",
        "predict_file": folder / "dev.json",
        "output_dir": folder / output_dir,
    }
    return {**FLAGS, **STEPS, **JOINT, **files, **changed}


@pytest.fixture(scope="module")
def trained(folder):
    assert fine_tune("run_squad", **flags_of(folder, "run", **ALL)) == 0
    return folder / "run"


def test_it_learns_to_answer_and_to_be_silent(folder, trained):
    content, predictions = read(folder / "dev.json"), read(trained / "predictions.json")
    odds, nbest = read(trained / "null_odds.json"), read(trained / "nbest_predictions.json")
    assert list(odds) == list(predictions) == [qa["id"] for qa in questions_of(content)]
    for name, text in predictions.items():
        entries = nbest[name]
        assert entries[0]["text"] and all(entry["text"] for entry in entries)
        assert text == ("" if odds[name] > 0 else entries[0]["text"])
        assert entries[0]["start_logit"] <= 0 and entries[0]["end_logit"] <= 0
    results, official = read_results(trained), evaluate_v2(content, predictions)
    assert {name: results[f"eval_{name}"] for name in official} == official
    assert official["HasAns_f1"] > 80 and official["NoAns_f1"] > 80
    assert results["eval_best_f1"] >= official["f1"] and results["loss"] < 1


def test_what_is_refused(folder, trained):
    flags = flags_of(folder, "refused", do_train="true")
    message = refuse("run_squad", **flags, teacher=folder / "model")
    assert re.search("span_head=joint .*--teacher", message)
    assert "span_head independent" in refuse("run_squad", **{**flags, "span_head": "independent"})
    predict = {"do_predict": "true", "init_checkpoint": folder / "model"}
    shutil.copytree(trained, folder / "bare", ignore=shutil.ignore_patterns("run.flags"))
    other = {"init_checkpoint": folder / "bare", "do_predict": "true", "span_head": "independent"}
    del flags["beam_size"], flags["do_train"]
    message = refuse("run_squad", **{**flags, **other})
    assert re.search("bare/model.ckpt-60 .*--span_head=joint", message)
    message = refuse("run_squad", **{**flags_of(folder, "no"), **predict})
    assert re.search("/model.* joint_squad head", message)
