"""Examples from one's own tables, and what becomes of their labels; values worked out by hand."""

import json
import pathlib
import re
from typing import Any

import numpy as np
import pytest

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.tasks.classification.examples import TextExample, read_text_examples
from bert_tf.tasks.classification.label_arrays import (
    describe,
    label_ids,
    label_names,
    label_rows,
    label_values,
)


def write(path: pathlib.Path, content: str) -> str:
    path.write_text(content, encoding="utf8")
    return str(path)


def write_labels(path: pathlib.Path, labels: list[Any]) -> str:
    return write(path, "".join(json.dumps({"t": "x", "y": label}) + "\n" for label in labels))


def labelled(*labels: str | None) -> list[TextExample]:
    return [TextExample("x", "", label, str(n), f"f line {n}") for n, label in enumerate(labels)]


def test_pairs_from_several_files(tmp_path):
    first = write(tmp_path / "1.csv", 'y,b,a\n no ,"two, ""2""",one\n"",,  four\n')
    second = write(tmp_path / "2.jsonl", '{"a": "five", "b": "six", "y": null, "more": 1}\n')
    assert read_text_examples(f"{first},{second}", "a", "b", "y") == [
        TextExample("one", 'two, "2"', "no", "0", f"{first} line 2"),
        TextExample("  four", "", "", "1", f"{first} line 3"),
        TextExample("five", "six", None, "2", f"{second} line 1"),
    ]
    assert read_text_examples(f"{tmp_path}/1.*", "b")[0] == TextExample(
        'two, "2"', None, None, "0", f"{first} line 2"
    )


def test_labels_of_json(tmp_path):
    labels = ["a b", 1, 2.5, -0.1, True, False, None, ["x", "y"], [3], [], ""]
    path = write_labels(tmp_path / "t.jsonl", labels)
    examples = read_text_examples(path, "t", label_column="y")
    expected = ["a b", "1", "2.5", "-0.1", "true", "false", None, "x|y", "3", "", ""]
    assert [example.label for example in examples] == expected
    path = write(tmp_path / "t.jsonl", '{"t": "x"}\n{"t": "x", "y": "z"}\n')
    assert [e.label for e in read_text_examples(path, "t", label_column="y")] == [None, "z"]


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (["a", None], "label None"),
        ([["a"]], r"label \['a'\]"),
        ({"a": 1}, r"label {'a': 1}"),
        (["a|b"], "label 'a|b'.*'|'"),
        (["a", ""], "label ''"),
    ],
)
def test_labels_that_are_none(tmp_path, label, message):
    path = write_labels(tmp_path / "t.jsonl", ["fine", label])
    with pytest.raises(ValueError, match=f"^{path} line 2: {message.replace('|', '[|]')}"):
        read_text_examples(path, "t", label_column="y", is_needed=True)
    for column, first in (("y", "fine"), ("z", None)):
        examples = read_text_examples(path, "t", label_column=column)
        assert [example.label for example in examples] == [first, None]


def test_columns_that_are_missing(tmp_path):
    path = write(tmp_path / "t.tsv", "sentence\tlabel\nx\t1\n")
    columns = "'sentence', 'label'.*--text_column, --text_b_column .*--label_column"
    with pytest.raises(ValueError, match=f"{path} line 2: --text_column .*'text'.*{columns}"):
        read_text_examples(path, "text")
    with pytest.raises(ValueError, match=f"--text_b_column .*'b'.*{columns}"):
        read_text_examples(path, "sentence", "b")
    with pytest.raises(ValueError, match=f"{path}: --label_column .*'y'.*{columns}"):
        read_text_examples(path, "sentence", "", "y", is_needed=True)
    with pytest.raises(ValueError, match="^--text_column "):
        read_text_examples(path, "")
    with pytest.raises(ValueError, match="t.tsv .*row"):
        read_text_examples(write(tmp_path / "t.tsv", "sentence\tlabel\n"), "sentence")
    with pytest.raises(ValueError, match=f"'{path}x'"):
        read_text_examples(f"{path}x", "sentence")


