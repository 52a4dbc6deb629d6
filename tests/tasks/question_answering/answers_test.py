"""SQuAD's n-best rules: logits made by hand, and the rules written out as loops."""

import dataclasses
import json
import math

import numpy as np
import pytest

from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.tasks.question_answering.answers import (
    NO_SPAN_ODDS,
    SquadPredictions,
    choose_answers,
    rank_spans,
)
from bert_tf.tasks.question_answering.features import SquadFeature, make_features
from bert_tf.tasks.question_answering.questions import SquadQuestion
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.float_bounds import close_to

CONTEXT = "a b c d e f g h i j"
LOW = -9.0


@pytest.fixture
def tokenizer(tiny_vocab: Vocab) -> WordPiece:
    return WordPiece(tiny_vocab, do_lower_case=True)


def ask(name: str = "q", context: str = CONTEXT, question: str = "the mill") -> SquadQuestion:
    return SquadQuestion(name, question, context, None, (), False)


def logits(length: int, *rows: dict[int, float]) -> np.ndarray:
    """Returns [rows, T] of LOW but for the given positions."""
    values = np.full((len(rows), length), LOW, np.float32)
    for row, given in zip(values, rows, strict=True):
        for position, value in given.items():
            row[position] = value
    return values


def predict(questions, features, starts, ends, version_2=False, **options):
    config = SquadConfig(version_2_with_negative=version_2, **options)
    return SquadPredictions.of_ranked(rank_spans(questions, features, starts, ends, config), config)


def best_answers(questions, features, starts, ends, config):
    return [one.answer(config) for one in rank_spans(questions, features, starts, ends, config)]


def texts(predictions, name="q"):
    return [entry["text"] for entry in predictions.nbest[name]]


def test_best_spans_of_one_window_by_hand(tokenizer):
    question = ask()
    features = make_features(question, tokenizer)  # a is at 4, j at 13
    starts = logits(20, {4: 5.0, 6: 4.0, 1: 9.0})  # the question and ...
    ends = logits(20, {4: 1.0, 6: 3.0, 17: 9.0})  # ... the padding are no answers
    found = predict([question], features, starts, ends, n_best_size=3)
    # Starts 1, 4, 6 and ends 17, 6, 4: a-c 8, c 7, a 6.
    assert texts(found) == ["a b c", "c", "a"]
    total = 1 + math.exp(-1) + math.exp(-2)
    assert [entry["probability"] for entry in found.nbest["q"]] == close_to(
        [1 / total, math.exp(-1) / total, math.exp(-2) / total]
    )
    assert found.nbest["q"][0] | {"probability": 0} == {
        "text": "a b c",
        "probability": 0,
        "start_logit": 5.0,
        "end_logit": 3.0,
    }
    assert list(found.nbest["q"][0]) == ["text", "probability", "start_logit", "end_logit"]
    assert found.predictions == {"q": "a b c"} and found.null_odds == {}
    json.dumps(found)  # plain numbers
    far = predict([question], features, starts + 1000, ends, n_best_size=3)
    for entry, expected in zip(far.nbest["q"], found.nbest["q"], strict=True):
        assert entry["probability"] == close_to(expected["probability"])
    # The best two starts and ends leave only a-c; two are looked at, not two that are allowed.
    assert texts(predict([question], features, starts, ends, n_best_size=2)) == ["a b c"]


def test_scores_are_summed_in_float64(tokenizer):
    question = ask()
    features = make_features(question, tokenizer, 11, 3, 7)  # c is at 6, then f
    starts = logits(11, {6: 1.0}, {6: 1.0}, {})
    ends = logits(11, {6: 0.0}, {6: 2.0**-30}, {})  # 1 + 2**-30 is 1 in float32
    assert texts(predict([question], features, starts, ends, n_best_size=1)) == ["f"]
    halves = starts.astype(np.float16), ends.astype(np.float16)
    json.dumps(predict([question], features, *halves, True))


