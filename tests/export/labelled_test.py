"""The labelled examples that a LiteRT file is scored on, and the metrics of answers to them."""

import json
import types

import pytest

from export.lite.labelled import read_labelled


def write_run(folder, kind, flags, labels=(), **options):
    """Writes the record of a run; returns a stand-in for its model."""
    lines = [f"--{name}={value}\n" for name, value in flags.items()]
    (folder / "run.flags").write_text("".join(lines))
    return types.SimpleNamespace(kind=kind, labels=labels, texts=("text",), **options)


@pytest.mark.parametrize("kind", ["classifier", "tagger", "question_answering"])
@pytest.mark.parametrize(
    ("split", "record", "flags"),
    [
        ("dev", {"eval_file": "data/gone.csv"}, ("--eval_file", "--no_gate")),
        ("train", {"train_file": "data/gone.csv"}, ("--calibration_file",)),
        ("dev", {"task_name": "sst-2", "data_dir": "data/gone.csv"}, ("--eval_file", "--no_gate")),
    ],
)
def test_missing_files_are_named_with_the_flags_that_replace_them(
    tmp_path, kind, split, record, flags
):
    served = write_run(tmp_path, kind, record, ("a", "b"))
    with pytest.raises(ValueError, match=r"data/gone\.csv") as error:
        read_labelled(served, str(tmp_path), split)
    assert all(flag in str(error.value) for flag in flags)


TABLE = "text;label\na;no\nb;\nc;yes\n"
SENTENCE = '{"tokens": ["a"], "ner_tags": ["X"]}\n'
SENTENCES = SENTENCE + '{"tokens": ["b"], "ner_tags": null}\n' + SENTENCE


@pytest.mark.parametrize(
    ("kind", "name", "content", "flags", "labels", "texts", "line"),
    [
        ("classifier", "dev.csv", TABLE, {"delimiter": ";"}, ("no", "yes"), "ac", 3),
        ("tagger", "dev.jsonl", SENTENCES, {}, ("O", "X"), "aa", 2),
    ],
)
def test_what_the_run_skips_is_not_scored(
    tmp_path, kind, name, content, flags, labels, texts, line
):
    (tmp_path / name).write_text(content)
    flags = {"eval_file": tmp_path / name, **flags}
    served = write_run(tmp_path, kind, {**flags, "skip_unlabelled": "true"}, labels)
    examples = read_labelled(served, str(tmp_path))
    assert examples.texts == [(text, "") for text in texts]
    served = write_run(tmp_path, kind, flags, labels)
    with pytest.raises(ValueError, match=f"{name} line {line}"):
        read_labelled(served, str(tmp_path))


QUESTIONS = [
    {"id": "1", "question": "q", "answers": [{"text": "the river road", "answer_start": 0}]},
    {"id": "2", "question": "q", "answers": [], "is_impossible": True},
]
SQUAD = json.dumps({"data": [{"paragraphs": [{"context": "the river road", "qas": QUESTIONS}]}]})
# By kind: file, content, labels, the predictor's method and answers, metric and value in percent.
SCORED = {
    "classifier": (
        ("dev.csv", "text,label\na,0\nb,1\nc,1\nd,0\n", ("0", "1")),
        ("classify", [{"label": label, "score": 0.9} for label in "0111"]),
        ("accuracy", 75.0),
    ),
    # 2 right of 3 given and 3 true labels.
    "multi_label": (
        ("dev.csv", "text,label\na,x|y\nb,y\nc,\n", ("x", "y")),
        ("classify", [{"labels": ["y", "x"]}, {"labels": []}, {"labels": ["x"]}]),
        ("micro_f1", 100 * 2 / 3),
    ),
    # Deviations -1 0 1 and -1 1 0.
    "regression": (
        ("dev.csv", "text,label\na,1\nb,2\nc,3\n", ()),
        ("score", [1.0, 3.0, 2.0]),
        ("pearson", 50.0),
    ),
    # PER is right, LOC is missing.
    "tagger": (
        ("dev.conll", "a B-PER\nb O\n\nc B-LOC\n", ("O", "B-PER", "B-LOC")),
        ("tag", [[{"label": "B-PER"}, {"label": "O"}], [{"label": "O"}]]),
        ("f1", 100 * 2 / 3),
    ),
    # Without the article, 1 of 1 and 1 of 2 words are right: 2 / 3; no answer is right: 1.
    "question_answering": (
        ("dev.json", SQUAD, ()),
        ("answer", [{"answer": "river"}, {"answer": ""}]),
        ("f1", 250 / 3),
    ),
}


@pytest.mark.parametrize("kind", SCORED)
def test_answers_are_scored_by_the_metric_of_the_task(tmp_path, kind):
    (name, content, labels), (method, answers), (metric, value) = SCORED[kind]
    (tmp_path / name).write_text(content)
    served = write_run(tmp_path, kind, {}, labels, version_2=True)
    examples = read_labelled(served, str(tmp_path), file=str(tmp_path / name))
    asked = []

    def answer(texts):
        asked.extend(texts)
        return answers

    points = examples.points(types.SimpleNamespace(**{method: answer}))
    assert len(asked) == len(examples.texts) == len(answers)
    assert examples.metric == metric and points == pytest.approx(value)
