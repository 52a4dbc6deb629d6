"""Exact match and F1 of SQuAD's answers, as evaluate-v1.1.py and evaluate-v2.0.py compute them.

Sums are in the order of the scripts, so that the results are equal to the last digit.

References: Rajpurkar et al. 2016, "SQuAD"; Rajpurkar, Jia and Liang 2018, "Know what you don't
know"; their scripts at https://rajpurkar.github.io/SQuAD-explorer.
"""

import logging
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Scores = dict[str, float]  # by question

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Returns the lower-cased text without punctuation, articles and extra spaces.

    ASCII punctuation is removed before the articles: "A.I." becomes "ai", "a-b" becomes "ab".
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, answer: str) -> int:
    """Returns 1 where two answers are the same once normalised, otherwise 0."""
    return int(normalize_answer(prediction) == normalize_answer(answer))


def f1(prediction: str, answer: str) -> float:
    """Returns the F1 of the words that two answers share, counted with repetitions, in [0, 1].

    Two answers without a word are not equal here, as in version 1.1; see `f1_or_both_empty`.

    Example: "a big red dog" and "the red dog": shared 2, precision 2/3, recall 2/2, F1 = 4/5.
    """
    predicted = normalize_answer(prediction).split()
    true = normalize_answer(answer).split()
    shared = sum((Counter(predicted) & Counter(true)).values())
    if shared == 0:
        return 0.0
    precision = shared / len(predicted)
    recall = shared / len(true)
    return (2 * precision * recall) / (precision + recall)


def f1_or_both_empty(prediction: str, answer: str) -> float:
    """Returns `f1`, or 1 if both answers are empty, as in version 2.0, where "" is an answer."""
    if not normalize_answer(prediction) and not normalize_answer(answer):
        return 1.0
    return f1(prediction, answer)


def evaluate_v1(dataset: Mapping[str, Any], predictions: Mapping[str, str]) -> dict[str, float]:
    """Scores answers to SQuAD 1.1's questions, as evaluate-v1.1.py.

    Each question gets the best score over its answers. A question without a prediction gets 0, as
    in the script, and a warning gives their number. Predictions for other questions are ignored.

    Args:
      dataset: the content of dev-v1.1.json, or of a file of its form.
      predictions: answers by the questions' ids.

    Returns:
      "exact_match" and "f1", in percent.

    Raises:
      ValueError: no question, or one without an answer.
    """
    matches = 0
    words = 0.0
    total = 0
    missing = []
    for question in _questions(dataset):
        total += 1
        if question["id"] not in predictions:
            missing.append(question["id"])
            continue
        prediction = predictions[question["id"]]
        answers = [answer["text"] for answer in question["answers"]]
        if not answers:
            raise ValueError(
                f"question {question['id']} has no answer; expected one or more as in SQuAD 1.1:"
                " evaluate data of version 2.0 with evaluate_v2."
            )
        matches += max(exact_match(prediction, answer) for answer in answers)
        words += max(f1(prediction, answer) for answer in answers)
    if missing:
        logging.warning(
            "%d of %d questions have no prediction and count as 0; the first is %s.",
            len(missing),
            total,
            missing[0],
        )
    return {"exact_match": 100.0 * matches / total, "f1": 100.0 * words / total}


