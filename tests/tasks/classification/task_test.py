"""Classification: what the model sees of texts, losses by hand, scores of windows, metrics."""

import math

import numpy as np
import pytest

from bert_tf.tasks.base.examples.rows import length_buckets
from bert_tf.tasks.classification.examples import TextExample
from bert_tf.tasks.classification.features import TextExamples, make_examples
from bert_tf.tasks.classification.label_arrays import label_array
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.classification.task import METRICS, ClassificationTask, class_weights
from bert_tf.text.text_counts import counting_texts
from bert_tf.text.wordpiece import WordPiece
from tests.float_bounds import assert_close

LABELS = ("neg", "pos")


def example(text_a: str, text_b: str = "", label: str | None = "pos") -> TextExample:
    return TextExample(text_a, text_b, label, "0", "made line 1")


@pytest.fixture
def tokenizer(tiny_vocab) -> WordPiece:
    return WordPiece(tiny_vocab, do_lower_case=True)


def make(
    tokenizer, texts, length=8, long_texts="head", labels=None, kind="single_label", **options
):
    labels = np.zeros(len(texts), np.int32) if labels is None else labels
    examples = [example(*text) if isinstance(text, tuple) else example(text) for text in texts]
    return make_examples(examples, labels, kind, tokenizer, length, long_texts, **options)


def pieces(tokenizer, made: TextExamples) -> list[str]:
    """Returns the rows as text, without padding."""
    batch = made.rows.batch(np.arange(len(made.rows)), len(made.rows), 16)
    tokens = np.array(tokenizer.vocab.tokens, object)
    return [
        " ".join(tokens[ids[mask == 1]])
        for ids, mask in zip(batch["input_word_ids"], batch["input_mask"], strict=True)
    ]


@pytest.mark.parametrize(
    ("long_texts", "expected", "num_cut"),
    [
        ("head", ["[CLS] the river was slow [SEP]", "[CLS] the mill [SEP]"], 1),
        ("tail", ["[CLS] slow and the boat [SEP]", "[CLS] the mill [SEP]"], 1),
        (
            "windows",
            [
                "[CLS] the river was slow [SEP]",
                "[CLS] was slow and the [SEP]",
                "[CLS] and the boat [SEP]",
                "[CLS] the mill [SEP]",
            ],
            0,
        ),
    ],
)
def test_long_texts(tokenizer, long_texts, expected, num_cut):
    texts = ["the river was slow and the boat", "the mill"]
    with counting_texts("") as counts:
        made = make(tokenizer, texts, 6, long_texts, np.array([1, 0], np.int32))
    assert pieces(tokenizer, made) == expected
    assert counts.num_cut == num_cut
    assert made.owners.tolist() == [0] * (len(expected) - 1) + [1]
    assert made.rows.labels["label_ids"].tolist() == [1] * (len(expected) - 1) + [0]


def test_pairs_and_those_that_just_fit(tokenizer):
    texts = [("the mill stone", "the boat"), ("the mill", "the boat was slow and open"), ("", "")]
    with counting_texts("") as counts:
        made = make(tokenizer, texts)
    assert pieces(tokenizer, made) == [
        "[CLS] the mill stone [SEP] the boat [SEP]",
        "[CLS] the mill [SEP] the boat was [SEP]",
        "[CLS] [SEP]",
    ]
    assert (counts.num_texts, counts.num_cut, counts.num_empty) == (3, 1, 1)
    batch = made.rows.batch(np.arange(1), 1, 8)
    assert batch["input_type_ids"].tolist() == [[0, 0, 0, 0, 0, 1, 1, 1]]


def test_balanced_weights_are_scikit_learns():
    ids = np.array([0, 0, 0, 1, 0, 2, 2])
    compute = pytest.importorskip("sklearn.utils.class_weight").compute_class_weight
    expected = compute("balanced", classes=np.arange(3), y=ids)
    np.testing.assert_allclose(class_weights("balanced", ids, "abc"), expected, rtol=1e-6)