def test_no_answer_by_hand(tokenizer):
    question = ask()
    features = make_features(question, tokenizer, 11, 3, 7)
    starts = logits(11, {0: 6.0, 6: 5.0}, {0: 2.0}, {0: 3.0})
    ends = logits(11, {0: 7.0, 6: 2.0}, {0: 3.0}, {0: 1.0})
    # The windows' scores of no answer are 13, 5, 4: the lowest counts. The best span has 7.
    found = predict([question], features, starts, ends, True, n_best_size=2)
    assert found.null_odds == {"q": -3.0}
    assert found.predictions == {"q": "c"}
    assert texts(found) == ["c", ""]
    null = found.nbest["q"][1]
    assert (null["start_logit"], null["end_logit"]) == (3.0, 1.0)
    for threshold, expected in ((-3.0, "c"), (-3.1, "")):  # "" above the threshold, not at it
        options = {"null_score_diff_threshold": threshold, "n_best_size": 2}
        found = predict([question], features, starts, ends, True, **options)
        assert found.predictions == {"q": expected}
        assert choose_answers(found.nbest, found.null_odds, threshold) == {"q": expected}


def test_a_question_without_spans_or_windows(tokenizer):
    questions = [ask(), ask("bare", context=" ")]
    features = make_features(questions[0], tokenizer)
    starts, ends = logits(20, {19: 1.0}), logits(20, {19: 1.0})
    found = predict(questions, features, starts, ends, True, n_best_size=1)
    assert found.predictions == {"q": "", "bare": ""}
    assert found.null_odds == {"q": NO_SPAN_ODDS, "bare": NO_SPAN_ODDS}
    assert texts(found) == texts(found, "bare") == [""]
    found = predict(questions, features, starts, ends, False, n_best_size=1)
    assert found.predictions == {"q": "empty", "bare": "empty"}


def test_the_answer_empty_is_a_span(tokenizer):
    question = ask(context="a empty b")
    (feature,) = features = make_features(question, tokenizer)
    first = feature.context_start + 1
    last = feature.context_start + len(feature.starts) - 2  # The word is in pieces.
    rows = logits(20, {first: 3.0}), logits(20, {last: 2.0})
    (found,) = best_answers([question], features, *rows, SquadConfig())
    assert (found.answer, found.start, found.end) == ("empty", 2, 7)
    (none,) = best_answers(
        [question], features, *[logits(20, {19: 1.0})] * 2, SquadConfig(n_best_size=1)
    )
    assert (none.answer, none.start, none.end) == ("", -1, -1)


def test_a_span_without_characters_is_no_answer(tokenizer):
    """Byte-level BPE has tokens that are only the space before a word."""
    question = ask(context="a b")
    (feature,) = make_features(question, tokenizer)
    bare = dataclasses.replace(feature, ends=np.array([0, 3], np.int32))
    starts, ends = logits(7, {4: 3.0, 5: 2.0}), logits(7, {4: 3.0, 5: 2.0})
    config = SquadConfig(version_2_with_negative=True)
    (whole,) = best_answers([question], [feature], starts, ends, config)
    (found,) = best_answers([question], [bare], starts, ends, config)
    assert (whole.answer, whole.score) == ("a", 6.0)
    assert (found.answer, found.score, found.null_odds) == ("a b", 5.0, 2 * LOW - 5.0)


def test_score_and_odds_are_those_of_the_best_span_also_without_an_answer(tokenizer):
    question = ask(context="a b")
    (feature,) = make_features(question, tokenizer)
    starts, ends = logits(7, {0: 4.0, 4: 3.0}), logits(7, {0: 4.0, 4: 3.0})
    config = SquadConfig(version_2_with_negative=True)
    (found,) = best_answers([question], [feature], starts, ends, config)
    assert (found.answer, found.score, found.null_odds) == ("", 6.0, 2.0)
    # The probability is that of the answer: no answer has 8, the span 6, others almost nothing.
    assert found.probability == pytest.approx(1 / (1 + math.exp(-2)), abs=1e-4)
    (found,) = best_answers([question], [feature], starts, ends, SquadConfig())
    assert (found.answer, found.score, found.null_odds) == ("a", 6.0, 2.0)
    assert found.probability == pytest.approx(1.0, abs=1e-4)


