"""Multiple choice as a task: texts of a pair by hand, losses by hand, the right and the wrong."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.network.losses import LabelLoss
from bert_tf.tasks.multiple_choice.examples import ChoiceExample
from bert_tf.tasks.multiple_choice.features import make_examples
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.text.text_counts import counting_texts
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.float_bounds import assert_close, close_to


@pytest.fixture
def tokenizer(tiny_vocab: Vocab) -> WordPiece:
    return WordPiece(tiny_vocab, do_lower_case=True)


@pytest.fixture
def task() -> MultipleChoiceTask:
    return MultipleChoiceTask(None, None, None, [16], 0)


def example(context: str, start: str, *choices: str, label: int | None = 1) -> ChoiceExample:
    return ChoiceExample(context, start, choices, label, "0", "f line 2")


def words(row: np.ndarray, tokenizer: WordPiece) -> str:
    return " ".join(tokenizer.vocab.tokens[index] for index in row)


def test_texts_spelled_out(tokenizer):
    examples = [
        example("The mill", "It was", "slow", "walked on the river"),
        example("a", "", "b", "", label=None),
    ]
    made = make_examples(examples, tokenizer, 11)
    batch = made.rows.batch(np.arange(2), 3, 11)
    assert batch["input_word_ids"].shape == (3, 2, 11)
    # The longer side gives pieces away: the last of the choice.
    assert [words(row, tokenizer) for row in batch["input_word_ids"][0]] == [
        "[CLS] the mill [SEP] it was slow [SEP] [PAD] [PAD] [PAD]",
        "[CLS] the mill [SEP] it was walk ##ed on the [SEP]",
    ]
    assert [words(row, tokenizer) for row in batch["input_word_ids"][1]] == [
        "[CLS] a [SEP] b [SEP]" + " [PAD]" * 6,
        "[CLS] a [SEP]" + " [PAD]" * 8,
    ]
    assert batch["input_type_ids"][0].tolist() == [[0] * 4 + [1] * 4 + [0] * 3, [0] * 4 + [1] * 7]
    assert batch["input_mask"][0].tolist() == [[1] * 8 + [0] * 3, [1] * 11]
    assert made.labels.tolist() == [1, 0]
    assert batch["label_ids"].tolist() == [1, 0, 0]
    assert batch["example_weights"].tolist() == [1, 1, 0]


def test_texts_that_just_fit_are_not_cut(tokenizer):
    fits = [example("a b c", "", "d e", ""), example("a b c d e f", "", "", "")]
    for length, num_cut in [(8, 0), (7, 3)]:
        with counting_texts("") as counts:
            make_examples(fits, tokenizer, length)
        assert counts.num_cut == num_cut


def test_losses_by_hand(task):
    logits = np.array([[0, 2, 1], [3, 0, 0], [9, 9, 9]], np.float32)
    batch = {"label_ids": tf.constant([1, 2, 0]), "example_weights": tf.constant([1.0, 1.0, 0.0])}
    losses = [
        np.log(np.exp(row).sum()) - row[label]
        for row, label in zip(logits[:2], (1, 2), strict=True)
    ]
    sums = task.loss_and_metric_sums(batch, tf.constant(logits))
    assert list(sums) == list(task.sum_names)
    assert (float(sums["loss"].total), float(sums["loss"].weight)) == close_to((sum(losses), 2))
    assert (float(sums["accuracy"].total), float(sums["accuracy"].weight)) == (1, 2)
    assert float(task.loss_weights(batch)["loss"]) == 2
    found = task.predictions(batch, tf.constant(logits))
    assert_close(found["loss"][:2], losses)
    np.testing.assert_array_equal(found["logits"], logits)


def test_a_smoothed_and_focal_loss_by_hand():
    """Predictions have the plain loss, as those of the other tasks."""
    task = MultipleChoiceTask(None, None, None, [16], 0, label_loss=LabelLoss(0.4, 2.0))
    chances = [0.5, 0.25, 0.125, 0.125]
    logits = tf.constant([np.log(chances)], tf.float32)
    batch = {"label_ids": tf.constant([1]), "example_weights": tf.constant([1.0])}
    # The target is 0.6 + 0.4 / 4 for the label, 0.1 for each other choice.
    expected = 0.1 * 0.5**2 * np.log(2)
    expected += 0.7 * 0.75**2 * np.log(4)
    expected += 2 * 0.1 * 0.875**2 * np.log(8)
    found = task.loss_and_metric_sums(batch, logits)["loss"]
    assert float(found.total) == pytest.approx(expected, rel=1e-6)
    plain = task.predictions(batch, logits)["loss"]
    assert_close(plain, [np.log(4)])


def test_judged_by_hand(task, tokenizer):
    made = make_examples([example("a", "b", "c", "d")] * 3, tokenizer, 16)
    outputs = {
        "logits": [np.array(row) for row in ([0.0, 1.0], [1.0, 0.0], [-3.0, -2.0])],
        "loss": [np.float32(1), np.float32(2), np.float32(6)],
    }
    results = task.metrics(made, outputs)
    assert results == {"loss": 3.0, "accuracy": pytest.approx(2 / 3)}
    assert task.score(results) == results["accuracy"]
