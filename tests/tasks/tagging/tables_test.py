"""Words and tags in JSON and tables: every form, worked out by hand, and every error's line."""

import csv
import json
import pathlib
from typing import Any

import pytest

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.tasks.tagging.files import (
    predictions_name,
    read_tagged,
    tag_ids,
    tag_names,
    with_known_tags,
    write_tagged,
)


def write(path: pathlib.Path, *rows: Any) -> pathlib.Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf8")
    return path


def read(path: pathlib.Path, **options: Any) -> list[tuple[list[str], list[str] | None]]:
    return [
        (list(s.words), None if s.tags is None else list(s.tags))
        for s in read_tagged(path, **options)
    ]


PARIS = (["Paris", "is", "big"], ["B-LOC", "O", "O"])
IN = (["In", "New", "York", ",", "Ada"], ["O", "B-LOC", "I-LOC", "O", "B-PER"])


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"tokens": PARIS[0], "ner_tags": PARIS[1]}, PARIS),
        ({"words": PARIS[0], "labels": PARIS[1], "id": 3}, PARIS),
        ({"text": "Paris is big", "label": [[0, 5, "LOC"]]}, PARIS),
        ({"text": "In New York, Ada", "labels": [[13, 16, "PER"], [3, 11, "LOC"]]}, IN),
        (
            {
                "text": "In New York, Ada",
                "entities": [
                    {"id": 1, "start_offset": 3, "end_offset": 11, "label": "LOC"},
                    {"start": 12, "end": 16, "label": "PER"},
                ],
            },
            IN,
        ),
        ({"tokenized_text": IN[0], "ner": [[4, 4, "PER"], [1, 2, "LOC"]]}, IN),
        ({"text": "In Rome", "label": "x", "spans": [[3, 7, "L"]]}, (["In", "Rome"], ["O", "B-L"])),
        ({"text": "In Rome", "label": []}, (["In", "Rome"], ["O", "O"])),
        ({"text": "In Rome", "label": None}, (["In", "Rome"], None)),
        ({"text": "In Rome"}, (["In", "Rome"], None)),
        ({"tokens": ["In", "Rome"]}, (["In", "Rome"], None)),
        (
            {"text": "巴黎很大", "label": [[0, 2, "LOC"]]},
            (list("巴黎很大"), ["B-LOC", "I-LOC", "O", "O"]),
        ),
        ({"tokens": ["a", "b"], "ner_tags": [3, 0]}, (["a", "b"], ["3", "0"])),
    ],
)
def test_sentences_of_json(tmp_path, row, expected):
    assert read(write(tmp_path / "t.jsonl", row)) == [expected]
    path = tmp_path / "list.json"
    path.write_text(json.dumps([row, row], indent=1), encoding="utf8")
    assert read(path) == [expected, expected]
    # Whatever the name says, JSON is no text of one word.
    assert read(write(tmp_path / "t.txt", row)) == [expected]


@pytest.mark.parametrize(
    "row",
    [
        {"text": "Paris is big", "label": [[0, 3, "LOC"]]},
        {"text": "Paris is big", "label": [[2, 5, "LOC"]]},
        {"text": "Paris is big", "label": [[0, 5, "LOC"], [0, 8, "X"]]},
        {"text": "Paris is big", "label": [[5, 6, "LOC"]]},
        {"text": "Paris is big", "label": [[20, 25, "LOC"]]},
        {"text": "Paris is big", "label": [[9, 14, "LOC"], [0, 5, "LOC"]]},
        {"text": "Paris is big", "label": [["0", 5, "LOC"]]},
        {"text": "Paris is big", "label": "LOC"},
        {"tokens": ["a", "b"], "ner_tags": ["O"]},
        {"tokens": ["a", "b"], "ner_tags": ["O", None]},
        {"tokens": ["a", 1], "ner_tags": ["O", "O"]},
        {"tokenized_text": ["a", "b"], "ner": [[0, 2, "X"]]},
        {"tokenized_text": ["a", "b"], "ner": [[0, 1, "X"], [1, 1, "Y"]]},
        {"sentences": "a"},
    ],
)
def test_rows_that_are_wrong(tmp_path, row):
    good = {"tokens": ["a"], "ner_tags": ["O"]}
    path = write(tmp_path / "t.jsonl", good, row)
    with pytest.raises(ValueError, match=f"{path} line 2"):
        read(path)
    path = write(tmp_path / "t.jsonl", good, row, row)
    with pytest.raises(ValueError, match=f"2 of 3 .*{path} line 2.*{path} line 3"):
        read(path)


