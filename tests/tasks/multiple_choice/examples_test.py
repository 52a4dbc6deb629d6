"""SWAG's table and JSONL with choices: examples written by hand, and every error with its line."""

import json
import pathlib
from typing import Any

import pytest

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.tasks.multiple_choice.examples import ChoiceExample, read_swag

HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
ROW = '5,anetv_x,3,"A, b. He",A sat.,He,gold,"is ""up"".",goes.,,sees,2'


def write(path: pathlib.Path, content: str) -> str:
    path.write_text(content, encoding="utf8")
    return str(path)


def write_json(path: pathlib.Path, rows: list[dict[str, Any]]) -> str:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def test_the_table_of_swag(tmp_path):
    path = write(tmp_path / "train.csv", f"{HEADER},label\n{ROW}\n{ROW[:-1]}0\n")
    first = ChoiceExample(
        "A sat.", "He", ('is "up".', "goes.", "", "sees"), 2, "0", f"{path} line 2"
    )
    second = first._replace(label=0, id="1", source=f"{path} line 3")
    assert read_swag(path) == [first, second]
    test = write(tmp_path / "test.csv", f"{HEADER}\n{ROW[:-2]}\n")
    assert read_swag(test) == [first._replace(label=None, source=f"{test} line 2")]
    write(tmp_path / "test.csv", f"{HEADER},label\n{ROW[:-1]}\n")  # an empty cell
    assert read_swag(test) == [first._replace(label=None, source=f"{test} line 2")]
    assert [example.id for example in read_swag(f"{path},{test}")] == ["0", "1", "2"]


def test_swag_columns_as_json(tmp_path):
    row = {"sent1": "a", "sent2": "", "ending0": "x", "ending1": "y", "label": 1, "video-id": 7}
    path = write_json(tmp_path / "t.jsonl", [row])
    assert read_swag(path) == [ChoiceExample("a", "", ("x", "y"), 1, "0", f"{path} line 1")]


def test_lists_of_choices(tmp_path):
    rows = [
        {"context": "c", "question": "q", "choices": ["x", "y", "z"], "label": 2},
        {"question": "q", "choices": ["x", "y", "z"], "label": "0"},
        {"context": "c", "choices": ["x", "y", ""], "label": None},
        {"context": "c", "choices": ["x", "y", "z"]},
    ]
    path = write_json(tmp_path / "t.jsonl", rows)
    assert [example[:4] for example in read_swag(path)] == [
        ("c", "q", ("x", "y", "z"), 2),
        ("q", "", ("x", "y", "z"), 0),
        ("c", "", ("x", "y", ""), None),
        ("c", "", ("x", "y", "z"), None),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": 2}, "label 2,.* 0 .* 1"),
        ({"label": -1}, "label -1,.* 0 .* 1"),
        ({"label": True}, "label True,.* 0 .* 1"),
        ({"label": "A"}, "label 'A',.* 0 .* 1"),
        ({"label": 1.5}, "label 1.5,.* 0 .* 1"),
        ({"choices": ["x"]}, "1 .* 2, .*t.jsonl line 1"),
        ({"choices": ["x", "y", "z"]}, "3 .* 2, .*t.jsonl line 1"),
        ({"choices": "xy"}, "choices .*'xy'"),
        ({"choices": ["x", 1]}, r"choices .*\['x', 1\]"),
        ({"context": 1}, "'context' .*1"),
        ({"question": None}, "'question' .*None"),
    ],
)
def test_rows_that_are_wrong(tmp_path, changes, message):
    row = {"context": "c", "choices": ["x", "y"], "label": 1}
    path = write_json(tmp_path / "t.jsonl", [row, row | changes])
    with pytest.raises(ValueError, match=f"^{path} line 2: {message}"):
        read_swag(path, is_needed=True)
    if "label" in changes:
        assert [example.label for example in read_swag(path)] == [1, None]


def test_tables_that_are_something_else(tmp_path):
    path = write_json(tmp_path / "t.jsonl", [{"choices": ["x"], "context": "c"}])
    with pytest.raises(ValueError, match="t.jsonl line 1: 1 .* 2 "):
        read_swag(path)
    path = write_json(tmp_path / "t.jsonl", [{"choices": ["x", "y"], "text": "c"}])
    with pytest.raises(ValueError, match="line 1 .*'context' .*'question'.* 'choices', 'text'"):
        read_swag(path)
    path = write(tmp_path / "t.csv", "sent1,sent2,label\na,b,0\n")
    with pytest.raises(ValueError, match="line 2 .*'ending0'.* 'sent1', 'sent2', 'label'"):
        read_swag(path)
    with pytest.raises(ValueError, match="t.csv .*rows; .*SWAG"):
        read_swag(write(tmp_path / "t.csv", f"{HEADER},label\n"))


def test_labels_and_lists_as_pandas_writes_them(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("context;choices;label\nc;['x', 'y'];1.0\nd;['x' 'y'];\n", encoding="utf8")
    first, second = read_swag(str(path))
    assert (first.choices, first.label) == (("x", "y"), 1)
    assert (second.choices, second.label) == (("x", "y"), None)
    with pytest.raises(ValueError, match=f"{path} line 3: .*label.* --skip_unlabelled"):
        read_swag(str(path), is_needed=True)
    (kept,) = read_swag(str(path), is_needed=True, reading=TableConfig(skip_unlabelled=True))
    assert kept == first
    path = write_json(
        tmp_path / "t.jsonl", [{"context": "c", "choices": ["x", "y"], "label": 9}] * 2
    )
    with pytest.raises(ValueError, match=f"2 of 2 .*{path} line 1.*{path} line 2"):
        read_swag(str(path), is_needed=True)