@pytest.mark.parametrize("value", [None, 3, ["x"]])
def test_text_that_is_none(tmp_path, value):
    path = write(tmp_path / "t.jsonl", '{"t": ""}\n' + json.dumps({"t": value}))
    with pytest.raises(ValueError, match=f"^{path} line 2: 't' .*{re.escape(str(value))}"):
        read_text_examples(path, "t")


def test_features_of_a_data_set_are_columns(tmp_path):
    tfds = pytest.importorskip("tensorflow_datasets")
    from tensorflow_datasets.core.utils import file_utils

    tfds.dataset_builders.store_as_tfds_dataset(
        name="bert_tf_texts",
        version="1.0.0",
        data_dir=tmp_path,
        split_datasets={"test": [(0, {"t": "é", "y": 1}), (1, {"t": "f", "y": -1})]},
        features=tfds.features.FeaturesDict(
            {"t": tfds.features.Text(), "y": tfds.features.ClassLabel(names=["bad", "good"])}
        ),
        disable_shuffling=True,
    )
    file_utils.add_data_dir(str(tmp_path))
    try:
        examples = read_text_examples("tfds:bert_tf_texts:test", "t", "", "y")
        with pytest.raises(ValueError, match="tfds:bert_tf_texts .*'train'.*'test'"):
            read_text_examples("tfds:bert_tf_texts", "t")
    finally:
        file_utils.clear_registered_data_dirs()
    where = "tfds:bert_tf_texts:test example"
    assert examples == [
        TextExample("é", None, "good", "0", f"{where} 0"),
        TextExample("f", None, None, "1", f"{where} 1"),
    ]


def test_names_are_sorted_by_value_or_text():
    assert label_names(labelled("10", "9", None, "-1", "9")) == ("-1", "9", "10")
    assert label_names(labelled("10", "9", "x")) == ("10", "9", "x")
    assert label_names(labelled("10", "9", "8.5")) == ("10", "8.5", "9")
    assert label_names(labelled("b|a", "b", "", None), is_multi_label=True) == ("a", "b")
    assert label_names(labelled("b|a", "b")) == ("b", "b|a")
    with pytest.raises(ValueError, match="^f line 1: .*label"):
        label_names(labelled("a", ""))
    with pytest.raises(ValueError, match="^f line 1: .*label"):
        label_names(labelled("a", "a||b"), is_multi_label=True)
    with pytest.raises(ValueError, match="--label_column"):
        label_names(labelled(None, None))


def test_ids_are_places():
    ids = label_ids(labelled("b", None, "a", "b"), ("c", "b", "a"))
    np.testing.assert_array_equal(ids, [1, -1, 2, 1])
    assert ids.dtype == np.int32
    assert label_ids([], ("a",)).shape == (0,)


def test_unknown_labels_are_counted():
    message = "^f line 1: label 'x'.* 'a', 'b'.*2 of 4 "
    with pytest.raises(ValueError, match=message):
        label_ids(labelled("a", "x", None, "y"), ("a", "b"))
    with pytest.raises(ValueError, match=message):
        label_rows(labelled("a|b", "b|x|y", "", "x"), ("a", "b"))
    with pytest.raises(ValueError, match="label '12'.* '0', .*, '9'.* 2 .*1 of 1 "):
        label_ids(labelled("12"), [str(number) for number in range(12)])


def test_rows_have_a_one_for_each_label():
    rows = label_rows(labelled("c|a", "", None, "b | b"), ("a", "b", "c"))
    np.testing.assert_array_equal(rows, [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0]])
    assert rows.dtype == np.float32


def test_values_are_finite_numbers():
    values = label_values(labelled("2.5", "-1e3", None, "0"))
    np.testing.assert_array_equal(values, np.array([2.5, -1000, np.nan, 0], np.float32))
    assert values.dtype == np.float32


@pytest.mark.parametrize("label", ["nan", "inf", "-inf", "1e39", "", "good", "1_0", "1,5"])
def test_values_that_are_no_numbers(label):
    with pytest.raises(ValueError, match=f"^f line 1: label '{label}'.*regression"):
        label_values(labelled("1", label))


