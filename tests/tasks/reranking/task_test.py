"""Rows of lists, and the measures of a reranker."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.tasks.reranking.examples import RankingExample
from bert_tf.tasks.reranking.features import evaluation_examples, training_rows
from bert_tf.tasks.reranking.task import RerankingTask
from bert_tf.text.tokenization import make_tokenizer
from tests.float_bounds import close_to

LABELS = ((1.0, 0.0, 0.0), (0.0, 1.0, 1.0), (0.0,))


@pytest.fixture
def examples() -> list[RankingExample]:
    texts = ("the boat", "the mill", "the king")
    return [
        RankingExample(
            f"line {i}",
            "water",
            texts[: len(labels)],
            labels,
            tuple(3.0 * label + place for place, label in enumerate(labels)),
            str(i),
            tuple("abc"[: len(labels)]),
            {name: label for name, label in zip("abc", labels, strict=False) if label},
        )
        for i, labels in enumerate(LABELS)
    ]


def batch_of(rows, count: int) -> dict:
    batch = rows.batch(np.arange(len(rows)), count, 16)
    return {name: tf.constant(value) for name, value in batch.items()}


def test_lists_hold_the_relevant_first_and_are_filled(tiny_vocab, examples) -> None:
    tokenizer = make_tokenizer(tiny_vocab, True)
    rows = training_rows(examples, tokenizer, 16, "listnet", 2)
    assert len(rows) == 2 and rows.num_choices == 2  # a single document has no order
    assert rows.labels["list_labels"].tolist() == [[3, 1], [4, 5]]
    rows = training_rows(examples, tokenizer, 16, "lambda", 8)
    assert rows.labels["list_labels"].tolist() == [[1, 0, 0], [1, 1, 0]]
    rows = training_rows(examples, tokenizer, 16, "margin_mse", 3)
    assert rows.labels["list_labels"].tolist() == [[3, 1, 2], [4, 0, 0], [5, 0, 0]]
    assert rows.labels["list_mask"].tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 0]]
    rows = training_rows(examples, tokenizer, 16, "bce", 8)
    assert rows.num_choices == 1
    assert rows.labels["list_labels"].ravel().tolist() == [1, 0, 0, 1, 1, 0, 0]


@pytest.mark.parametrize("loss", ["bce", "mse", "margin_mse", "listnet", "lambda"])
def test_weights_follow_from_labels_alone_and_filled_rows_count_nothing(
    tiny_vocab, examples, loss: str
) -> None:
    rows = training_rows(examples, make_tokenizer(tiny_vocab, True), 16, loss, 8)
    task = RerankingTask(None, rows, None, [16], 1, loss=loss)
    results = []
    for count in (len(rows), len(rows) + 3):
        batch = batch_of(rows, count)
        shape = batch["list_labels"].shape
        own = np.zeros(shape, np.float32)
        own[: len(rows)] = np.linspace(-1, 2, len(rows) * shape[1]).reshape(-1, shape[1])
        found = task.loss_and_metric_sums(batch, tf.constant(own))["loss"]
        assert found.weight == task.loss_weights(batch)["loss"] > 0
        results.append((found.total.numpy(), found.weight.numpy()))
    assert results[1] == close_to(results[0])


def test_measures_are_of_queries(tiny_vocab, examples) -> None:
    judged = evaluation_examples(examples[:2], make_tokenizer(tiny_vocab, True), 16)
    assert len(judged.rows) == 6 and judged.is_labelled
    task = RerankingTask(None, None, judged, [16], 1, loss="bce")
    outputs = {"logits": [np.float32(value) for value in (0.0, 2.0, 1.0, 9.0, 1.0, 2.0)]}
    found = task.metrics(judged, outputs)
    assert found["mrr@10"] == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert found["map"] == pytest.approx((1 / 3 + (1 / 2 + 2 / 3) / 2) / 2)
    logits, labels = np.array(outputs["logits"]), np.array(LABELS[0] + LABELS[1])
    expected = np.mean(np.log1p(np.exp(-logits)) * labels + np.log1p(np.exp(logits)) * (1 - labels))
    assert found["loss"] == pytest.approx(expected, rel=1e-6)
    grades = [tuple(3 * label for label in example.labels) for example in examples[:2]]
    graded = [e._replace(labels=row) for e, row in zip(examples[:2], grades, strict=True)]
    assert task.metrics(judged._replace(examples=graded), outputs)["loss"] == found["loss"]


def test_what_a_loss_needs_is_named(tiny_vocab, examples) -> None:
    tokenizer = make_tokenizer(tiny_vocab, True)
    bare = [example._replace(scores=()) for example in examples]
    with pytest.raises(ValueError, match="line 0 .*scores.* --ranking_loss=mse"):
        training_rows(bare, tokenizer, 16, "mse", 8)
    graded = [examples[0]._replace(labels=(2.0, 0.0, 0.0))]
    with pytest.raises(ValueError, match=r"line 0 .*labels \[2.0, 0.0, 0.0\]; bce "):
        training_rows(graded, tokenizer, 16, "bce", 8)
    with pytest.raises(ValueError, match="--list_size=1: --ranking_loss=listnet "):
        training_rows(examples, tokenizer, 16, "listnet", 1)
    with pytest.raises(ValueError, match="^--ranking_loss=listnet: .*query"):
        training_rows(examples[2:], tokenizer, 16, "listnet", 8)
