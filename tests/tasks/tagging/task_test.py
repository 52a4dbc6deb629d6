"""Tagging as a task: losses and scores by hand, and odd files that come back whole."""

import pathlib
import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.tasks.tagging.features import TaggedExamples, make_examples
from bert_tf.tasks.tagging.files import read_tagged
from bert_tf.tasks.tagging.task import TaggingTask, are_entities
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from tests import entity_twin
from tests.float_bounds import close_to

ENTITIES = ("O", "B-LOC", "B-PER", "I-LOC", "I-PER")
PARTS = ("ADJ", "NOUN", "VERB")


def make_task(labels: tuple[str, ...]) -> TaggingTask:
    return TaggingTask(None, None, None, [16], 0, labels=labels)


def examples_of(
    path: pathlib.Path, text: str, labels: tuple[str, ...], vocab: Vocab, length: int = 16
) -> TaggedExamples:
    path.write_bytes(text.encode("utf8"))
    return make_examples(read_tagged(path), labels, WordPiece(vocab, True), length, True)


def outputs_of(examples: TaggedExamples, guess) -> dict[str, list[np.ndarray]]:
    """Returns for each piece of each row `guess(id)` as its tag, and a loss of 1 a word."""
    ids = [[guess(piece) for piece in row.text.ids] for row in examples.tag_rows]
    words = [len(row.words) for row in examples.tag_rows]
    return {
        "tag_ids": [np.array(row, np.int32) for row in ids],
        "loss": [np.float32(number) for number in words],
        "num_words": [np.float32(number) for number in words],
    }


def random_sentences(seed: int, labels: tuple[str, ...]) -> str:
    draw = random.Random(seed)
    words = ["mill", "walked", "rivers", "xyz", "a", "water"]
    return "\n".join(
        "".join(f"{draw.choice(words)} {draw.choice(labels)}\n" for _ in range(draw.randint(1, 30)))
        for _ in range(12)
    )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (ENTITIES, True),
        (("O", "I-PER"), True),
        (("O",), True),
        (("B-PER", "I-PER"), False),
        (("O", "S-PER", "B-PER", "E-PER"), True),
        (("O", "U-PER", "B-PER", "L-PER"), True),
        (("O", "X-PER"), False),
        (("O", "Boat"), False),
        (PARTS, False),
    ],
)
def test_entities_are_told_from_other_tags(labels, expected):
    assert are_entities(labels) == expected
    assert make_task(labels).best_metric == ("f1" if expected else "accuracy")


def test_losses_by_hand():
    batch = {"tag_ids": tf.constant([[-1, 2, -1, 0, -1], [-1, 1, -1, -1, -1], [-1] * 5])}
    logits = np.random.default_rng(0).normal(0, 2, [3, 5, 3]).astype(np.float32)
    losses = {
        place: np.log(np.exp(logits[place]).sum()) - logits[place][label]
        for place, label in {(0, 1): 2, (0, 3): 0, (1, 1): 1}.items()
    }
    hits = sum(
        int(logits[place].argmax() == label)
        for place, label in {(0, 1): 2, (0, 3): 0, (1, 1): 1}.items()
    )
    task = make_task(PARTS)
    sums = task.loss_and_metric_sums(batch, tf.constant(logits))
    assert list(sums) == list(task.sum_names)
    assert (float(sums["loss"].total), float(sums["loss"].weight)) == close_to(
        (sum(losses.values()), 3)
    )
    assert (float(sums["accuracy"].total), float(sums["accuracy"].weight)) == (hits, 3)
    assert float(task.loss_weights(batch)["loss"]) == 3
    found = task.predictions(batch, tf.constant(logits))
    np.testing.assert_array_equal(found["tag_ids"], logits.argmax(axis=-1))
    np.testing.assert_array_equal(found["num_words"], [2, 1, 0])
    expected = [losses[0, 1] + losses[0, 3], losses[1, 1], 0]
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-5)


def test_entities_are_scored_by_their_definition(tmp_path, tiny_vocab):
    text = random_sentences(1, ENTITIES)
    examples = examples_of(tmp_path / "a", text, ENTITIES, tiny_vocab)
    assert len(examples.tag_rows) > len(examples.sentences)  # some in windows
    task, outputs = make_task(ENTITIES), outputs_of(examples, lambda piece: piece % 5)
    tags = task.answers(examples, outputs)
    results = task.metrics(examples, outputs)
    true = [list(sentence.tags or ()) for sentence in examples.sentences]
    expected = entity_twin.scores(true, tags)
    for name in ("precision", "recall", "f1"):
        assert results[name] == pytest.approx(expected[name]) and 0 < results[name] < 100
    same = [a == b for pair in zip(true, tags, strict=True) for a, b in zip(*pair, strict=True)]
    assert results["accuracy"] == pytest.approx(np.mean(same))
    assert results["loss"] == 1.0
    assert task.score(results) == results["f1"]
    report = task.entity_report(examples, tags)
    assert set(report.types) == {"LOC", "PER"} and report.overall.f1 == results["f1"]


def test_other_tags_are_scored_by_word(tmp_path, tiny_vocab):
    sklearn = pytest.importorskip("sklearn.metrics")
    examples = examples_of(tmp_path / "a", random_sentences(2, PARTS), PARTS, tiny_vocab)
    task, outputs = make_task(PARTS), outputs_of(examples, lambda piece: piece % 3)
    outputs["loss"][0] += 7
    tags = task.answers(examples, outputs)
    results = task.metrics(examples, outputs)
    true = [tag for sentence in examples.sentences for tag in sentence.tags or ()]
    guesses = [tag for row in tags for tag in row]
    assert results == {
        "loss": pytest.approx(1 + 7 / len(true)),
        "accuracy": pytest.approx(sklearn.accuracy_score(true, guesses)),
    }
    assert task.score(results) == results["accuracy"]


def test_labels_stand_at_first_pieces_of_batches(tmp_path, tiny_vocab):
    text = "walked VERB\nmill NOUN\n\nxyz ADJ\n"
    examples = examples_of(tmp_path / "a", text, PARTS, tiny_vocab)
    batch = examples.rows.batch(np.arange(2), 3, 8)
    expected = [[-1, 2, -1, 1, -1, -1, -1, -1], [-1, 0, -1, -1, -1, -1, -1, -1], [-1] * 8]
    np.testing.assert_array_equal(batch["tag_ids"], expected)
    bare = make_examples(examples.sentences, (), WordPiece(tiny_vocab, True), 16, False)
    assert (bare.rows.batch(np.arange(2), 2, 8)["tag_ids"] == -1).all()


def test_a_tag_that_is_no_label(tmp_path, tiny_vocab):
    with pytest.raises(ValueError, match=r"a line 3: word 2 .*'b', .*'X'; .*ADJ, NOUN, VERB"):
        examples_of(tmp_path / "a", "\n\na ADJ\nb X\n", PARTS, tiny_vocab)


# Odd files --------------------------------------------------------------------------------------