def test_label_studios_spans_have_a_list_of_labels(tmp_path):
    span = {"start": 0, "end": 5, "text": "Paris", "labels": ["LOC"]}
    assert read(write(tmp_path / "t.jsonl", {"text": "Paris is big", "label": [span]})) == [PARIS]


@pytest.mark.parametrize("text", ["word,tag\nParis,B-LOC\n", "Paris,B-LOC\n", "Word, Tag\na, O\n"])
def test_a_csv_without_sentences_is_not_taken_for_words(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=str(path)):
        read(path)
    path.write_text("Paris B-LOC\n1,000 O\n")  # Columns of words, whatever the name.
    assert read(path) == [(["Paris", "1,000"], ["B-LOC", "O"])]


def test_sentences_of_kaggles_table(tmp_path):
    path = tmp_path / "ner_dataset.csv"
    path.write_text(
        "Sentence #,Word,POS,Tag\nSentence: 1,Paris,NNP,B-geo\n,is,VB,O\n,nan,NN,O\n"
        'Sentence: 2,null,NN,O\n,",",",",O\n',
        encoding="utf8",
    )
    expected = [(["Paris", "is", "nan"], ["B-geo", "O", "O"]), (["null", ","], ["O", "O"])]
    assert read(path) == expected
    assert read(path, tag_column="POS")[1][1] == ["NN", ","]
    assert read(path, tag_column=None)[1] == (["null", ","], None)
    assert [s.source for s in read_tagged(path)] == [f"{path} line 2", f"{path} line 5"]
    path.write_text("Word;Tag;sentence_id\nParis;O;1\nis;O;1\nIt;O;2\n", encoding="utf8")
    assert read(path) == [(["Paris", "is"], ["O", "O"]), (["It"], ["O"])]
    path.write_text("Sentence #,Word,POS,Tag\n1,a,X,O\n,,X,O\n,b,X,\n", encoding="utf8")
    with pytest.raises(ValueError, match=f"2 of .*{path} line 3.*{path} line 4"):
        read(path)


def test_lists_in_cells(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "tokens,ner_tags\n\"['Paris', 'is']\",\"['B-LOC', 'O']\"\n\"['It' 'is']\",['O' 'O']\n",
        encoding="utf8",
    )
    assert read(path) == [(["Paris", "is"], ["B-LOC", "O"]), (["It", "is"], ["O", "O"])]
    path.write_text(
        "Sentence #,Sentence,POS,Tag\n1,Paris is,\"['NN', 'VB']\",\"['B-geo', 'O']\"\n",
        encoding="utf8",
    )
    assert read(path, tag_column="Tag") == [(["Paris", "is"], ["B-geo", "O"])]


def test_sentences_without_tags(tmp_path):
    path = write(tmp_path / "t.jsonl", {"tokens": ["a"], "tags": ["O"]}, {"tokens": ["b"]})
    with pytest.raises(ValueError, match=f"{path} line 2.*1 of 2"):
        read_tagged(path, is_needed=True)
    kept = read(path, is_needed=True, reading=TableConfig(skip_unlabelled=True))
    assert kept == [(["a"], ["O"])]