def test_given_weights():
    ids = np.array([0, 1])
    assert class_weights("", ids, LABELS) is None
    np.testing.assert_array_equal(class_weights("pos=2.5", ids, LABELS), [1, 2.5])
    np.testing.assert_array_equal(class_weights("pos=2, neg=3", ids, LABELS), [3, 2])
    np.testing.assert_array_equal(class_weights("a=b=4", ids, ("a=b", "c")), [4, 1])


def test_weights_of_unknown_classes_are_named():
    with pytest.raises(ValueError, match="class_weights.*other=2"):
        class_weights("other=2", np.array([0, 1]), LABELS)


def test_rows_carry_the_weight_of_their_class(tokenizer):
    made = make(
        tokenizer,
        ["a", "the", "of"],
        labels=np.array([1, 0, 1], np.int32),
        weights=np.array([3, 5]),
    )
    batch = made.rows.batch(np.arange(3), 4, 8)
    np.testing.assert_array_equal(batch["example_weights"], [5, 3, 5, 0])
    assert batch["example_weights"].dtype == np.float32


def make_task(
    config, made, kind="single_label", labels=LABELS, metric_names=None
) -> ClassificationTask:
    return ClassificationTask(
        BertClassifier(config, max(1, len(labels))),
        made.rows,
        made,
        length_buckets(8, is_compiled=False),
        1,
        kind=kind,
        labels=labels,
        metric_names=metric_names or METRICS[kind],
    )


def test_losses_of_classes_by_hand(tiny_config, tokenizer):
    weights = np.array([2, 3], np.float32)
    labels = np.array([1, 0, 1], np.int32)
    made = make(tokenizer, ["a", "the", "of"], labels=labels, weights=weights)
    task = make_task(tiny_config, made)
    batch = made.rows.batch(np.arange(3), 4, 8)
    logits = np.log(np.array([[1, 3], [4, 1], [7, 1], [1, 1]], np.float32))
    sums = task.loss_and_metric_sums(batch, logits)
    # Weights 3, 2, 3; probabilities of the labels 3/4, 4/5, 1/8; the last row only fills.
    assert float(sums["loss"].total) == pytest.approx(
        -3 * math.log(3 / 4) - 2 * math.log(4 / 5) - 3 * math.log(1 / 8), rel=1e-5
    )
    assert float(sums["loss"].weight) == 8 == float(task.loss_weights(batch)["loss"])
    assert [float(value) for value in sums["accuracy"]] == [2, 3]
    shown = task.predictions(batch, logits)
    np.testing.assert_allclose(
        shown["loss"][:3], [math.log(4 / 3), math.log(5 / 4), math.log(8)], rtol=1e-6
    )


def test_losses_of_several_labels_and_numbers_by_hand(tiny_config, tokenizer):
    labels = np.array([[1, 0, 1], [0, 0, 0]], np.float32)
    made = make(tokenizer, ["a", "the"], labels=labels, kind="multi_label")
    task = make_task(tiny_config, made, "multi_label", ("x", "y", "z"))
    # Odds 1, 3, 3 of the first row, 1, 1, 1 of the second; the mean over the classes.
    logits = np.log(np.array([[1, 3, 3], [1, 1, 1]], np.float32))
    sums = task.loss_and_metric_sums(made.rows.batch(np.arange(2), 2, 8), logits)
    first = (math.log(2) - math.log(1 / 4) - math.log(3 / 4)) / 3
    assert float(sums["loss"].total) == pytest.approx(first + math.log(2), rel=1e-5)
    assert set(sums) == {"loss"} == set(task.sum_names)

    made = make(tokenizer, ["a", "the"], labels=np.array([2.5, -1], np.float32), kind="regression")
    task = make_task(tiny_config, made, "regression", ())
    sums = task.loss_and_metric_sums(
        made.rows.batch(np.arange(2), 2, 8), np.array([[2.0], [1.0]], np.float32)
    )
    assert [float(value) for value in sums["loss"]] == [0.25 + 4, 2]


def windows(labels) -> TextExamples:
    """Three examples of 2, 1 and 3 rows."""
    return TextExamples([example("a")] * 3, None, np.array([0, 0, 1, 2, 2, 2]), labels, 0)


