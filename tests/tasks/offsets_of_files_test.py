"""Offsets in UTF-16, bytes and other line ends, and brat's files, worked out by hand."""

import csv
import json

import pytest

from bert_tf.tasks.question_answering.questions import read_squad
from bert_tf.tasks.tagging.files import read_tagged

CONTEXT = "a 😀é line\nin Paris 😀 or Oslo."
UNITS = {
    "code points": len,
    "utf-16": lambda head: len(head.encode("utf-16-le")) // 2,
    "utf-8": lambda head: len(head.encode("utf8")),
    "crlf": lambda head: len(head.replace("\n", "\r\n")),
}


def offset(word: str, unit: str) -> int:
    return UNITS[unit](CONTEXT[: CONTEXT.index(word)])


@pytest.mark.parametrize("unit", UNITS)
def test_starts_of_answers_are_converted(unit, tmp_path):
    rows = []
    for index, word in enumerate(("Paris", "Oslo")):
        answers = {"text": [word], "answer_start": [offset(word, unit)]}
        row = {"id": str(index), "context": CONTEXT, "question": "where?", "answers": answers}
        rows.append(row)
    path = tmp_path / "qa.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf8")
    for question in read_squad(path, is_training=True, version_2=False):
        assert CONTEXT[question.answer.start :].startswith(question.answer.text)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("form", ["jsonl", "ann"])
def test_spans_of_entities_are_converted(unit, form, tmp_path):
    # The words of the second line come last in both forms.
    spans = [
        [offset(word, unit), offset(word, unit) + len(word), "LOC"] for word in ("Paris", "Oslo")
    ]
    path = tmp_path / f"ner.{form}"
    if form == "jsonl":
        path.write_text(json.dumps({"text": CONTEXT, "label": spans}), encoding="utf8")
    else:
        lines = [
            f"T{index}\t{label} {start} {end}\t{word}\n"
            for index, ((start, end, label), word) in enumerate(
                zip(spans, ("Paris", "Oslo"), strict=True)
            )
        ]
        path.write_text("".join(lines) + "R1\tin Arg1:T0 Arg2:T1\n", encoding="utf8")
        path.with_suffix(".txt").write_text(CONTEXT, encoding="utf8")
    sentences = read_tagged(str(path), is_needed=True)
    tagged = [
        (word, tag)
        for sentence in sentences
        for word, tag in zip(sentence.words, sentence.tags, strict=True)
    ]
    assert [word for word, tag in tagged if tag == "B-LOC"] == ["Paris", "Oslo"]
    assert len(sentences) == (1 if form == "jsonl" else 2)


def labelled_rows() -> list[dict]:
    """Returns rows with a span each, in UTF-16; the last one is wrong in any unit."""
    rows = []
    for word in ("Paris", "Oslo"):
        start = offset(word, "utf-16")
        rows.append({"text": CONTEXT, "label": [[start, start + len(word), "LOC"]]})
    return [*rows, {"text": "plain words", "label": [[1, 3, "LOC"]]}]


def test_one_wrong_span_leaves_the_unit_of_the_others(tmp_path):
    path = tmp_path / "ner.jsonl"
    path.write_text("\n".join(map(json.dumps, labelled_rows())), encoding="utf8")
    with pytest.raises(ValueError, match=r"ner\.jsonl line 3: ") as caught:
        read_tagged(str(path), is_needed=True)
    assert "line 1" not in str(caught.value)


def test_one_wrong_answer_leaves_the_unit_of_the_others(tmp_path):
    rows = []
    starts = {"Paris": offset("Paris", "utf-16"), "Oslo": offset("Oslo", "utf-16"), "in": 0}
    for word, start in starts.items():
        answers = {"text": [word], "answer_start": [start]}
        row = {"id": word, "context": CONTEXT, "question": "where?", "answers": answers}
        rows.append(row)
    path = tmp_path / "qa.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf8")
    questions = read_squad(path, is_training=True, version_2=False)
    assert [question.id for question in questions] == ["Paris", "Oslo"]
    for question in questions:
        assert CONTEXT[question.answer.start :].startswith(question.id)


@pytest.mark.parametrize("form", ["objects", "lists"])
def test_spans_in_a_cell_are_read(form, tmp_path):
    """Label Studio's CSV has a list of objects, and doccano's rows lists, as JSON."""
    path = tmp_path / "ner.csv"
    with path.open("w", encoding="utf8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for row in labelled_rows()[:2]:
            ((start, end, label),) = spans = row["label"]
            if form == "objects":
                spans = [{"start": start, "end": end, "text": "x", "labels": [label]}]
            writer.writerow([row["text"], json.dumps(spans)])
    tagged = []
    for sentence in read_tagged(str(path), is_needed=True):
        tagged += [word for word, tag in zip(*sentence[:2], strict=True) if tag != "O"]
    assert tagged == ["Paris", "Oslo"]


def test_brat_without_its_text_is_named(tmp_path):
    path = tmp_path / "a.ann"
    path.write_text("T1\tLOC 0 5\tParis\n", encoding="utf8")
    with pytest.raises(ValueError, match=r"a\.txt"):
        read_tagged(str(path))


def test_questions_of_mrqa_are_read(tmp_path):
    answer = {"text": "Oslo", "char_spans": [[offset("Oslo", "code points"), 30]]}
    qas = [{"qid": "q1", "question": "where?", "answers": ["Oslo"], "detected_answers": [answer]}]
    lines = [{"header": {"dataset": "x"}}, {"id": "", "context": CONTEXT, "qas": qas}]
    path = tmp_path / "mrqa.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf8")
    (question,) = read_squad(path, is_training=True, version_2=False)
    assert (question.id, question.answer.text) == ("q1", "Oslo")