def test_tags_that_are_numbers(tmp_path):
    rows = [{"tokens": ["a", "b"], "ner_tags": [10, 2]}, {"tokens": ["c"], "ner_tags": ["2.0"]}]
    sentences = read_tagged(write(tmp_path / "t.jsonl", *rows))
    assert tag_names(sentences) == ("2", "10")
    assert [ids.tolist() for ids in tag_ids(sentences, ("2", "10"))] == [[1, 0], [0]]
    assert with_known_tags(sentences, ("2", "10"))[1].tags == ("2",)


def test_predictions_are_written_in_the_form_of_the_input(tmp_path):
    rows = [
        {"text": "In New York", "label": [[3, 11, "LOC"]], "id": 7},
        {"text": "", "id": 8},
        {"tokens": ["Ada"], "id": 9},
        {"tokenized_text": ["Ada", "left"], "ner": []},
    ]
    path, out = write(tmp_path / "t.jsonl", *rows), tmp_path / "out"
    tags = [["O", "B-LOC", "I-LOC"], ["B-PER"], ["B-PER", "O"]]
    write_tagged(path, out, tags)
    found = [json.loads(line) for line in out.read_text(encoding="utf8").splitlines()]
    assert [row.pop("predicted_tags") for row in found] == [tags[0], [], tags[1], tags[2]]
    spans = [row.pop("predicted_entities", None) for row in found]
    assert spans == [[[3, 11, "LOC"]], None, None, [[0, 0, "PER"]]]
    assert found == rows
    assert predictions_name(path) == "predictions.jsonl"
    with pytest.raises(ValueError, match="t.jsonl"):
        write_tagged(path, out, tags[:2])