def evaluate_v2(
    dataset: Mapping[str, Any],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """Scores answers to SQuAD 2.0's questions, of which some have no answer, as evaluate-v2.0.py.

    If the null odds of a question exceed the threshold, its answer becomes "". The best thresholds
    are those with the highest scores. They are determined only if null odds are given, and the
    predictions should then be the best answers that are not "". As in the script, a threshold may
    be among questions of equal odds, and then applies only to some of these.

    Args:
      dataset: the content of dev-v2.0.json, or of a file of its form.
      predictions: an answer or "" for every question, by its id.
      null_odds: the model's confidence that there is no answer, as probabilities, or as differences
        of scores such as run_squad.py writes to null_odds.json. None means 0 for all questions.
      threshold: in the unit of the odds; the script's 1.0 fits probabilities and keeps every
        answer.

    Returns:
      "exact" and "f1" in percent and "total", in this order; the same with "HasAns_" and "NoAns_"
      in front, for the questions with and without an answer, if there are any; with null odds
      "best_exact", "best_exact_thresh", "best_f1" and "best_f1_thresh".

    Raises:
      ValueError: no question; one without a prediction or without odds, on which the script stops
        with a KeyError.
    """
    questions = {question["id"]: question for question in _questions(dataset)}
    _check_ids(questions, predictions, "prediction")
    odds = dict.fromkeys(questions, 0.0) if null_odds is None else null_odds
    _check_ids(questions, odds, "null odds")
    answerable = {key: bool(question["answers"]) for key, question in questions.items()}
    matches = _best_scores(exact_match, questions, predictions)
    words = _best_scores(f1_or_both_empty, questions, predictions)

    def with_threshold(scores: Scores) -> Scores:
        """Returns the scores with "" as the answer above the threshold."""
        new_scores = dict(scores)
        for key in scores:
            if odds[key] > threshold:
                new_scores[key] = float(not answerable[key])
        return new_scores

    final_matches = with_threshold(matches)
    final_words = with_threshold(words)
    result: dict[str, float] = {}
    # All questions, those with an answer, and those without.
    for prefix, wanted in (("", (True, False)), ("HasAns_", (True,)), ("NoAns_", (False,))):
        if keys := [key for key in questions if answerable[key] in wanted]:
            result[prefix + "exact"] = 100.0 * sum(map(final_matches.__getitem__, keys)) / len(keys)
            result[prefix + "f1"] = 100.0 * sum(map(final_words.__getitem__, keys)) / len(keys)
            result[prefix + "total"] = len(keys)
    if null_odds is not None:
        for name, scores in (("exact", matches), ("f1", words)):
            best, best_threshold = _best_threshold(predictions, scores, null_odds, answerable)
            result["best_" + name] = best
            result[f"best_{name}_thresh"] = best_threshold
    return result


def _questions(dataset: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the questions in the order of the file; raises ValueError for a file without any."""
    if not isinstance(dataset, Mapping) or "data" not in dataset:
        raise ValueError(
            "the dataset has no 'data'; expected the whole content of a SQuAD file: pass the "
            "result of json.load."
        )
    empty = True
    for article in dataset["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                empty = False
                yield question
    if empty:
        raise ValueError("the dataset has no questions; expected at least one in its 'data'.")


def _check_ids(questions: Mapping[str, Any], given: Mapping[str, Any], noun: str) -> None:
    missing = [key for key in questions if key not in given]
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(questions)} questions have no {noun}, the first is"
            f" {missing[0]}; predict all questions, or leave these out of the dataset."
        )


def _best_scores(
    metric: Callable[[str, str], float],
    questions: Mapping[str, Any],
    predictions: Mapping[str, str],
) -> Scores:
    """Returns each question's best score over its answers, except answers without a word."""
    scores = {}
    for key, question in questions.items():
        texts = [answer["text"] for answer in question["answers"]]
        # A question without answers has the answer "", as in the script.
        answers = [text for text in texts if normalize_answer(text)] or [""]
        scores[key] = max(metric(predictions[key], answer) for answer in answers)
    return scores


def _best_threshold(
    predictions: Mapping[str, str],
    scores: Scores,
    odds: Mapping[str, float],
    answerable: Mapping[str, bool],
) -> tuple[float, float]:
    """Returns the highest score in percent of any threshold, and the lowest such threshold.

    It starts with "" for all questions, which is right for those without an answer, and then takes
    the model's answers in the order of increasing odds. The sort keeps the order of equal odds.
    """
    best = score = float(sum(not has_answer for has_answer in answerable.values()))
    threshold = 0.0
    for key in sorted(odds, key=lambda key: odds[key]):
        if key not in scores:
            continue
        if answerable[key]:
            # "" was wrong and counted 0, so answering adds the score.
            score += scores[key]
        elif predictions[key]:
            # "" was right, and the model's answer is not.
            score -= 1
        if score > best:
            best = score
            threshold = odds[key]
    return 100.0 * best / len(scores), threshold
