"""The n-best lists of the graph against those in Python, and keys of texts against the texts."""

import itertools
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.tasks.base.serving.graph_tokens import Characters
from bert_tf.tasks.question_answering.candidates import Candidate, Spans, n_best, probabilities
from bert_tf.tasks.question_answering.serving import best_texts, with_null
from tests.float_bounds import assert_close

NUM_QUESTIONS = 5


@pytest.mark.parametrize("count", [1, 2, 4, 50])
def test_probabilities_are_those_of_the_list(count):
    """Scores are whole numbers, so that many are equal, also to that of no answer."""
    draw = np.random.default_rng(count)
    for _ in range(20):
        questions = draw.integers(0, NUM_QUESTIONS - 1, size=40)  # The last one has no span.
        texts = draw.integers(0, 9, size=40)
        scores = draw.integers(-3, 4, size=40).astype(np.float64)
        null = draw.integers(-4, 5, size=NUM_QUESTIONS).astype(np.float64)
        keys = tf.constant(questions * 1000 + texts)
        best = best_texts(tf.constant(scores), keys, tf.constant(questions), NUM_QUESTIONS, count)
        plain = tf.nn.softmax(best).numpy()
        shares = tf.nn.softmax(with_null(best, tf.constant(null))).numpy()
        assert best.shape == (NUM_QUESTIONS, count)
        for question in range(NUM_QUESTIONS - 1):
            chosen = np.flatnonzero(questions == question)
            order = chosen[np.argsort(-scores[chosen], kind="stable")]
            without = make_list(texts[order], scores[order], None, count)
            expected = probabilities(without)
            assert_close(plain[question][: len(expected)], expected)
            entries = make_list(texts[order], scores[order], null[question], count)
            chances = {
                entry.text: chance
                for entry, chance in zip(entries, probabilities(entries), strict=True)
            }
            assert shares[question][-1] == pytest.approx(chances.pop(""), rel=1e-12)
            found = sorted(chance for chance in shares[question][:-1] if chance > 0)
            assert_close(found, sorted(chances.values()))
        assert shares[NUM_QUESTIONS - 1].tolist() == [0.0] * count + [1.0]


def make_list(texts, scores, null, count):
    """Returns the n-best list of spans that are single characters of a context."""
    context = "abcdefghi"
    zeros = np.zeros(len(texts), np.int64)
    spans = Spans(zeros, texts, texts, scores, np.zeros(len(texts)))
    window = types.SimpleNamespace(span_offsets=lambda _, start, end: (start, end + 1))
    question = types.SimpleNamespace(context=context)
    candidate = None if null is None else Candidate("", null, 0.0)
    return n_best(question, [window], spans, candidate, count)


def test_keys_are_equal_where_texts_are():
    contexts = ["abab \u4e2d\u4e2d ab", "", "ba\0\0ab", "aaaaaaaa", "\U0001f600a\U0001f600a"]
    spans = []
    for row, context in enumerate(contexts):
        for start, end in itertools.combinations(range(len(context) + 1), 2):
            spans.append((row, start, end))
    rows, starts, ends = np.array(spans, np.int32).T
    keys = Characters(tf.constant(contexts)).keys(tf.constant(rows, tf.int64), starts, ends)
    texts = [(row, contexts[row][start:end]) for row, start, end in spans]
    by_text = {}
    for text, key in zip(texts, keys.numpy().tolist(), strict=True):
        assert by_text.setdefault(text, key) == key
    assert len(set(by_text.values())) == len(by_text) < len(texts)