def test_description():
    examples = labelled("a", "b", "a", None)
    assert describe(examples, ("a", "b")) == ("4 examples; labels: a 2, b 1; 1 unlabelled")
    assert describe(labelled("a|b", "a"), ("a", "b")) == ("2 examples; labels: a 2, b 1")
    assert describe(labelled("a|b", "a"), ("a", "a|b")) == ("2 examples; labels: a 1, a|b 1")
    assert describe(labelled("1.5"), ()) == "1 examples"
    assert describe(labelled(None), ("a",)) == "1 examples; 1 unlabelled"
    blank = [examples[0]._replace(text_a=" \t"), examples[0]._replace(text_b="b"), examples[1]]
    assert describe(blank, ()).endswith("2 pairs with an empty text")
    assert "empty" not in describe(blank[::2], ())
    many = [f"c{number}" for number in range(25)]
    line = describe(labelled(*many), many)
    assert line.endswith("c19 1, 5 more") and "c20" not in line


# Lists, decisions, spellings, bad rows ----------------------------------------------------------


def read_several(path: str, column: str = "label", **options: Any) -> list[str | None]:
    options = {"problem_type": "multi_label", "is_needed": True, **options}
    return [e.label for e in read_text_examples(path, "text", "", column, **options)]


def test_lists_in_cells_are_lists(tmp_path):
    rows = ["['joy', 'love']", '["joy"]', "[]", "joy|love", "['joy' 'love']", "('joy',)"]
    text = "text,label\n" + "".join('x,"' + row.replace('"', '""') + '"\n' for row in rows)
    path = write(tmp_path / "t.csv", text)
    assert read_several(path) == ["joy|love", "joy", "", "joy|love", "joy|love", "joy"]
    path = write_labels(tmp_path / "t.jsonl", ["['joy', 'love']", ["joy", "love"]])
    found = read_text_examples(path, "t", label_column="y", problem_type="multi_label")
    assert [example.label for example in found] == ["joy|love"] * 2


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("[0, 1, 1]", "multi_label"),  # Decisions without names.
        ("[joy, love]", "multi_label"),
        ("[joy, love]", "single_label"),
        ("['joy', 'love']", "single_label"),
        ("{'joy': 1}", "single_label"),
        ("['a', None]", "multi_label"),
        ("['a|b']", "multi_label"),
        ("[1.5, 2]", "regression"),
    ],
)
def test_lists_that_cannot_be_read_are_refused(tmp_path, cell, kind):
    path = write(tmp_path / "t.csv", f'text,label\nx,joy\ny,"{cell}"\n')
    with pytest.raises(ValueError, match=f"{path} line 3"):
        read_text_examples(path, "text", "", "label", problem_type=kind, is_needed=True)


def test_names_in_brackets_are_names(tmp_path):
    path = write(tmp_path / "t.csv", "text,label\nx,[laughter]\ny,(a)\nz,['joy']\n")
    found = read_text_examples(path, "text", "", "label", problem_type="single_label")
    assert [example.label for example in found] == ["[laughter]", "(a)", "joy"]


def test_columns_of_decisions(tmp_path):
    path = write(
        tmp_path / "t.csv", "id,text,toxic,insult\n1,a,0,1\n2,b,1,1.0\n3,c,0,False\n4,d,true,0.0\n"
    )
    assert read_several(path, "toxic, insult") == ["insult", "toxic|insult", "", "toxic"]
    path = write(tmp_path / "t.jsonl", '{"text": "a", "toxic": 0, "insult": true}\n')
    assert read_several(path, "toxic,insult") == ["insult"]
    path = write(tmp_path / "u.csv", "text,toxic,insult\na,-1,-1\nb,,\nc,1,0\n")
    assert read_several(path, "toxic,insult", is_needed=False) == [None, None, "toxic"]
    skipping = TableConfig(skip_unlabelled=True)
    assert read_several(path, "toxic,insult", reading=skipping) == ["toxic"]
    with pytest.raises(ValueError, match="2 of 3 .*u.csv line 2.*u.csv line 3"):
        read_several(path, "toxic,insult")
    for row in ("a,-1,1", "a,2,0", "a,0.5,0", "a,,1", "a,yes,1"):
        path = write(tmp_path / "t.csv", f"text,toxic,insult\n{row}\n")
        with pytest.raises(ValueError, match="t.csv line 2"):
            read_several(path, "toxic,insult")
    with pytest.raises(ValueError, match="odd.*'text', 'toxic', 'insult'"):
        read_several(path, "toxic,odd")


