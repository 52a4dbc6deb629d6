"""Columns of texts and labels from all that programs hold, and what is wrong in them."""

import math
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.tasks.base.examples.columns import (
    is_missing,
    read_label_ids,
    read_label_sets,
    read_numbers,
    read_pairs,
    read_texts,
)

TEXTS = ["A fine film.", "", "Größe 東京"]


class Series:
    """As much of a column of pandas as matters: no sequence, values by `tolist`."""

    def __init__(self, values):
        self.values = values

    def tolist(self):
        return self.values

    def __iter__(self):
        raise AssertionError("tolist gives Python's values, iteration need not")


class Frame:
    """As much of a DataFrame as matters."""

    def __init__(self, columns):
        self.of_name = columns
        self.columns = list(columns)
        self.iloc = None

    def __getitem__(self, names):
        return Frame({name: self.of_name[name] for name in names})

    def to_numpy(self):
        return np.array(list(self.of_name.values())).T


class Column:
    """A column that only iterates, as one of a generator."""

    def __init__(self, values):
        self.values = values

    def __iter__(self):
        return iter(self.values)


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        np.array,
        lambda texts: np.array(texts, object),
        lambda texts: np.array([text.encode() for text in texts], object),
        lambda texts: [np.str_(text) for text in texts],
        tf.constant,
        Series,
        Column,
        iter,
    ],
)
def test_columns_of_all_kinds_are_lists_of_str(make):
    found = read_texts(make(TEXTS))
    assert found == TEXTS and {type(text) for text in found} == {str}


class NAType:
    """As pandas calls the type of its missing value."""

    def __repr__(self):
        return "<NA>"


@pytest.mark.parametrize(
    ("missing", "shown"),
    [(None, "None"), (math.nan, "nan"), (np.float32("nan"), "nan"), (NAType(), "<NA>")],
)
def test_what_is_missing_is_named_with_its_place_and_number(missing, shown):
    assert is_missing(missing)
    with pytest.raises(ValueError, match=rf"texts\[2\] .*{shown}, .*2 of 4 "):
        read_texts(["a", "b", missing, missing])
    assert not is_missing("") and not is_missing(0.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("A fine film.", "texts .*'A fine film.',"),
        ([], "^texts .*one"),
        (17, "texts .*17, .*list"),
        ({"text": TEXTS}, r"texts .*dict, .*frame\['text'\]"),
        ([[101, 2023, 102]], r"texts\[0\] .*\[101, 2023, 102\].*input_word_ids"),
        (np.zeros((2, 8), np.int32), r"texts\[0\] .*\[0, 0.*input_word_ids"),
        (["a", 3], r"texts\[1\] .*3.*input_word_ids"),
        ([["a", "b"], ["c", "d"]], r"texts\[0\] .*\['a', 'b'\].* 2 of 2 .*pairs"),
        ([b"a", b"\xff"], r"texts\[1\] .*b'.xff',.*UTF-8"),
    ],
)
def test_what_is_no_column_of_texts_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        read_texts(values)


def test_pairs_are_two_columns_or_a_list_of_pairs():
    assert read_pairs((["a", "b"], np.array(["c", "d"]))) == (["a", "b"], ["c", "d"])
    assert read_pairs([("a", "c"), ("b", "d")]) == (["a", "b"], ["c", "d"])
    assert read_pairs([{"text_b": "c", "text": "a"}]) == (["a"], ["c"])
    assert read_pairs([(b"a", np.str_("c"))]) == (["a"], ["c"])
    assert read_pairs(("a", "b")) == (["a", "b"], None)
    assert read_pairs(["a", "b"]) == (["a", "b"], None)
    for values, message in (
        ((["a", "b"], ["c"]), "2 .* 1 "),
        ((["a"], ["b"], ["c"]), r"texts\[0\] .*\['a'\]"),
        ((["a", "b"], ["c", None]), r"second texts\[1\]"),
        ([("a", "c"), ("b",)], r"texts\[1\].*\('b',\)"),
        ([("a", "c"), "b"], r"texts\[1\].*'b'"),
        ([("a", "c"), ("b", None)], r"texts\[1\].*None"),
        ([{"text": "a", "label": "c"}], r"texts\[0\]"),
        # Two pairs, or two columns: no caller can tell what the others would read.
        ((("a", "b"), ("c", "d")), r"texts .*\('a', 'b'\), \('c', 'd'\)"),
        (["a", "\ud800"], r"texts\[1\]"),
        ([("a", "\ud800")], r"texts\[0\]"),
        (np.array("a"), "texts .*'a'"),
    ):
        with pytest.raises(ValueError, match=message):
            read_pairs(values)


