"""Which spellings are one label, worked out by hand."""

import re

import pytest

from bert_tf.tasks.base.examples.labels import LabelNames, check_distinct, unify_spellings


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["1.0", "0.0"], ("1.0", "0.0")),  # One spelling each: kept.
        (["1.0", "0", "1"], ("1", "0")),
        (["True", "False", "true"], ("true", "false")),
        (["TRUE", "FALSE"], ("TRUE", "FALSE")),
        (["1", "1.0", "x"], ("1", "1.0", "x")),  # Not all are numbers.
        (["true", "True", "maybe"], ("true", "True", "maybe")),
        (["1.1", "1.10", "1"], ("1.1", "1.10", "1")),
        (["01", "1"], ("01", "1")),
        (["+1", "-1", "1", "-1.0"], ("1", "-1")),
        (["+1", "-1"], ("+1", "-1")),
        (["joy ", "joy"], ("joy",)),
    ],
)
def test_spellings_of_one_label(names, expected):
    assert unify_spellings(names) == expected


def test_labels_are_found_by_any_spelling():
    numbers = LabelNames(["0.0", "1.0", "1.5"])
    assert [numbers.find(name) for name in ("1", " 0", "1.50", "1.5", "2")] == [1, 0, None, 2, None]
    booleans = LabelNames(["False", "True"])
    assert [booleans.find(name) for name in ("true", "FALSE ", "1")] == [1, 0, None]
    assert booleans.name_of("true") == "True" and booleans.name_of("x") == "x"
    words = LabelNames(["Joy", "joy", ""])
    assert [words.find(name) for name in ("joy", " Joy", "JOY", "")] == [1, 0, None, None]
    older = LabelNames(["True", "true"])  # Two classes of a run that told them apart.
    assert [older.find(name) for name in ("True", "true")] == [0, 1]


def test_the_same_labels_in_another_spelling():
    labels = LabelNames(["0", "1"])
    assert labels.are_same(["1.0", "0.0"]) and labels.are_same(["1", "0"])
    assert not labels.are_same(["1"]) and not labels.are_same(["0", "1", "2"])


@pytest.mark.parametrize(
    "spelling",
    [
        "pos\ufeff",
        "\u200bpos",
        "p\u00ados",
        "pos\u00a0",
        "\u202apos\u202c",
        "pos\u2060 ",
        "po\u200ds",
        "pos\ufe0f",
        "p\u034fos",
        "\u3164pos",
        "po\x00s",
        "pos\u2800",
    ],
    ids=ascii,
)
def test_characters_that_are_not_seen_make_no_other_label(spelling, caplog):
    assert unify_spellings(["pos", spelling, "neg"]) == ("pos", "neg")
    hidden = next(char for char in spelling if char not in "pos ")
    assert f"U+{ord(hidden):04X}" in caplog.text
    assert LabelNames(["neg", "pos"]).find(spelling) == 1
    assert LabelNames(["neg", spelling]).find("pos") == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("pos", "p\u043es"),
        ("O", "\u041e"),
        ("pos", "\uff50\uff4f\uff53"),
        ("\u2764", "\u2764\ufe0f"),
        ("Pos", "pos"),
    ],
    ids=ascii,
)
def test_names_that_look_the_same_are_no_two_labels(first, second):
    with pytest.raises(ValueError, match=re.escape(ascii(second))):
        check_distinct([first, "neg", second])
    check_distinct([first, "neg"])


def test_decomposed_letters_are_the_same_label():
    assert unify_spellings(["e\u0301t\u00e9", "\u00e9te\u0301"]) == ("\u00e9t\u00e9",)
    # A joiner decides how letters of Persian are drawn.
    assert len(unify_spellings(["\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u062e"])) == 2


def test_the_shape_of_an_emoji_stays():
    assert unify_spellings(["\u2764\ufe0f", "pos"]) == ("\u2764\ufe0f", "pos")