def test_another_separator_only_if_it_is_named(tmp_path):
    path = write(tmp_path / "t.tsv", "I see\t2,14\tab\nno\t27\tac\n")
    reading = TableConfig(column_names="text,label,id")
    given = {"reading": reading, "label_separator": ","}
    assert read_several(path, **given) == ["2|14", "27"]
    with pytest.raises(ValueError, match="t.tsv line 1.*'2,14'.*--label_separator"):
        read_several(path, reading=reading)
    assert read_several(path, reading=reading, label_separator="|") == ["2,14", "27"]
    path = write(tmp_path / "t.csv", 'text,label\na,"lawn, garden"\nb,lawn\n')
    assert read_several(path) == ["lawn, garden", "lawn"]


def test_nan_of_json_is_no_label(tmp_path):
    path = write(tmp_path / "t.jsonl", '{"t": "x", "y": NaN}\n{"t": "x", "y": "NaN"}\n')
    assert [e.label for e in read_text_examples(path, "t", label_column="y")] == [None, "NaN"]
    with pytest.raises(ValueError, match="t.jsonl line 1"):
        read_text_examples(path, "t", label_column="y", is_needed=True)
    path = write(tmp_path / "t.csv", "t,y\nx,nan\nx,None\n")
    assert [e.label for e in read_text_examples(path, "t", label_column="y")] == ["nan", "None"]


def test_spellings_of_a_label_are_one(tmp_path):
    table = write(tmp_path / "a.csv", "t,y\nx,True\nx, False\n")
    lines = write_labels(tmp_path / "b.jsonl", [True, False])
    both = read_text_examples(f"{table},{lines}", "t", label_column="y")
    names = label_names(both)
    assert names == ("false", "true")
    assert label_ids(both, names).tolist() == [1, 0, 1, 0]
    assert label_ids(both, ("False", "True")).tolist() == [1, 0, 1, 0]
    assert describe(both, names).startswith("4 examples; labels: false 2, true 2")
    mixed = labelled("1", "0", "1.0")
    assert label_names(mixed) == ("0", "1")
    assert label_ids(mixed, ("1.0", "0.0")).tolist() == [0, 1, 0]
    several = labelled("1|2", "2.0")
    assert label_names(several, is_multi_label=True) == ("1", "2")
    assert label_rows(several, ("1", "2")).tolist() == [[1, 1], [0, 1]]


def test_all_bad_rows_are_named_at_once(tmp_path):
    rows = ["a,x", "b", "c,", "d,y,z", "e,y"]
    path = write(tmp_path / "t.csv", "text,label\n" + "\n".join(rows) + "\n")
    with pytest.raises(ValueError) as caught:
        read_text_examples(path, "text", "", "label", problem_type="single_label", is_needed=True)
    message = str(caught.value)
    assert "3 of 5" in message and "\n" not in message
    assert [f"{path} line {number}" in message for number in range(2, 7)] == [
        *(False, True, True, True, False)
    ]
    path = write(tmp_path / "many.csv", "text,label\n" + "x,\n" * 1000)
    with pytest.raises(ValueError, match="1,000 of 1,000") as caught:
        read_text_examples(path, "text", "", "label", problem_type="single_label", is_needed=True)
    assert len(str(caught.value)) < 2000


def test_rows_without_a_label_can_be_left_out(tmp_path):
    path = write(tmp_path / "t.csv", "text,label\na,x\nb,\nc,y\n")
    reading = TableConfig(skip_unlabelled=True)
    given = {"problem_type": "single_label", "is_needed": True, "reading": reading}
    found = read_text_examples(path, "text", "", "label", **given)
    assert [(e.text_a, e.label) for e in found] == [("a", "x"), ("c", "y")]
    given["is_needed"] = False
    assert len(read_text_examples(path, "text", "", "label", **given)) == 3
