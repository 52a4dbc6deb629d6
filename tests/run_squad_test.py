"""SQuAD as a user runs it: official JSON in; answers, n-best lists, null odds and scores out.

The answer to each question is the one place that a context names, in the middle of other words, so
that a model of one layer learns to find it. Contexts are up to three windows long.
"""

import importlib
import json
import random
import re

import pytest

from bert_tf.config import DataConfig, ModelConfig, OptimizerConfig, TrainingConfig
from bert_tf.config.config_flags import read_flagfile
from bert_tf.config.fine_tuning_config import FineTuningConfig, SquadRunConfig
from bert_tf.metrics.squad import evaluate_v1, evaluate_v2
from bert_tf.tasks.base.programs.program import Configs
from tests.fine_tune import (
    files_of,
    fine_tune,
    log_of,
    read_results,
    read_tsv,
    refuse,
)
from tests.programs import finish, run
from tests.shared_data import ROOT
from tests.tiny_model import write_tiny_model

PLACES = ("paris", "rome", "oslo", "lima", "cairo", "delhi")
OTHERS = ("we", "went", "by", "boat", "and", "saw", "the", "house", "of", "king", "in", "rain")
FLAGS = {
    "optimizer": "adam_weight_decay",  # Learns so few rows in fewer steps.
    "max_seq_length": 28,
    "doc_stride": 10,
    "max_query_length": 10,
    "train_batch_size": 32,
    "learning_rate": 5e-3,
    "num_train_steps": 60,
    "save_checkpoints_steps": 10,
    "hidden_dropout_prob": 0,
    "log_steps": 10,
    "jit_compile": "false",
}
ALL = {"do_train": "true", "do_eval": "true", "do_predict": "true"}


def make_data(seed, count, version_2=False):
    """Returns the content of a file; in version 2 every third question has no answer."""
    draw = random.Random(seed)
    paragraphs = []
    for number in range(count):
        words = draw.choices(OTHERS, k=draw.randint(10, 40))
        answer = draw.choice(("", "Greater ")) + draw.choice(PLACES).title()
        is_impossible = version_2 and number % 3 == 0
        if not is_impossible:
            words.insert(draw.randint(0, len(words)), answer + draw.choice(("", ".", ",")))
        context = " ".join(words)
        answers = [{"text": answer, "answer_start": context.find(answer)}]
        qa = {"id": f"{seed}-{number}", "question": "Where?", "answers": answers}
        if version_2:
            qa |= {"is_impossible": is_impossible, "answers": [] if is_impossible else answers}
        paragraphs.append({"context": context, "qas": [qa]})
    return {"version": "v2.0" if version_2 else "1.1", "data": [{"paragraphs": paragraphs}]}


