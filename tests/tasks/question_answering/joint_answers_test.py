"""Answers from beams against a slow twin in plain Python, written from qa_metrics.py."""

import math

import numpy as np
import pytest

from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.tasks.question_answering.answers import SquadPredictions, choose_answers
from bert_tf.tasks.question_answering.features import make_examples
from bert_tf.tasks.question_answering.joint_answers import Beams, rank_beams
from bert_tf.tasks.question_answering.questions import read_squad
from bert_tf.text.bpe_training import train_bpe_vocab
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.wordpiece import WordPiece
from tests.tasks.question_answering.task_test import LENGTH, SIZES, write

BEAM = 6


def config_of(**options):
    values = {"version_2_with_negative": True, "n_best_size": 5, "max_answer_length": 3}
    return SquadConfig(span_head="joint", **SIZES, **{**values, **options})


@pytest.fixture
def examples(tmp_path, tiny_vocab):
    write(tmp_path / "a.json", True)
    questions = read_squad(tmp_path / "a.json", True, True)
    return make_examples(questions, WordPiece(tiny_vocab, True), LENGTH, config_of())


def predict(examples, beams, config):
    """Returns the contents of the files, and the answers."""
    ranked = list(rank_beams(examples.questions, examples.features, beams, config))
    return SquadPredictions.of_ranked(ranked, config), [one.answer(config) for one in ranked]


def draw_beams(features, seed):
    """Returns random beams, and lists of (start, score, [(end, score), ...]) of each window."""
    draw, lists, no_answer = np.random.default_rng(seed), [], []
    for feature in features:
        length = len(feature.ids)
        starts = draw.normal(-3, 2, length)
        ends = draw.normal(-3, 2, (length, length))
        order = np.argsort(-starts, kind="stable")[:BEAM]
        entries = [
            (
                int(s),
                starts[s],
                [(int(e), ends[s, e]) for e in np.argsort(-ends[s], kind="stable")[:BEAM]],
            )
            for s in order
        ]
        while len(entries) < BEAM:
            entries.append((LENGTH + len(entries), -1e4, [(0, -1e4)] * BEAM))
        lists.append(entries)
        no_answer.append(draw.normal())
    outputs = {
        "start_top_index": [np.array([s for s, _, _ in row]) for row in lists],
        "start_top_log_probs": [np.array([p for _, p, _ in row]) for row in lists],
        "end_top_index": [np.array([[e for e, _ in ends] for _, _, ends in row]) for row in lists],
        "end_top_log_probs": [
            np.array([[p for _, p in ends] for _, _, ends in row]) for row in lists
        ],
        "no_answer_logit": no_answer,
    }
    return Beams.of_rows(outputs), lists, no_answer


def twin_of(question, features, lists, no_answer, config):
    """Returns the n-best entries (text, start score, end score) and the odds."""
    spans, odds = [], 1e6
    for feature, row, null in zip(features, lists, no_answer, strict=True):
        if feature.question_id != question.id:
            continue
        odds = min(odds, null)
        for start, start_score, ends in row:
            for end, end_score in ends:
                if start >= len(feature.ids) or end >= len(feature.ids) or start == 0:
                    continue
                pieces = range(feature.context_start, feature.context_start + len(feature.starts))
                if start not in pieces or end not in pieces:
                    continue
                if not feature.is_max_context[start - feature.context_start]:
                    continue
                if end < start or end - start + 1 > config.max_answer_length:
                    continue
                spans.append((start_score + end_score, start_score, end_score, feature, start, end))
    spans.sort(key=lambda span: span[0], reverse=True)
    entries = {}
    for _, start_score, end_score, feature, start, end in spans:
        if len(entries) >= config.n_best_size:
            break
        text = question.context[slice(*feature.span_offsets(question.context, start, end))]
        entries.setdefault(text, (start_score, end_score))
    return [(text, *scores) for text, scores in entries.items()], odds