def test_predictions_of_a_table_are_one_more_column(tmp_path):
    path, out = tmp_path / "t.csv", tmp_path / "out.csv"
    path.write_text('Sentence #,Word,Tag\n1,"a,b",O\n,c,O\n2,d,O\n', encoding="utf8")
    write_tagged(path, out, [["X", "Y"], ["Z"]])
    with out.open(encoding="utf8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["predicted_tags"] for row in rows] == ["X", "Y", "Z"]
    assert [row["Word"] for row in rows] == ["a,b", "c", "d"]
    assert predictions_name(path) == "predictions.csv"
    plain = tmp_path / "t.conll"
    plain.write_text("a O\n", encoding="utf8")
    assert predictions_name(plain) == "predictions.txt"
    with pytest.raises(ValueError, match="t.conll"):
        write_tagged(f"{plain},{path}", out, [["X"], ["X", "Y"], ["Z"]])


def test_json_with_one_word_per_row(tmp_path):
    rows = [
        {"sentence_id": 1, "word": "Ada", "tag": "B-PER"},
        {"sentence_id": None, "word": "left", "tag": "O"},
        {"word": "Oslo", "tag": "B-LOC"},
        {"sentence_id": 2, "word": "It", "tag": "O"},
    ]
    path, out = write(tmp_path / "t.jsonl", *rows), tmp_path / "out"
    # Without a number, a word continues its sentence, as in tables with empty cells.
    words = (["Ada", "left", "Oslo"], ["B-PER", "O", "B-LOC"])
    assert read(path) == [words, (["It"], ["O"])]
    write_tagged(path, out, [["W", "X", "Y"], ["Z"]])
    found = [json.loads(line) for line in out.read_text(encoding="utf8").splitlines()]
    assert [row.pop("predicted_tags") for row in found] == ["W", "X", "Y", "Z"]
    assert found == rows


def test_json_with_one_word_per_row_without_tag_or_word(tmp_path):
    rows = [{"sentence_id": 1, "word": "Ada", "tag": "B-PER"}]
    path = write(tmp_path / "t.jsonl", *rows, {"sentence_id": 1, "word": "left", "tag": None})
    assert read(path) == [(["Ada", "left"], None)]
    path = write(tmp_path / "t.jsonl", *rows, {"sentence_id": 1, "tag": "O"})
    with pytest.raises(ValueError, match=f"{path} line 2.*word"):
        read(path)


def test_predicted_entities_are_written_where_the_row_has_spans_of_words(tmp_path):
    rows = [
        {"tokens": ["Ada", "left"], "labels": [[0, 0, "PER"]]},
        {"tokens": ["Ada", "left"], "ner": ["B-PER", "O"]},
    ]
    path, out = write(tmp_path / "t.jsonl", *rows), tmp_path / "out"
    write_tagged(path, out, [["O", "B-LOC"], ["O", "B-LOC"]])
    found = [json.loads(line) for line in out.read_text(encoding="utf8").splitlines()]
    assert [row.get("predicted_entities") for row in found] == [[[1, 1, "LOC"]], None]


def test_predictions_of_lists_of_tags_are_for_the_same_words(tmp_path):
    path, out = tmp_path / "t.csv", tmp_path / "out.csv"
    path.write_text("Sentence,Tag\nParis is.,\"['B-LOC', 'O']\"\n", encoding="utf8")
    words = ["Paris", "is."]  # split at white space, as the tags are
    assert read(path) == [(words, ["B-LOC", "O"])]
    assert read(path, tag_column=None) == [(words, None)]
    write_tagged(path, out, [["X", "Y"]])
    with out.open(encoding="utf8", newline="") as file:
        assert [row["predicted_tags"] for row in csv.DictReader(file)] == ["['X', 'Y']"]
    # A list of another length is no list of tags.
    path.write_text("Sentence,Tag\nParis is.,\"['travel']\"\n", encoding="utf8")
    assert read(path, tag_column=None) == [(["Paris", "is", "."], None)]


@pytest.mark.parametrize("is_named", [True, False])
def test_predictions_have_the_words_that_the_named_column_of_tags_gives(tmp_path, is_named):
    gold = "gold" if is_named else "tags"
    column = {"tag_column": "gold"} if is_named else {}
    rows = [
        {"text": "Paris is.", gold: ["B-LOC", "O"]},
        {"text": "No tags.", gold: None},
        {"text": "One more."},
    ]
    path, out = write(tmp_path / "t.jsonl", *rows[:1]), tmp_path / "out"
    words = ["Paris", "is."]
    assert read(path, **column) == [(words, ["B-LOC", "O"])]
    assert read(path, reads_tags=False, **column) == [(words, None)]
    write_tagged(path, out, [["X", "Y"]], **column)
    assert json.loads(out.read_text(encoding="utf8"))["predicted_tags"] == ["X", "Y"]
    # Without tags a text is split at punctuation, and the column may be missing.
    path = write(tmp_path / "t.jsonl", *rows)
    expected = [words, ["No", "tags", "."], ["One", "more", "."]]
    assert read(path, reads_tags=False, **column) == [(one, None) for one in expected]
    write_tagged(path, out, expected, **column)
    found = [json.loads(line) for line in out.read_text(encoding="utf8").splitlines()]
    assert [row["predicted_tags"] for row in found] == expected


def test_predicted_entities_follow_the_spans_of_the_named_column(tmp_path):
    row = {"tokens": ["Ada", "left"], "gold": [[0, 0, "PER"]], "tags": ["O", "O"]}
    path, out = write(tmp_path / "t.jsonl", row), tmp_path / "out"
    write_tagged(path, out, [["O", "B-LOC"]], tag_column="gold")
    assert json.loads(out.read_text(encoding="utf8"))["predicted_entities"] == [[1, 1, "LOC"]]
    write_tagged(path, out, [["O", "B-LOC"]])
    assert "predicted_entities" not in json.loads(out.read_text(encoding="utf8"))


def test_a_span_that_two_people_marked_is_one_and_a_rejected_one_is_named(tmp_path):
    span = {"start": 0, "end": 5, "label": "LOC"}
    path = write(tmp_path / "t.jsonl", {"text": "Paris is", "spans": [span, {**span}]})
    assert read(path) == [(["Paris", "is"], ["B-LOC", "O"])]
    write(path, {"text": "Paris is", "spans": [{**span, "answer": "reject"}]})
    with pytest.raises(ValueError, match=r"t.jsonl line 1: .*reject"):
        read(path)