def questions_of(content):
    return [qa for article in content["data"] for p in article["paragraphs"] for qa in p["qas"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("squad"))


def write_files(path):
    """Writes a model and data into a folder; returns the folder."""
    write_tiny_model(path / "model", *PLACES, *OTHERS, "greater", "where", num_hidden_layers=1)
    files = {
        "train.json": make_data(1, 200),
        "dev.json": make_data(2, 40),
        "bare.json": make_data(4, 39, version_2=True),
        "train2.json": make_data(3, 200, version_2=True),
        "dev2.json": make_data(4, 39, version_2=True),
    }
    for qa in questions_of(files["bare.json"]):
        del qa["answers"], qa["is_impossible"]
    for name, content in files.items():
        (path / name).write_text(json.dumps(content, indent=1))
    return path


def flags_of(folder, output_dir, version="", **changed):
    files = {
        "init_checkpoint": folder / "model",
        "train_file": folder / f"train{version}.json",
        "predict_file": folder / f"dev{version}.json",
        "output_dir": folder / output_dir,
    }
    more = {"version_2_with_negative": "true"} if version else {}
    return {**FLAGS, **files, **more, **changed}


def read(path):
    return json.loads(path.read_text(encoding="utf8"))


@pytest.fixture(scope="module")
def first(folder):
    """Version 1, trained; returns the run's directory."""
    assert fine_tune("run_squad", **flags_of(folder, "first", **ALL)) == 0
    return folder / "first"


@pytest.fixture(scope="module")
def second(folder):
    """Version 2, trained; returns the run's directory."""
    assert fine_tune("run_squad", **flags_of(folder, "second", "2", **ALL)) == 0
    return folder / "second"


def check_nbest(nbest, predictions):
    assert list(nbest) == list(predictions)
    for entries in nbest.values():
        assert 0 < len(entries) <= 21
        for entry in entries:
            assert list(entry) == ["text", "probability", "start_logit", "end_logit"]
        chances = [entry["probability"] for entry in entries]
        scores = [entry["start_logit"] + entry["end_logit"] for entry in entries]
        assert sum(chances) == pytest.approx(1) and len({e["text"] for e in entries}) == len(
            entries
        )
        assert sorted(chances[:20], reverse=True) == chances[:20]
        assert sorted(scores[:20], reverse=True) == scores[:20]


@pytest.mark.slow
def test_version_1(folder, first):
    content, predictions = read(folder / "dev.json"), read(first / "predictions.json")
    questions = questions_of(content)
    assert list(predictions) == [qa["id"] for qa in questions]
    nbest = read(first / "nbest_predictions.json")
    check_nbest(nbest, predictions)
    assert predictions == {name: entries[0]["text"] for name, entries in nbest.items()}
    assert not (first / "null_odds.json").exists()
    # Indented by four, as the original writes them.
    text = json.dumps(predictions, indent=4) + "\n"
    assert (first / "predictions.json").read_text(encoding="utf8") == text
    results = read_results(first)
    scores = evaluate_v1(content, predictions)
    assert scores["f1"] > 90
    assert results == {
        "global_step": 60,
        "loss": results["loss"],
        "eval_loss": results["loss"],
        **{f"eval_{name}": value for name, value in scores.items()},
    }
    assert results["loss"] < 1
    wrong = [qa["id"] for qa in questions if predictions[qa["id"]] != qa["answers"][0]["text"]]
    assert {row["id"] for row in read_tsv(first / "worst_errors.tsv")} <= set(wrong)
    assert (first / "curves.png").stat().st_size > 0


def test_version_2(folder, second):
    content, predictions = read(folder / "dev2.json"), read(second / "predictions.json")
    odds = read(second / "null_odds.json")
    assert list(odds) == list(predictions) == [qa["id"] for qa in questions_of(content)]
    nbest = read(second / "nbest_predictions.json")
    check_nbest(nbest, predictions)
    for name, text in predictions.items():
        entries = {entry["text"]: entry for entry in nbest[name]}
        best = next(entry for entry in nbest[name] if entry["text"])
        scores = [e["start_logit"] + e["end_logit"] for e in (entries[""], best)]
        assert odds[name] == pytest.approx(scores[0] - scores[1], abs=1e-5)
        assert text == ("" if odds[name] > 0 else best["text"])
    results, official = read_results(second), evaluate_v2(content, predictions)
    assert {name: results[f"eval_{name}"] for name in official} == official
    assert official["HasAns_f1"] > 80 and official["NoAns_f1"] > 80
    found = {name.removeprefix("eval_") for name in results} - set(official)
    assert found == {
        *("global_step", "loss", "best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh")
    }


@pytest.mark.slow
def test_the_threshold_that_was_found_gives_the_best_f1(folder, second):
    odds, results = read(second / "null_odds.json"), read_results(second)
    before = (second / "nbest_predictions.json").read_bytes()
    content = read(folder / "dev2.json")
    middle = sorted(odds.values())[len(odds) // 2]
    for threshold in (results["eval_best_f1_thresh"], middle):
        flags = {"do_predict": "true", "null_score_diff_threshold": repr(threshold)}
        assert fine_tune("run_squad", **flags_of(folder, "second", "2", **flags)) == 0
        predictions = read(second / "predictions.json")
        assert all((text == "") == (odds[name] > threshold) for name, text in predictions.items())
        if threshold != middle:
            assert evaluate_v2(content, predictions)["f1"] == results["eval_best_f1"]
    assert (second / "nbest_predictions.json").read_bytes() == before


def test_answers_alone_from_the_run_directory(folder, second):
    """Of a file without answers; nothing else of the run changes."""
    names = ("nbest_predictions.json", "null_odds.json", "run.flags")
    before = {name: (second / name).read_bytes() for name in names}
    for name in names[:2]:
        (second / name).unlink()
    flags = {"do_predict": "true", "predict_file": folder / "bare.json", "output_dir": second}
    finish(run("run_squad", **flags))
    assert {name: (second / name).read_bytes() for name in before} == before


def changed(content, **fields):
    """Returns the text of a file whose last question has other fields."""
    content = json.loads(json.dumps(content))
    questions_of(content)[-1].update(fields)
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "version", "message"),
    [
        ('{"data": [\n{"paragraphs": [}]}', "", "bad.json .*JSON: "),
        ({"answers": []}, "", "bad.json, question 9-1:"),
        ({"is_impossible": "no"}, "2", "question 9-1: 'is_impossible' .*'no'"),
    ],
)
def test_a_bad_training_file(folder, text, version, message):
    bad = folder / "bad.json"
    bad.write_text(changed(make_data(9, 2), **text) if isinstance(text, dict) else text)
    if version and isinstance(text, dict):
        bad.write_text(changed(make_data(9, 2, True), **text))
    flags = flags_of(folder, "refused", version, do_train="true", train_file=bad)
    assert re.search(message, refuse("run_squad", **flags))
    assert not (folder / "refused/run.flags").exists()


