"""What fine-tuning tasks share: which rows come in which batch, and what counts as better."""

import itertools

import keras
import numpy as np
import pytest

from bert_tf.corpus.input_shard import InputShard
from bert_tf.network.losses import weigh
from bert_tf.tasks.base.examples.row_batches import evaluation_batches, training_batches
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.programs.rows_task import RowsTask
from bert_tf.text.packing import PackedText

BUCKETS = [4, 8]


class Lengths(RowsTask):
    """Learns nothing: its loss is the length of a row."""

    best_metric = "metric"

    def loss_and_metric_sums(self, batch, outputs):
        lengths = batch["input_mask"].sum(axis=1).astype(np.float32)
        return {"loss": weigh(lengths, batch["example_weights"])}

    def predictions(self, batch, outputs):
        return {}

    def metrics(self, examples, outputs):
        return {}


class Examples:
    def __init__(self, rows):
        self.rows = rows


def make_rows(count):
    texts = [PackedText([n + 1] * (2 + n % 6), [0] * (2 + n % 6)) for n in range(count)]
    weights = np.arange(count, dtype=np.float32) + 1
    return TokenizedDataset(texts, {"example_weights": weights})


@pytest.fixture
def task():
    return Lengths(keras.Sequential(), make_rows(10), Examples(make_rows(7)), tuple(BUCKETS), 5)


def as_arrays(data, count=None):
    return list(itertools.islice(data.as_numpy_iterator(), count))


def assert_same(found, expected):
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


def test_training_batches_follow_seed_step_and_share(task):
    rows, shares = task.train_rows, InputShard(1, 2)
    expected = training_batches(rows, 4, 3, 5, BUCKETS, shares).take(3)
    assert_same(as_arrays(task.train_dataset(4, 3, 1, 2), 3), as_arrays(expected))
    whole = as_arrays(task.train_dataset(4, 0, 0, 1), 5)
    shown = np.concatenate([batch["row_ids"] for batch in whole])
    assert sorted(shown[:10]) == list(range(10)) == sorted(shown[10:])


def test_evaluation_shows_every_row_once(task):
    expected = evaluation_batches(task.eval_examples.rows, 4, 0, BUCKETS, InputShard())
    batches = as_arrays(task.eval_dataset(4, 0, 0, 1))
    assert_same(batches, as_arrays(expected))
    shown = np.concatenate([batch["row_ids"] for batch in batches])
    assert sorted(shown) == [-1, *range(7)]
    assert len(as_arrays(task.eval_dataset(4, 1, 0, 1))) == 1


def test_the_weight_of_a_batch_is_its_loss_weight(task):
    for batch in as_arrays(task.eval_dataset(4, 0, 0, 1)):
        weights = [number + 1 for number in batch["row_ids"] if number >= 0]
        assert float(task.loss_weights(batch)["loss"]) == sum(weights)
        assert float(task.loss_and_metric_sums(batch, None)["loss"].weight) == sum(weights)


def test_better_is_a_higher_metric_or_a_lower_loss(task):
    results = {"metric": 0.5, "loss": 2.0}
    assert task.score(results) == 0.5
    task.best_metric = "loss"
    assert task.score(results) == -2.0


def test_nothing_to_train_on(task):
    task.train_rows = None
    with pytest.raises(ValueError, match="--train_file"):
        task.train_dataset(4, 0, 0, 1)
