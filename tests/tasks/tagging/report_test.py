"""Reports of a tagger: scores of each tag against scikit-learn, the worst sentences by hand."""

import random
import re

import pytest

from bert_tf.tasks.tagging.program import MAX_SENTENCES, tag_report_text, worst_sentences_text
from bert_tf.tasks.tagging.sentences import TaggedSentence

LABELS = ("ADJ", "NOUN", "VERB")


def sentence(words: str, tags: str, line: int = 1) -> TaggedSentence:
    return TaggedSentence(tuple(words.split()), tuple(tags.split()), f"f line {line}")


def test_scores_of_each_tag():
    sklearn = pytest.importorskip("sklearn.metrics")
    draw = random.Random(3)
    true = [draw.choices(LABELS, k=draw.randint(1, 9)) for _ in range(20)]
    found = [draw.choices(LABELS, k=len(row)) for row in true]
    sentences = [TaggedSentence(("x",) * len(row), tuple(row), "f line 1") for row in true]
    text = tag_report_text(sentences, found, LABELS)
    flat = [sum(true, []), sum(found, [])]
    expected = sklearn.precision_recall_fscore_support(*flat, labels=LABELS)
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
    lines = [line.split() for line in text.split("Confusion")[0].splitlines()]
    for label, *values in zip(LABELS, *expected, strict=True):
        row = next(line for line in lines if line and line[0] == label)
        assert [float(value) for value in row[1:]] == pytest.approx(values, abs=0.006)
    matrix = sklearn.confusion_matrix(*flat, labels=LABELS)
    assert rows["VERB"][:3] != [] and re.search(rf"^ *{matrix[0][1]}  ADJ .* NOUN$", text, re.M)


def test_the_worst_sentences():
    sentences = [
        sentence("a b", "ADJ ADJ", 1),
        sentence("c d e", "ADJ NOUN VERB", 4),
        sentence("f", "VERB", 8),
        sentence("g", "VERB", 10),
    ]
    found = [["ADJ", "ADJ"], ["NOUN", "NOUN", "ADJ"], ["ADJ"], ["NOUN"]]
    assert worst_sentences_text(sentences, found).splitlines() == [
        "wrong\tsource\tsentence",
        "2\tf line 4\tc[ADJ>NOUN] d e[VERB>ADJ]",
        "1\tf line 8\tf[VERB>ADJ]",
        "1\tf line 10\tg[VERB>NOUN]",
    ]
    many = worst_sentences_text(sentences[2:3] * 70, found[2:3] * 70)
    assert len(many.splitlines()) == 1 + MAX_SENTENCES