def test_a_bad_evaluation(folder, second):
    def message(**values):
        given = {"do_eval": "true", **values}
        return refuse("run_squad", **flags_of(folder, "refused", **given))

    bare = folder / "bare.json"
    trained = {"init_checkpoint": second, "version_2_with_negative": "false"}
    assert "bare.json" in message(eval_file=bare, **trained)
    found = message(do_train="true", do_eval="false", eval_steps=5, eval_file=bare)
    assert re.search("bare.json .*answers", found)
    assert "dev2.json, question 4-0:" in message(eval_file=folder / "dev2.json", **trained)
    assert "--version_2_with_negative" in message(eval_file=folder / "dev2.json", **trained)
    assert "nowhere.json" in message(eval_file="nowhere.json", **trained)
    assert re.search("/model.* squad head", message())
    assert not (folder / "refused/run.flags").exists()


def test_a_labelled_file_is_judged_as_well_as_answered(folder, second):
    answers = ("predictions.json", "nbest_predictions.json", "null_odds.json")
    before = files_of(second, *answers)
    content = make_data(6, 5, version_2=True)
    (folder / "test.json").write_text(json.dumps(content))
    flags = {"output_dir": second, "predict_file": folder / "test.json"}
    assert fine_tune("run_squad", "--do_predict", **flags) == 0
    results = read_results(second, "eval_results_test.txt")
    assert results["eval_f1"] == evaluate_v2(content, read(second / "predictions.json"))["f1"]
    assert files_of(second).items() >= before.items()
    assert "worst_errors_test.tsv" in files_of(second)


@pytest.mark.slow
def test_a_model_of_version_2_answers_version_1(folder, second):
    flags = {"do_eval": "true", "do_predict": "true", "init_checkpoint": second}
    flags["version_2_with_negative"] = "false"
    assert fine_tune("run_squad", **flags_of(folder, "judged", **flags)) == 0
    predictions = read(folder / "judged/predictions.json")
    results = read_results(folder / "judged")
    scores = evaluate_v1(read(folder / "dev.json"), predictions)
    assert {name: results[f"eval_{name}"] for name in scores} == scores
    assert "" not in predictions.values() and not (folder / "judged/null_odds.json").exists()


def test_answers_that_are_all_empty_are_warned_of(folder, second, caplog):
    flags = {"output_dir": second, "predict_file": folder / "dev2.json"}
    flags["null_score_diff_threshold"] = -99
    printed = log_of(caplog, "run_squad", "--do_predict", **flags)
    assert set(read(second / "predictions.json").values()) == {""}
    assert re.search(" 39 answers .*--null_score_diff_threshold=-99", printed)


@pytest.mark.slow
def test_a_student_learns_the_answers_of_a_teacher(folder, first):
    """All its own answers are wrong, and not learned."""
    content = make_data(1, 200)
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            word = paragraph["context"].split()[0]
            paragraph["qas"][0]["answers"] = [{"text": word, "answer_start": 0}]
    (folder / "wrong.json").write_text(json.dumps(content))
    given = {"train_file": folder / "wrong.json", "teacher": first, "learn_labels": "false"}
    assert fine_tune("run_squad", **flags_of(folder, "student", **ALL, **given)) == 0
    expected = read_results(first)["eval_f1"]
    assert read_results(folder / "student")["eval_f1"] > expected - 10 > 40


def test_what_is_evaluated_is_predicted_unless_another_file_is_named():
    run_squad = importlib.import_module("bert_tf.run_squad")

    def files(eval_file, predict_file):
        configs = Configs(
            ModelConfig(),
            DataConfig(eval_file=eval_file),
            OptimizerConfig(),
            TrainingConfig(do_eval=True, output_dir="run"),
            FineTuningConfig(do_predict=True, predict_file=predict_file),
            SquadRunConfig(),
        )
        return run_squad.find_files(configs)

    assert files("own.json", "") == {"eval": "own.json", "predict": "own.json"}
    assert files("", "own.json") == {"eval": "own.json", "predict": "own.json"}
    assert files("a.json", "b.json") == {"eval": "a.json", "predict": "b.json"}
    # Own files beside the flagfile leave nothing of it to download.
    for path in (ROOT / "configs").glob("squad_*.flags"):
        assert "predict_file" not in read_flagfile(path)
