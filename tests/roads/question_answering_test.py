"""Answers to questions are the same by every road, without and with "no answer"."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.formats import write_checkpoint
from tests.checkpoints.made_checkpoint import make_checkpoint, make_weights
from tests.export.made_models import ODD_TEXT, SHAPE, write_model
from tests.fine_tune import fine_tune
from tests.float_bounds import close_to
from tests.roads.roads import (
    TOLERANCE,
    check_roads,
    largest_difference,
    lite_file,
    load_all,
    load_saved_model,
    rest_rows,
    saved_model,
)

LENGTH = 24
KEYS = ["answer", "start", "end", "score", "null_odds", "probability"]
READING = {
    "max_seq_length": str(LENGTH),
    "doc_stride": "5",
    "max_query_length": "6",
    "max_answer_length": "4",
}


def make_questions() -> tuple[list[str], list[str]]:
    """Returns questions and contexts of up to ten windows; the last two have no words."""
    draw = np.random.default_rng(1)
    words = [f"w{number}" for number in range(30, 79)] + [
        "the",
        "river,",
        "don't",
        "e\u0301te\u0301",
        *ODD_TEXT.split(),
    ]
    contexts = ["  ".join(draw.choice(words, size)) for size in (1, 5, 20, 40, 70, 90)]
    # The same texts are in several windows, which count once in a list of the best.
    contexts[4] = "the river, w40 don't e\u0301te\u0301 w41  w42 " * 9
    questions = [" ".join(draw.choice(words, size)) for size in (1, 3, 9, 2, 4, 5)]
    return [*questions, "w40", ""], [*contexts, "", " \u200b "]


QUESTIONS, CONTEXTS = make_questions()


@pytest.mark.parametrize(
    ("threshold", "is_multilingual", "n_best_size"),
    [
        pytest.param(None, False, 3, marks=pytest.mark.slow),
        pytest.param(-1.0, False, 20, marks=pytest.mark.slow),
        pytest.param(5.0, False, 1, marks=pytest.mark.slow),
        pytest.param(-3.0, True, 2, marks=pytest.mark.slow),
    ],
)
def test_answers_are_the_same(tmp_path, record_property, threshold, is_multilingual, n_best_size):
    run = {**READING, "n_best_size": str(n_best_size)}
    if threshold is not None:
        run |= {"version_2_with_negative": "true", "null_score_diff_threshold": str(threshold)}
    folder = write_model(
        tmp_path / "run", "question_answering", run, is_multilingual, num_hidden_layers=1
    )
    model = bert_tf.BertSpanLabeler.from_pretrained(folder)
    expected = model.answer(QUESTIONS[:6], CONTEXTS[:6])
    assert list(expected[0]) == KEYS
    assert 0 < sum(row["answer"] == "" for row in expected) < 6 or threshold in (None, 5.0)
    check_answers(expected)
    # SentencePiece has a token for U+200B, but none for white space.
    blanks = ("", " \u3000 ") if is_multilingual else CONTEXTS[6:]
    check_without_words(model, blanks)
    predictors = load_all(folder, model, tmp_path)

    def ask(answers):
        return answers.answer(QUESTIONS[:6], CONTEXTS[:6])

    check_roads(expected, predictors, ask, record_property)
    for one in predictors.values():
        check_without_words(one, blanks)

    # Pairs are a list of tuples, or a tuple of two columns.
    pairs = list(zip(QUESTIONS, CONTEXTS, strict=True))
    for one in (model, *predictors.values()):
        first = one.answer(pairs[:2])
        assert first == one.answer((QUESTIONS[:2], CONTEXTS[:2]))
        assert [row["answer"] for row in first] == [row["answer"] for row in expected[:2]]

    rows = rest_rows(tmp_path / "saved" / "1", {"question": QUESTIONS[:6], "context": CONTEXTS[:6]})
    # A word that a long context repeats may have the same score at several places: which of them
    # comes first depends on the batch.
    for row in (*expected, *rows):
        del row["start"], row["end"]
    assert largest_difference(expected, rows) <= TOLERANCE


def check_answers(answers):
    """Answers are parts of their contexts."""
    for row, context in zip(answers, CONTEXTS, strict=False):
        if row["answer"]:
            assert context[row["start"] : row["end"]] == row["answer"]
        else:
            assert (row["start"], row["end"]) == (-1, -1)
        assert 0 <= row["probability"] <= 1


def check_without_words(answers, contexts=CONTEXTS[6:]):
    """Contexts without a word have no answer, and null odds above every threshold."""
    for row in answers.answer(QUESTIONS[6:], contexts):
        assert list(row.values()) == ["", -1, -1, 0.0, 1e6, 1.0]


@pytest.mark.parametrize(
    ("is_joint", "is_multilingual"),
    [
        (False, False),
        pytest.param(False, True, marks=pytest.mark.slow),
        pytest.param(True, False, marks=pytest.mark.slow),
    ],
)
def test_the_program_predicts_the_same(tmp_path, is_joint, is_multilingual):
    folder = write_joint_model(tmp_path) if is_joint else tmp_path / "model"
    if not is_joint:
        write_model(folder, "question_answering", None, is_multilingual, num_hidden_layers=1)
    questions = zip(QUESTIONS[:6], CONTEXTS[:6], strict=True)
    paragraphs = [
        {"context": context, "qas": [{"id": str(index), "question": question}]}
        for index, (question, context) in enumerate(questions)
    ]
    file = tmp_path / "questions.json"
    file.write_text(json.dumps({"version": "2", "data": [{"paragraphs": paragraphs}]}))
    flags = {
        **READING,
        "init_checkpoint": folder,
        "output_dir": tmp_path / "run",
        "predict_file": file,
        "do_predict": "true",
        "version_2_with_negative": "true",
        "null_score_diff_threshold": 0.0 if is_joint else -1.0,
        "span_head": "joint" if is_joint else "independent",
        "jit_compile": "false",
    }
    assert fine_tune("run_squad", **flags) == 0
    names = ("predictions", "null_odds", "nbest_predictions")
    texts, odds, nbest = (
        json.loads((tmp_path / "run" / f"{name}.json").read_text()) for name in names
    )
    model = bert_tf.BertSpanLabeler.from_pretrained(
        folder,
        max_seq_length=LENGTH,
        reading={
            "doc_stride": 5,
            "max_query_length": 6,
            "max_answer_length": 4,
            "version_2_with_negative": True,
            "null_score_diff_threshold": flags["null_score_diff_threshold"],
        },
    )
    found = model.answer(QUESTIONS[:6], CONTEXTS[:6])
    assert [row["answer"] for row in found] == list(texts.values())
    assert largest_difference(list(odds.values()), [row["null_odds"] for row in found]) <= TOLERANCE
    for row, entries in zip(found, nbest.values(), strict=True):
        best = next(entry for entry in entries if entry["text"])
        score = best["start_logit"] + best["end_logit"]
        assert row["score"] == pytest.approx(score, abs=1e-5)
        probabilities = {entry["text"]: entry["probability"] for entry in entries}
        if row["answer"] or not is_joint:
            assert row["probability"] == close_to(probabilities[row["answer"]])


def write_joint_model(tmp_path):
    """Writes a checkpoint with the joint head and its score for no answer."""
    made = make_checkpoint("encoder", seed=5, **{**SHAPE, "num_hidden_layers": 1})
    rng = np.random.default_rng(5)
    weights = make_weights(made.config, ("joint_squad", "answerable"), rng)
    write_checkpoint(dataclasses.replace(made, weights=weights), tmp_path / "joint", "bert_tf")
    return tmp_path / "joint"


@pytest.mark.slow
def test_a_joint_head_is_found_by_a_process_that_has_not_imported_it(tmp_path):
    folder = str(write_joint_model(tmp_path))
    program = "import bert_tf, sys; print(bert_tf.BertSpanLabeler.from_pretrained(sys.argv[1]))"
    command = [sys.executable, "-c", program, folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "BertJointSpanLabeler" in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("version_2", [False, True])
def test_the_joint_head_gives_the_same_and_has_no_lite_file(tmp_path, record_property, version_2):
    folder = write_joint_model(tmp_path)
    run = {**READING, "span_head": "joint", "beam_size": "6", "n_best_size": "5"}
    run["version_2_with_negative"] = str(version_2).lower()
    lines = [f"--{name}={value}\n" for name, value in run.items()]
    (folder / "run.flags").write_text("".join(lines))
    model = bert_tf.BertSpanLabeler.from_pretrained(folder)
    assert isinstance(model, bert_tf.BertJointSpanLabeler) and model.reading.beam_size == 6
    expected = model.answer(QUESTIONS[:6], CONTEXTS[:6])
    check_answers(expected)
    check_without_words(model)
    told = model.answer(QUESTIONS[:6], CONTEXTS[:6], may_be_none=False)
    assert all(row["answer"] for row in told)
    model.save(tmp_path / "model.keras")
    predictors = {
        "run": bert_tf.load(folder),
        "keras": bert_tf.load(tmp_path / "model.keras"),
        "SavedModel": load_saved_model(saved_model(folder, tmp_path)),
    }

    def ask(answers):
        return answers.answer(QUESTIONS[:6], CONTEXTS[:6])

    check_roads(expected, predictors, ask, record_property)
    for one in predictors.values():
        check_without_words(one)
    rows = rest_rows(tmp_path / "saved" / "1", {"question": QUESTIONS[:6], "context": CONTEXTS[:6]})
    assert largest_difference(expected, rows) <= TOLERANCE
    with pytest.raises(ValueError, match="LiteRT"):
        lite_file(folder, tmp_path)