@pytest.mark.parametrize(
    ("values", "labels", "expected"),
    [
        (["good", "bad", "good"], ("bad", "good"), [1, 0, 1]),
        (np.array(["good", "bad"]), ("bad", "good"), [1, 0]),
        (np.array([1, 0], np.int64), ("bad", "good"), [1, 0]),
        (np.array([1.0, 0.0]), ("bad", "good"), [1, 0]),
        ([True, False], ("bad", "good"), [1, 0]),
        ([True, False], ("True", "False"), [0, 1]),
        # Of names that are numbers, a number is a name: five stars are the fifth class.
        ([5, 1, "3"], ("1", "2", "3", "4", "5"), [4, 0, 2]),
        ([1, 0], ("", ""), [1, 0]),
        # However they are written.
        ([1.0, 0.0], ("1", "0"), [0, 1]),
        ([1.0, 0, "0.0"], ("1.0", "0.0"), [0, 1, 1]),
        ([True, False], ("1", "0"), [0, 1]),
        ([0.5, 1.0, 1], ("1", "0.5"), [1, 0, 0]),
        (["1.0", "0", " 1"], ("1", "0"), [0, 1, 0]),
        (["true", "False", "TRUE"], ("False", "True"), [1, 0, 1]),
        ([True, False], ("FALSE", "TRUE"), [1, 0]),
        (["good ", " bad"], ("bad", "good"), [1, 0]),
    ],
)
def test_labels_are_names_or_places(values, labels, expected):
    found = read_label_ids(values, labels, len(expected))
    assert found.dtype == np.int32 and found.tolist() == expected


@pytest.mark.parametrize(
    ("values", "labels", "message"),
    [
        (["good", "god", "God"], ("bad", "good"), r"y\[1\] .*'god', .*'bad', 'good'; 2 of 3 "),
        ([0, 2], ("bad", "good"), r"y\[1\] .*2,.*'bad', 'good'"),
        ([0, -1], ("", ""), r"y\[1\] .*-1,.*labels 0 .*1;"),
        ([0], ("1", "2"), r"y\[0\] .* 0,.*'1', '2'"),
        ([0.5], ("1", "0"), r"y\[0\] .*0\.5,.*'1', '0'"),
        (["good", None], ("bad", "good"), r"y\[1\] .*None,.*'bad', 'good'"),
        ([0.0, math.nan], ("bad", "good"), r"y\[1\] .*nan,.*'bad', 'good'"),
        ([0.5], ("bad", "good"), "problem_type='regression'"),
        ([["good"]], ("bad", "good"), "problem_type='multi_label'"),
        (np.ones([2, 2]), ("bad", "good"), "problem_type='multi_label'"),
        ("good", ("bad", "good"), "^y .*'good'"),
    ],
)
def test_unknown_labels_are_refused(values, labels, message):
    with pytest.raises(ValueError, match=message):
        read_label_ids(values, labels, len(values) if not isinstance(values, str) else 1)


def test_labels_are_as_many_as_texts():
    with pytest.raises(ValueError, match="2 .*y.* 3 texts"):
        read_label_ids(["bad", "bad"], ("bad", "good"), 3)


def test_numbers_are_finite():
    np.testing.assert_array_equal(read_numbers([1, 2.5], 2), np.array([1, 2.5], np.float32))
    assert read_numbers([[1], [2]], 2).tolist() == [1, 2]
    for value in (math.nan, math.inf, "1", None, True, [1, 2]):
        with pytest.raises(ValueError, match=rf"y\[1\] .*{re.escape(str(value))}.*number"):
            read_numbers([0, value], 2)


def test_sets_of_labels_are_lists_or_rows_of_0_and_1():
    labels = ("sad", "odd", "new")
    expected = [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    for values in (
        [["new", "sad"], [], ["odd"]],
        np.array(expected),
        [[0, 2], (), {1}],
        ["new|sad", "", " odd"],
        ["['new', 'sad']", "[]", "['odd']"],
    ):
        found = read_label_sets(values, labels, 3)
        assert found.dtype == np.float32 and found.tolist() == expected
    for values, message in (
        (["sad", [], []], r"y\[0\] .*'sad',.*\[\]"),
        ([[], ["sad", "bad"], []], r"y\[1\]\[1\] .*'bad',.*'sad', 'odd', 'new'"),
        (np.full((3, 3), 0.5), r"^y .*\(3, 3\).*0 .*1 .*3 labels"),
        (np.zeros((3, 2)), r"^y .*\(3, 2\).*3 labels"),
        # Places or decisions? Nobody can tell, so nobody guesses.
        ([[1, 0, 1], [0, 0, 0], [0, 1, 0]], r"^y .* 3 .*np\.array\(y\)"),
    ):
        with pytest.raises(ValueError, match=message):
            read_label_sets(values, labels, 3)


def test_frames_of_0_and_1_have_their_columns_by_name():
    labels = ("sad", "odd", "new")
    bits = {"new": [1, 0, 1], "sad": [0, 1, 1], "odd": [0, 0, 0]}
    expected = [[0, 0, 1], [1, 0, 0], [1, 0, 1]]
    assert read_label_sets(Frame(bits), labels, 3).tolist() == expected
    by_place = Frame({0: [0, 1, 1], 1: [0, 0, 0], 2: [1, 0, 1]})
    assert read_label_sets(by_place, labels, 3).tolist() == expected
    one_hot = Frame({"odd": [True, False], "new": [False, True], "sad": [False, False]})
    assert read_label_ids(one_hot, labels, 2).tolist() == [1, 2]
    for read in (read_label_ids, read_label_sets):
        with pytest.raises(ValueError, match="a, b, new"):
            read(Frame({"a": [1], "b": [0], "new": [0]}), labels, 1)
    with pytest.raises(ValueError, match=r"^y .*Frame.*frame\['text'\]"):
        read_label_ids(Frame({"label": ["sad"]}), labels, 1)
