"""run_squad with the joint head, as a user runs it; data of `run_squad_test`."""

import json
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.inference.serving_models import load
from bert_tf.metrics.squad import evaluate_v2
from bert_tf.tasks.question_answering.joint_model import BertJointSpanLabeler
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.question_answering.serving import JointQuestionAnsweringServing
from export.lite.conversion import check_kind
from tests.fine_tune import fine_tune, read_results, refuse
from tests.roads.roads import largest_difference
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


@pytest.mark.slow
def test_the_class_in_python_gives_the_same_answers(folder, trained, tmp_path):
    checkpoint = read_checkpoint(trained)
    checkpoint.check()
    assert {"joint_squad", "answerable"} <= set(checkpoint.heads)
    model = BertSpanLabeler.from_pretrained(trained)
    assert isinstance(model, BertJointSpanLabeler) and model.reading.beam_size == 6
    content = read(folder / "dev.json")
    paragraphs = content["data"][0]["paragraphs"]
    asked = [p["qas"][0]["question"] for p in paragraphs], [p["context"] for p in paragraphs]
    expected = list(read(trained / "predictions.json").values())
    answers = model.answer(*asked)
    assert [answer["answer"] for answer in answers] == expected
    for answer, context in zip(answers, asked[1], strict=True):
        if answer["answer"]:
            assert context[answer["start"] : answer["end"]] == answer["answer"]
        else:
            assert answer["probability"] > 0.5 and answer["start"] == answer["end"] == -1
    assert all(answer["answer"] for answer in model.answer(*asked, may_be_none=False))
    model.save(tmp_path / "mine.keras")
    again = keras.models.load_model(tmp_path / "mine.keras").answer(*asked)
    assert largest_difference(answers, again) < 1e-5


@pytest.mark.slow
def test_it_is_served_with_the_same_answers_and_odds(folder, trained):
    paragraphs = read(folder / "dev.json")["data"][0]["paragraphs"]
    texts = [p["qas"][0]["question"] for p in paragraphs], [p["context"] for p in paragraphs]
    served = load(str(trained))
    assert isinstance(served, JointQuestionAnsweringServing) and served.kind == "question_answering"
    columns = map(tf.constant, texts)  # Not as a graph, which takes long to make.
    found = {name: value.numpy() for name, value in served.from_texts(*columns).items()}
    predictions, odds = (read(trained / f"{name}.json") for name in ("predictions", "null_odds"))
    assert [text.decode() for text in found["answer"]] == list(predictions.values())
    np.testing.assert_allclose(found["null_odds"], list(odds.values()), atol=1e-4)
    nbest = [entries[0] for entries in read(trained / "nbest_predictions.json").values()]
    sums = [entry["start_logit"] + entry["end_logit"] for entry in nbest]
    np.testing.assert_allclose(found["score"], sums, atol=1e-4)
    with pytest.raises(ValueError, match="LiteRT"):
        check_kind(served)


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
