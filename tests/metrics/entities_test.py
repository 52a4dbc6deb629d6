"""Entities: conlleval's rules by hand, then by their definition and beside seqeval's numbers."""

import numpy as np
import pytest

from bert_tf.metrics import entities
from tests import entity_twin
from tests.float_bounds import assert_close, close_to


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("B-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        # IOB1: I- starts, B- only next to its own type.
        ("I-PER I-PER O I-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("I-PER B-PER I-PER I-LOC", [("PER", 0, 1), ("PER", 1, 3), ("LOC", 3, 4)]),
        # Broken BIO: I- after O, after another type, at the start.
        ("O I-PER", [("PER", 1, 2)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)]),
        ("B-PER O I-PER", [("PER", 0, 1), ("PER", 2, 3)]),
        # Hyphens in types, and no type at all.
        ("B-A-B I-A-B I-A", [("A-B", 0, 2), ("A", 2, 3)]),
        ("B I O I B I-X", [("", 0, 2), ("", 3, 4), ("", 4, 5), ("X", 5, 6)]),
        # BIOES and BILOU, whole and broken.
        ("B-A I-A E-A O S-B S-B", [("A", 0, 3), ("B", 4, 5), ("B", 5, 6)]),
        ("U-A B-A I-A L-A U-B B-B L-B", [("A", 0, 1), ("A", 1, 4), ("B", 4, 5), ("B", 5, 7)]),
        ("O E-A I-A B-B E-A", [("A", 1, 2), ("A", 2, 3), ("B", 3, 4), ("A", 4, 5)]),
    ],
)
def test_spans(tags: str, expected: list[tuple[str, int, int]]) -> None:
    assert entities.spans(tags.split()) == expected


def test_scores_by_hand() -> None:
    true = ["B-PER I-PER O B-LOC".split(), "B-LOC I-LOC O B-PER B-PER".split()]
    predicted = ["B-PER I-PER O B-ORG".split(), "B-LOC O O B-PER I-PER".split()]
    # True: PER 3, LOC 2. Found: PER 2, ORG 1, LOC 1. Right: the first PER alone. Tags: 6 of 9.
    report = entities.evaluate_entities(true, predicted)
    assert report.overall == (25.0, 20.0, pytest.approx(200 / 9), 5, 4, 1)
    assert list(report.types) == ["LOC", "ORG", "PER"]
    assert report.types["LOC"] == (0.0, 0.0, 0.0, 2, 1, 0)
    assert report.types["ORG"] == (0.0, 0.0, 0.0, 0, 1, 0)
    assert report.types["PER"] == (50.0, pytest.approx(100 / 3), pytest.approx(40.0), 3, 2, 1)
    assert report.accuracy == pytest.approx(600 / 9)
    assert report.tokens == 9


def test_text_of_conlleval() -> None:
    true, predicted = ["B-PER I-PER O B-LOC".split()], ["B-PER I-PER O B-ORG".split()]
    report = entities.evaluate_entities(true, predicted)
    assert entities.format_conlleval(report) == (
        "processed 4 tokens with 2 phrases; found: 2 phrases; correct: 1.\n"
        "accuracy:  75.00%; precision:  50.00%; recall:  50.00%; FB1:  50.00\n"
        "              LOC: precision:   0.00%; recall:   0.00%; FB1:   0.00  0\n"
        "              ORG: precision:   0.00%; recall:   0.00%; FB1:   0.00  1\n"
        "              PER: precision: 100.00%; recall: 100.00%; FB1: 100.00  1\n"
    )


def test_schemes_give_the_same_entities_but_not_tags() -> None:
    bio, iob1 = ["B-PER I-PER O B-LOC".split()], ["I-PER I-PER O I-LOC".split()]
    report = entities.evaluate_entities(bio, iob1)
    assert (report.overall.f1, report.accuracy) == (100.0, 50.0)
    report = entities.evaluate_entities(bio, ["B-PER E-PER O S-LOC".split()])
    assert (report.overall.f1, report.accuracy) == (100.0, 50.0)


def test_entities_end_with_their_row_and_none_is_zero() -> None:
    rows = [["B-PER"], ["I-PER"]]
    assert entities.evaluate_entities(rows, rows).overall.support == 2
    report = entities.evaluate_entities([["O", "O"], []], [["O", "O"], []])
    assert report.overall == (0.0, 0.0, 0.0, 0, 0, 0)
    assert (report.types, report.accuracy) == ({}, 100.0)


def test_bad_input_is_named() -> None:
    for tag in ("X-PER", "PER", "", "O-PER", "b-PER", "BPER", "S"):
        with pytest.raises(ValueError, match=f"'{tag}' .*token 1.* O, B-TYPE"):
            entities.spans(["O", tag])
    with pytest.raises(ValueError, match="row 1.*'X-PER' .*token 0"):
        entities.evaluate_entities([["O"], ["O"]], [["O"], ["X-PER"]])
    with pytest.raises(ValueError, match="^1 rows .*predicted.* 2 "):
        entities.evaluate_entities([["O"], ["O"]], [["O"]])
    with pytest.raises(ValueError, match="row 1 .*1 predicted.* 2 .*max_seq_length"):
        entities.evaluate_entities([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(ValueError, match="^1 rows .*token"):
        entities.evaluate_entities([[]], [[]])


def random_rows(seed: int, count: int) -> tuple[list[list[str]], list[list[str]]]:
    """Makes true and predicted rows of arbitrary, often broken, tags that agree in part."""
    random = np.random.default_rng(seed)
    choices = np.array(["O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-A-B"])
    true, predicted = [], []
    for length in random.integers(1, 12, count):
        row, other = random.choice(choices, (2, length))
        true.append(row.tolist())
        predicted.append(np.where(random.random(length) < 0.7, row, other).tolist())
    return true, predicted


# seqeval 1.2.2 of `random_rows(500, 500)`: precision_score, recall_score, f1_score, of all and, by
# classification_report, of each type; its support; with zero_division=0.
SEQEVAL = {
    "": (0.7017189079878665, 0.7060020345879959, 0.7038539553752535, 1966),
    "A-B": (0.6723300970873787, 0.6707021791767555, 0.6715151515151515, 413),
    "LOC": (0.7164556962025317, 0.7101631116687579, 0.7132955261499685, 797),
    "PER": (0.7023195876288659, 0.7208994708994709, 0.7114882506527416, 756),
}
SEQEVAL_ACCURACY = 0.7564227642276423


def test_same_as_seqeval() -> None:
    report = entities.evaluate_entities(*random_rows(500, 500))
    assert list(report.types) == ["A-B", "LOC", "PER"]
    for name, (*expected, support) in SEQEVAL.items():
        row = report.types[name] if name else report.overall
        assert_close(row[:3], 100 * np.array(expected))
        assert row.support == support
    assert report.accuracy == close_to(100 * SEQEVAL_ACCURACY)


def test_same_as_the_definition() -> None:
    true, predicted = random_rows(3, 300)
    for row in (*true, *predicted):
        assert set(entities.spans(row)) == entity_twin.entities(row), row
    report = entities.evaluate_entities(true, predicted)
    for name, row in {"": report.overall, **report.types}.items():
        expected = entity_twin.scores(true, predicted, name)
        assert_close([*row[:3], row.support], list(expected.values()))
