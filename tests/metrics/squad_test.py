"""SQuAD's metrics on a handful of questions, worked by hand."""

import logging
import re
from typing import Any

import pytest

from bert_tf.metrics import squad


def dataset_of(answers: dict[str, list[str]]) -> dict[str, Any]:
    """Makes a file's content: a paragraph for each question."""
    paragraphs = [
        {"context": "", "qas": [{"id": key, "answers": [{"text": text} for text in texts]}]}
        for key, texts in answers.items()
    ]
    return {"version": "v2.0", "data": [{"title": "", "paragraphs": paragraphs}]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat's (a) Hat", "cats hat"),
        ("a-b", "ab"),  # punctuation goes before the articles
        ("an apple, THE end\n", "apple end"),
        ("theory of another", "theory of another"),
        ("$5.3 million", "53 million"),
        ("“Été” – 5€", "“été” – 5€"),  # only ASCII's punctuation goes
        ("“the”", "“ ”"),  # an article leaves a space
        ("the", ""),
        ("", ""),
    ],
)
def test_normalize_answer(text: str, expected: str) -> None:
    assert squad.normalize_answer(text) == expected


def test_scores_of_an_answer() -> None:
    assert squad.exact_match("The Cat.", "cat") == 1
    assert squad.exact_match("cats", "cat") == 0
    assert squad.f1("a big red dog", "the red dog") == pytest.approx(0.8)
    assert squad.f1("dog dog dog", "dog dog cat") == pytest.approx(2 / 3)  # shared twice
    assert squad.f1("dog", "cat") == 0.0
    assert squad.f1("the", "") == 0.0
    assert squad.f1_or_both_empty("the", "") == 1.0
    assert squad.f1_or_both_empty("", "cat") == 0.0
    assert squad.f1_or_both_empty("cat", "") == 0.0
    assert squad.f1_or_both_empty("dog", "red dog") == pytest.approx(2 / 3)


def test_version_1_takes_the_best_answer() -> None:
    dataset = dataset_of({"a": ["red dog", "big red dog"], "b": ["cat", "fox"], "c": ["owl"]})
    predictions = {"a": "dog", "b": "the Fox", "c": "bear", "other": "owl"}
    # F1: the better of 2/3 and 1/2; 1; 0.
    expected = {"exact_match": 100 / 3, "f1": 100 * (2 / 3 + 1) / 3}
    assert squad.evaluate_v1(dataset, predictions) == pytest.approx(expected)


def test_version_1_counts_a_missing_prediction_as_zero(caplog: pytest.LogCaptureFixture) -> None:
    dataset = dataset_of({"a": ["dog"], "b": ["cat"]})
    with caplog.at_level(logging.WARNING):
        assert squad.evaluate_v1(dataset, {"a": "dog"}) == {"exact_match": 50.0, "f1": 50.0}
    assert re.search(r"1 of 2 questions.* b\.", caplog.text)


def test_version_2_without_odds() -> None:
    answers = {"a": ["big red dog", "red dog", "cat"], "b": [], "c": [], "d": ["the", "cat"]}
    dataset = dataset_of(answers)
    predictions = {"a": "dog", "b": "", "c": "fox", "d": "cat"}
    expected = {
        "exact": 50.0,
        "f1": 100 * (2 / 3 + 1 + 0 + 1) / 4,
        "total": 4,
        "HasAns_exact": 50.0,
        "HasAns_f1": 100 * (2 / 3 + 1) / 2,
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }
    result = squad.evaluate_v2(dataset, predictions)
    assert result == pytest.approx(expected)
    assert list(result) == list(expected)


def test_version_2_an_answer_without_words_is_none() -> None:
    dataset = dataset_of({"a": ["the"]})
    assert squad.evaluate_v2(dataset, {"a": ""})["HasAns_f1"] == 100.0
    assert squad.evaluate_v2(dataset, {"a": "..."})["HasAns_exact"] == 100.0
    assert squad.evaluate_v2(dataset_of({"a": ["the", "cat"]}), {"a": ""})["exact"] == 0.0
    assert "NoAns_total" not in squad.evaluate_v2(dataset, {"a": "the"})


def test_version_2_threshold_turns_answers_into_none() -> None:
    dataset = dataset_of({"a": ["cat"], "b": [], "c": ["dog"]})
    predictions = {"a": "cat", "b": "cat", "c": "dog"}
    odds = {"a": 0.2, "b": 0.7, "c": 0.7}
    assert squad.evaluate_v2(dataset, predictions, odds)["exact"] == pytest.approx(200 / 3)
    low = squad.evaluate_v2(dataset, predictions, odds, threshold=0.5)
    assert (low["HasAns_exact"], low["NoAns_exact"]) == (50.0, 100.0)
    at = squad.evaluate_v2(dataset, predictions, odds, threshold=0.7)  # exceeds, not reaches
    assert (at["HasAns_exact"], at["NoAns_exact"]) == (100.0, 0.0)


def test_version_2_best_thresholds() -> None:
    dataset = dataset_of({"a": ["red dog"], "b": [], "c": ["cat"], "d": [], "e": ["owl"]})
    predictions = {"a": "dog", "b": "fox", "c": "cat", "d": "", "e": "bear"}
    odds = {"e": 5.0, "d": 0.0, "c": 1.0, "b": 3.0, "a": -1.0}
    # By odds: a, d, c, b, e. All empty: 2 right. Then exact: 2, 2, 3, 2, 2; F1: 2.67, 2.67, 3.67.
    result = squad.evaluate_v2(dataset, predictions, odds)
    assert result["best_exact"] == 60.0
    assert result["best_exact_thresh"] == 1.0
    assert result["best_f1"] == pytest.approx(100 * (2 + 2 / 3 + 1) / 5)
    assert result["best_f1_thresh"] == 1.0
    assert list(result)[-4:] == ["best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"]


@pytest.mark.parametrize(
    ("answer", "odds", "expected"),
    [
        ("dog", {"a": -4.0, "b": -3.0}, (50.0, 0.0)),  # No answer helps.
        ("cat", {"a": 0.5, "b": 0.5}, (100.0, 0.5)),  # Equal odds keep their order.
        ("cat", {"b": 0.5, "a": 0.5, "other": 0.1}, (50.0, 0.0)),
    ],
)
def test_version_2_best_threshold_of_no_gain_and_of_equal_odds(answer, odds, expected) -> None:
    dataset = dataset_of({"a": ["cat"], "b": []})
    result = squad.evaluate_v2(dataset, {"a": answer, "b": answer}, odds)
    assert (result["best_exact"], result["best_exact_thresh"]) == expected


def test_bad_input_is_named() -> None:
    dataset = dataset_of({"a": ["cat"], "b": []})
    with pytest.raises(ValueError, match="question b .*evaluate_v2"):
        squad.evaluate_v1(dataset, {"a": "", "b": ""})
    with pytest.raises(ValueError, match="1 of 2 questions .*prediction.* b;"):
        squad.evaluate_v2(dataset, {"a": ""})
    with pytest.raises(ValueError, match="1 of 2 questions .*null odds.* a;"):
        squad.evaluate_v2(dataset, {"a": "", "b": ""}, {"b": 0.0})
    with pytest.raises(ValueError, match="dataset .*'data';"):
        squad.evaluate_v1({"version": "1.1"}, {})
    with pytest.raises(ValueError, match="dataset .*'data';"):
        squad.evaluate_v1(dataset["data"], {})
    with pytest.raises(ValueError, match="dataset .*questions.*'data'"):
        squad.evaluate_v2(dataset_of({}), {})
