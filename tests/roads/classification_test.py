"""Classifiers give the same answers by every road, for each kind of label and of long text."""

import csv
import itertools
import json
import pathlib

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.run_record import write_calibration
from tests.export.made_models import ODD_TEXT, write_model
from tests.export.made_models import TEXTS as PLAIN_TEXTS
from tests.fine_tune import fine_tune, read_tsv, write_table
from tests.float_bounds import close_to
from tests.roads.roads import (
    LITE_TOLERANCE,
    TOLERANCE,
    check_roads,
    largest_difference,
    load_all,
    rest_rows,
)
from tests.slow_variants import slow_unless

LENGTH = 24
TEXTS = (*PLAIN_TEXTS, ODD_TEXT)
KIND_OF_LABEL = {
    "classifier": "single_label",
    "multi_label": "multi_label",
    "regression": "regression",
}
CASES = [
    ("classifier", "windows", False),
    ("classifier", "windows", True),
    ("multi_label", "windows", False),
    ("regression", "windows", True),
    ("classifier", "head", True),
    ("multi_label", "tail", True),
    ("regression", "head", False),
    ("classifier", "tail", False),
]
# Settings that some of the cases have besides; with thresholds, classifiers have two classes.
CALIBRATION = {
    ("classifier", "windows", False): {"temperature": "2.5"},
    ("multi_label", "windows", False): {
        "temperature": "0.6",
        "thresholds": '{"no": 0.45, "yes": 0.97, "vielleicht \\u00fc": 0.1}',
    },
    ("classifier", "head", True): {"temperature": "1.5", "thresholds": '{"yes": 0.7}'},
}
MULTILINGUAL_CASES = [
    ("classifier", "windows", True),
    ("multi_label", "head", False),
    ("regression", "tail", True),
]
OTHER_CASES = [
    case
    for case in itertools.product(KIND_OF_LABEL, ("head", "tail", "windows"), (False, True))
    if case not in CASES
]
SECONDS = ["the river", "w40 " * 60, "b", "", "a b c", "w41", "the " * 30, ODD_TEXT]


def make_run(
    folder: pathlib.Path, kind: str, long_texts: str, is_pair: bool, is_multilingual: bool = False
) -> pathlib.Path:
    """Writes a checkpoint with the record of a run."""
    run = {
        "problem_type": KIND_OF_LABEL[kind],
        "long_texts": long_texts,
        "max_seq_length": str(LENGTH),
        "text_b_column": "second" if is_pair else "",
    }
    chosen = CALIBRATION.get((kind, long_texts, is_pair), {})
    num_labels = 2 if kind == "classifier" and "thresholds" in chosen else 3
    folder = write_model(folder, kind, run, is_multilingual, num_labels, num_hidden_layers=1)
    if chosen:
        write_calibration(folder, chosen)
    return folder


def check_by_hand(model, texts, answers, chosen: dict[str, str]) -> None:
    """Checks answers of a calibrated model by its logits, its temperature and its thresholds."""
    logits = model.compute_logits(texts) / float(chosen["temperature"])
    powers = np.exp(logits.astype(np.float64))
    several = model.problem_type == "multi_label"
    chances = powers / (1 + powers) if several else powers / powers.sum(-1, keepdims=True)
    found = [list(row.values()) for row in answers[1]]
    np.testing.assert_allclose(found, chances, rtol=1e-6)
    thresholds = json.loads(chosen.get("thresholds", "{}"))
    usual = set()  # whether decisions are the same without thresholds
    for row, answer in zip(chances, answers[0], strict=True):
        by_label = dict(zip(model.labels, row, strict=True))
        if several:
            expected = {label for label in by_label if by_label[label] > thresholds[label]}
            assert set(answer["labels"]) == expected
            usual.add(expected == {label for label in by_label if by_label[label] > 0.5})
        elif thresholds:
            assert answer["label"] == ("yes" if by_label["yes"] > thresholds["yes"] else "no")
            assert answer["score"] == close_to(by_label[answer["label"]])
            usual.add(answer["label"] == max(by_label, key=by_label.get))
    assert not thresholds or False in usual