@pytest.mark.parametrize("seed", range(6))
def test_predictions_are_the_twins(examples, seed):
    config = config_of(null_score_diff_threshold=-0.8)
    beams, lists, no_answer = draw_beams(examples.features, seed)
    found, answers = predict(examples, beams, config)
    assert list(found.predictions) == [question.id for question in examples.questions]
    for question, answer in zip(examples.questions, answers, strict=True):
        entries, odds = twin_of(question, examples.features, lists, no_answer, config)
        assert found.null_odds[question.id] == pytest.approx(odds)
        shown = [(e["text"], e["start_logit"], e["end_logit"]) for e in found.nbest[question.id]]
        assert shown == entries
        sums = [math.exp(start + end) for _, start, end in entries]
        chances = [entry["probability"] for entry in found.nbest[question.id]]
        assert chances == pytest.approx([value / sum(sums) for value in sums])
        if odds > -0.8:
            assert found.predictions[question.id] == ""
            assert answer[:3] == ("", -1, -1)
            assert answer.probability == pytest.approx(1 / (1 + math.exp(-odds)))
        else:
            assert found.predictions[question.id] == entries[0][0] == answer.answer
            assert question.context[answer.start : answer.end] == answer.answer
            assert answer.probability == pytest.approx(chances[0])
        assert answer.score == pytest.approx(entries[0][1] + entries[0][2])
        assert answer.null_odds == pytest.approx(odds)
    always = choose_answers(found.nbest, found.null_odds, float("inf"))
    assert always == {name: entries[0]["text"] for name, entries in found.nbest.items()}


def test_without_any_span_there_is_no_answer(examples):
    beams, _, _ = draw_beams(examples.features, 0)
    beams = beams._replace(starts=np.zeros_like(beams.starts))
    found, answers = predict(examples, beams, config_of(null_score_diff_threshold=9.0))
    assert set(found.predictions.values()) == {""} and set(found.null_odds.values()) == {1e6}
    assert [len(entries) for entries in found.nbest.values()] == [1] * 4
    assert answers == [("", -1, -1, 0.0, 1e6, 1.0)] * 4


def test_version_1_has_no_odds_and_needs_no_class(examples):
    beams, lists, no_answer = draw_beams(examples.features, 0)
    bare = beams._replace(no_answer=None)
    config = config_of(version_2_with_negative=False)
    found, _ = predict(examples, bare, config)
    assert found.null_odds == {}
    for question in examples.questions:
        entries, _ = twin_of(question, examples.features, lists, no_answer, config)
        assert found.predictions[question.id] == (entries[0][0] if entries else "empty")
    with pytest.raises(ValueError, match="version_2_with_negative"):
        predict(examples, bare, config_of())


def test_a_window_without_the_answer_of_a_question_is_not_impossible(examples):
    rows = {f.question_id: [] for f in examples.features}
    count = len(examples.features)
    batch = examples.rows.batch(np.arange(count), count, LENGTH)
    for feature, label in zip(examples.features, batch["is_impossible"], strict=True):
        rows[feature.question_id].append((float(label), feature.start_position))
    assert len(rows["q0"]) > 1 and min(place for _, place in rows["q0"]) == 0
    impossible = {name: {label for label, _ in found} for name, found in rows.items()}
    assert impossible == {"q0": {0.0}, "q1": {0.0}, "q2": {1.0}, "q3": {0.0}}


def test_what_is_refused(tmp_path, examples):
    beams, _, _ = draw_beams(examples.features, 0)
    outputs = {"start_top_index": beams.starts, "start_top_log_probs": beams.start_scores * np.nan}
    outputs |= {"end_top_index": beams.ends, "end_top_log_probs": beams.end_scores}
    with pytest.raises(ValueError, match="start_top_log_probs "):
        Beams.of_rows(outputs)
    with pytest.raises(ValueError, match="beam_size=3 .*span_head independent"):
        SquadConfig(beam_size=3).check_needs(["beam_size"])
    vocab = train_bpe_vocab(["the mill by the water"] * 9, 300)
    questions = read_squad(tmp_path / "a.json", True, True)
    with pytest.raises(ValueError, match="span_head=joint .*type"):
        make_examples(questions, make_tokenizer(vocab, False), LENGTH, config_of())