def test_scores_of_windows_are_averaged(tiny_config, tokenizer):
    task = make_task(tiny_config, make(tokenizer, ["a"]))
    rows = np.array([[0, 1], [4, 1], [0, 2], [1, 0], [0, 2], [5, 2]], np.float32)
    outputs = {"logits": list(rows), "loss": [1.0, 2, 3, 4, 5, 9]}
    made = windows(np.array([0, 1, 1]))
    np.testing.assert_allclose(task.logits(made, outputs), [[2, 1], [0, 2], [2, 4 / 3]], rtol=1e-6)
    assert task.answers(made, outputs).tolist() == [0, 1, 0]
    odds = np.exp([1, -2, 2 / 3])
    np.testing.assert_allclose(
        task.probabilities(made, outputs)[:, 0], odds / (1 + odds), rtol=1e-6
    )
    values = task.metrics(made, outputs)
    assert values["loss"] == 4 and values["accuracy"] == 2 / 3
    assert list(values) == ["loss", "accuracy", "macro_f1", "expected_calibration_error"]


def test_several_answers_and_numbers(tiny_config, tokenizer):
    made = windows(np.array([[1, 0], [1, 1], [0, 0]], np.float32))
    rows = np.array([[0, 1], [4, -3], [-1, 2], [-1, 0], [0, -2], [5, 2]], np.float32)
    outputs = {"logits": list(rows), "loss": [1.0] * 6}
    task = make_task(
        tiny_config,
        make(tokenizer, ["a"], labels=np.zeros([1, 2]), kind="multi_label"),
        "multi_label",
    )
    assert task.answers(made, outputs).tolist() == [[1, 0], [0, 1], [1, 0]]
    assert_close(task.probabilities(made, outputs)[0], 1 / (1 + np.exp([-2, 1])))
    # Right 2, predicted 3, true 3; classes: 1 of 2 and 2, 1 of 1 and 1.
    values = task.metrics(made, outputs)
    assert 0 < values.pop("expected_calibration_error") < 1
    assert values == pytest.approx(
        {"loss": 1, "micro_f1": 2 / 3, "macro_f1": (2 / 4 + 1) / 2, "accuracy": 1 / 3}
    )

    task = make_task(
        tiny_config, make(tokenizer, ["a"], labels=np.zeros(1), kind="regression"), "regression"
    )
    outputs["logits"] = list(rows[:, :1])
    made = windows(np.array([2, 1, 0], np.float32))
    np.testing.assert_allclose(task.answers(made, outputs), [2, -1, 4 / 3], rtol=1e-6)
    assert task.probabilities(made, outputs).shape == (3, 1)
    values = task.metrics(made, outputs)
    assert values["mean_squared_error"] == pytest.approx((0 + 4 + 16 / 9) / 3)
    assert values["pearson"] == pytest.approx(np.corrcoef([2, 1, 0], [2, -1, 4 / 3])[0, 1])


def test_metrics_of_glue_are_reported_as_named(tiny_config, tokenizer):
    task = make_task(
        tiny_config, make(tokenizer, ["a"]), metric_names=("matthews", "f1", "accuracy")
    )
    made = TextExamples([example("a")] * 4, None, np.arange(4), np.array([1, 1, 1, 0]), 0)
    logits = [np.array(row, np.float32) for row in ([0, 1], [1, 0], [0, 1], [0, 1])]
    values = task.metrics(made, {"logits": logits, "loss": [0.0] * 4})
    # All answers have the probability e / (1 + e), and half of them are right.
    error = np.e / (1 + np.e) - 0.5
    assert values.pop("expected_calibration_error") == pytest.approx(error)
    assert values == pytest.approx({"loss": 0, "matthews": -1 / 3, "f1": 2 / 3, "accuracy": 0.5})
    assert task.score({"matthews": 0.25}) == 0.25
    task.best_metric = "loss"
    assert task.score({"loss": 0.25}) == -0.25


def test_labels_of_each_kind():
    examples = [example("a", label=label) for label in ("1", "0|1", "")]
    np.testing.assert_array_equal(
        label_array(examples, "01", "multi_label"), [[0, 1], [1, 1], [0, 0]]
    )
    np.testing.assert_array_equal(label_array(examples[:1], "01", "single_label"), [1])
    assert label_array(examples[:1], (), "regression").dtype == np.float32