@pytest.mark.parametrize(
    "kind,long_texts,is_pair,is_multilingual",
    slow_unless(
        ("multi_label", "windows", False, False),
        [(*case, False) for case in CASES]
        + [(*case, True) for case in MULTILINGUAL_CASES]
        + [(*case, False) for case in OTHER_CASES],
    ),
)
def test_answers_are_the_same(
    tmp_path, record_property, kind, long_texts, is_pair, is_multilingual
):
    folder = make_run(tmp_path / "run", kind, long_texts, is_pair, is_multilingual)
    model = bert_tf.BertClassifier.from_pretrained(folder)
    assert (model.long_texts, model.pair) == (long_texts, is_pair)
    texts = list(zip(TEXTS, SECONDS, strict=True)) if is_pair else list(TEXTS)
    predictors = load_all(folder, model, tmp_path)

    def ask(answers, given=texts):
        if kind == "regression":
            return answers.score(given)
        found = [answers.classify(given), answers.probabilities(given)]
        if kind == "multi_label":
            found.append(answers.classify(given, threshold=0.3))
        return found

    expected = ask(model)
    if chosen := CALIBRATION.get((kind, long_texts, is_pair)):
        check_by_hand(model, texts, expected, chosen)
    check_roads(expected, predictors, ask, record_property)

    # Pairs are accepted as two columns and as dicts by all of them.
    if is_pair:
        dicts = [{"text": text, "text_b": second} for text, second in texts]
        for given in ((list(TEXTS), SECONDS), dicts):
            assert largest_difference(expected, ask(model, given)) <= TOLERANCE
            for predictor in predictors.values():
                assert largest_difference(expected, ask(predictor, given)) <= LITE_TOLERANCE

    # The REST form has the same labels and scores under the names of the signature's outputs.
    columns = {"text": list(TEXTS)} | ({"text_b": SECONDS} if is_pair else {})
    rows = rest_rows(tmp_path / "saved" / "1", columns)
    if kind == "regression":
        difference = largest_difference(expected, [row["value"] for row in rows])
        record_property("REST", difference)
        assert difference <= TOLERANCE
        return
    probabilities = [list(row.values()) for row in expected[1]]
    difference = largest_difference(probabilities, [row["probabilities"] for row in rows])
    record_property("REST", difference)
    assert difference <= TOLERANCE
    for answer, row in zip(expected[0], rows, strict=True):
        if kind == "classifier":
            assert row["label"] == answer["label"]
        else:
            assert [label for label in row["labels"] if label] == answer["labels"]


@pytest.mark.parametrize(
    "kind,long_texts,is_pair,is_multilingual",
    slow_unless(
        ("multi_label", "windows", False, False),
        [(*case, False) for case in CASES[:4]] + [(*case, True) for case in MULTILINGUAL_CASES],
    ),
)
def test_the_program_predicts_the_same(
    tmp_path, record_property, kind, long_texts, is_pair, is_multilingual
):
    folder = make_run(tmp_path / "model", kind, long_texts, is_pair, is_multilingual)
    texts = [text for text in TEXTS if text and "\t" not in text]
    seconds = SECONDS[: len(texts)]
    rows = [{"text": text} for text in texts]
    if is_pair:
        rows = [
            {"text": text, "second": second} for text, second in zip(texts, seconds, strict=True)
        ]
    run = {
        "do_predict": True,
        "init_checkpoint": str(folder),
        "output_dir": str(tmp_path / "run"),
        "predict_file": str(write_table(tmp_path / "texts.jsonl", rows)),
        "max_seq_length": LENGTH,
        "long_texts": long_texts,
        "problem_type": KIND_OF_LABEL[kind],
    }
    if is_pair:
        run["text_b_column"] = "second"
    assert fine_tune("run_classifier", **run) == 0
    with (tmp_path / "run" / "test_results.tsv").open(encoding="utf8") as file:
        found = [list(map(float, line)) for line in csv.reader(file, delimiter="\t")]
    model = bert_tf.BertClassifier.from_pretrained(folder)
    given = list(zip(texts, seconds, strict=True)) if is_pair else texts
    if kind == "regression":
        expected = [[score] for score in model.score(given)]
    else:
        expected = [list(row.values()) for row in model.probabilities(given)]
    difference = largest_difference(expected, found)
    record_property("program", difference)
    assert difference <= TOLERANCE
    if kind != "regression":
        rows = read_tsv(tmp_path / "run" / "predictions.tsv")
        answers = model.classify(given)
        for row, answer in zip(rows, answers, strict=True):
            found = set(filter(None, row["answer"].split("|")))  # Several labels may be none.
            assert found == set(answer.get("labels", [answer.get("label")]))


def test_windows_are_more_than_the_beginning(tmp_path):
    """The texts of these tests are long enough to tell the ways of reading apart."""
    whole = bert_tf.load(make_run(tmp_path / "windows", "classifier", "windows", False))
    head = bert_tf.load(make_run(tmp_path / "head", "classifier", "head", False))
    difference = largest_difference(whole.probabilities(TEXTS), head.probabilities(TEXTS))
    assert difference > 1e-3