def test_white_space_marks_and_unknown_words_of_the_context_are_kept(tokenizer):
    question = ask(context="Le  Cafe\u0301\n\u6771!")
    (feature,) = features = make_features(question, tokenizer)
    assert len(feature.starts) == 8  # l ##e c ##a ##f ##e [UNK] !
    starts, ends = logits(14, {4: 5.0, 6: 4.0}), logits(14, {9: 5.0, 10: 4.0})
    found = texts(predict([question], features, starts, ends, n_best_size=2))
    assert found == ["Le  Cafe\u0301", "Le  Cafe\u0301\n\u6771"]


def n_best_by_loops(
    question: SquadQuestion,
    features: list[SquadFeature],
    starts: np.ndarray,
    ends: np.ndarray,
    size: int,
    longest: int,
) -> list[tuple[str, float, float]]:
    """Slow twin for version 2: every rule as its own line."""
    found = []
    for feature, start_row, end_row in zip(features, starts.tolist(), ends.tolist(), strict=True):
        by_start = sorted(range(len(start_row)), key=lambda i, row=start_row: -row[i])[:size]
        by_end = sorted(range(len(end_row)), key=lambda i, row=end_row: -row[i])[:size]
        for start in by_start:
            for end in by_end:
                first, last = start - feature.context_start, end - feature.context_start
                if first < 0 or last < first or last >= len(feature.starts):
                    continue
                if not feature.is_max_context[first] or end - start + 1 > longest:
                    continue
                text = question.context[feature.starts[first] : feature.ends[last]]
                found.append((text, start_row[start], end_row[end]))
    null_rows = [(s[0], e[0]) for s, e in zip(starts.tolist(), ends.tolist(), strict=True)]
    found.append(("", *min(null_rows, key=sum)))
    kept: dict[str, tuple[str, float, float]] = {}
    for entry in sorted(found, key=lambda entry: -(entry[1] + entry[2])):
        if len(kept) < size:
            kept.setdefault(entry[0], entry)
    kept.setdefault("", found[-1])
    return list(kept.values())


def test_random_logits_against_loops(tokenizer):
    rng = np.random.default_rng(3)
    context = "the mill stood on the river, and the king walked on the slow river."
    questions = [ask(f"q{number}", context) for number in range(40)]
    windows = [make_features(question, tokenizer, 14, 4, 6) for question in questions]
    features = [feature for group in windows for feature in group]
    # Whole numbers: many sums are equal, so the order of equals is tested, too.
    starts, ends = rng.integers(-4, 5, (2, len(features), 16)).astype(np.float32)
    found = predict(questions, features, starts, ends, True, n_best_size=6, max_answer_length=5)
    row = 0
    for question, group in zip(questions, windows, strict=True):
        rows = slice(row, row + len(group))
        row = rows.stop
        expected = n_best_by_loops(question, group, starts[rows], ends[rows], 6, 5)
        entries = found.nbest[question.id]
        assert [(e["text"], e["start_logit"], e["end_logit"]) for e in entries] == expected
        assert sum(entry["probability"] for entry in entries) == pytest.approx(1)
        best = next(entry for entry in expected if entry[0])
        null = next(entry for entry in expected if not entry[0])
        odds = null[1] + null[2] - best[1] - best[2]
        assert found.null_odds[question.id] == odds
        assert found.predictions[question.id] == ("" if odds > 0 else best[0])
    assert list(found.predictions) == [question.id for question in questions]


def test_bad_logits(tokenizer):
    question = ask()
    features = make_features(question, tokenizer)
    with pytest.raises(ValueError, match="end_logits .*question q "):
        predict([question], features, logits(15, {}), logits(15, {3: math.nan}))
