"""Temperature and thresholds of a classifier: checks, spellings of labels, and choices."""

import dataclasses

import numpy as np
import pytest

from bert_tf.tasks.classification.decisions import (
    Decisions,
    arguments_of,
    calibrated,
    parse_thresholds,
    settings_of,
    with_best_thresholds,
)

LABELS = ("joy", "anger", "fear")


def test_thresholds_left_out_are_a_half():
    found = Decisions.of("multi_label", LABELS, 2.0, {"fear": 0.2})
    assert found == Decisions(2.0, (0.5, 0.5, 0.2))
    assert found.by_label(LABELS) == {"joy": 0.5, "anger": 0.5, "fear": 0.2}
    assert Decisions.of("multi_label", ("1", "2"), 1.0, {"2.0": 0.1}).thresholds == (0.5, 0.1)
    assert Decisions.of("multi_label", LABELS, 1.0, {"Fear": 0.1}).thresholds == (0.5, 0.5, 0.1)


@pytest.mark.parametrize("thresholds", [{"spam": 0.3}, {"ham": 0.7}, {"spam": 0.3, "ham": 0.7}])
def test_two_classes_have_one_threshold(thresholds):
    found = Decisions.of("single_label", ("ham", "spam"), 1.0, thresholds)
    assert found.thresholds == pytest.approx((0.7, 0.3))
    rows = np.array([[0.6, 0.4], [0.8, 0.2]])
    assert found.choose(rows).tolist() == [1, 0]
    assert Decisions().choose(rows).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("kind", "labels", "options", "named"),
    [
        ("multi_label", LABELS, {"thresholds": {"hope": 0.3}}, "'hope'"),
        ("multi_label", LABELS, {"thresholds": {"joy": 1.5}}, "1.5"),
        ("single_label", LABELS, {"thresholds": {"joy": 0.3}}, "3 classes"),
        ("single_label", ("a", "b"), {"thresholds": {"a": 0.3, "b": 0.3}}, "0.3"),
        ("regression", (), {"temperature": 2.0}, "temperature"),
        ("single_label", LABELS, {"temperature": 0.0}, "0.0"),
        ("single_label", LABELS, {"temperature": float("nan")}, "nan"),
    ],
)
def test_wrong_settings(kind, labels, options, named):
    with pytest.raises(ValueError, match=named):
        Decisions.of(kind, labels, **options)


def test_forms_of_the_flag():
    assert parse_thresholds("joy=0.3, anger=0.25") == {"joy": 0.3, "anger": 0.25}
    assert parse_thresholds('{"a, b=c": 0.3}') == {"a, b=c": 0.3}
    assert parse_thresholds("") == {}
    for text in ("joy", "joy=x", "=0.3", "joy=2", "joy=nan", '{"joy"', '{"joy": "x"}'):
        with pytest.raises(ValueError, match="--thresholds"):
            parse_thresholds(text)


def test_settings_are_read_as_they_were_written():
    decisions = Decisions(1.2345678901234567, (0.1 + 0.2, 0.5))
    labels = ("é, =", "x y")
    read = arguments_of(settings_of(decisions, labels))
    assert Decisions.of("multi_label", labels, **read) == decisions
    assert settings_of(Decisions(), labels) == {} == arguments_of({"temperature": "1.0"})


def test_the_choice_on_labelled_examples():
    logits = np.array([[4.0, 0.0]] * 3 + [[0.0, 4.0]])
    labels = np.array([0, 0, 1, 1])
    chosen = calibrated(Decisions(), logits, labels, "single_label")
    assert chosen.temperature == pytest.approx(4 / np.log(3))
    chosen = with_best_thresholds(chosen, logits, labels, "single_label")
    # The probabilities of the second class are 1/4 (three times, one of them right) and 3/4:
    # above 1/2 the F1 is 2/3, above 1/8 it is 2/3 as well.
    assert chosen.thresholds == pytest.approx((0.5, 0.5))
    rows = np.array([[1, 0], [1, 0], [0, 0], [0, 0]])
    chosen = with_best_thresholds(Decisions(1.0, (0.4, 0.3)), -logits, rows, "multi_label")
    assert chosen.thresholds[1] == 0.3  # No example has the second label.
    assert chosen.thresholds[0] < 0.018 / 2 + 1e-9


@pytest.mark.parametrize("choose", [calibrated, with_best_thresholds])
def test_nothing_to_choose_on(choose):
    with pytest.raises(ValueError):
        choose(Decisions(), np.zeros([0, 2]), np.zeros(0), "single_label")
    with pytest.raises(ValueError):
        choose(Decisions(), np.zeros([1, 1]), np.zeros(1), "regression")


def test_decisions_are_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Decisions().temperature = 2.0
