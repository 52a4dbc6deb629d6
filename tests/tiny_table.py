"""The smallest task that the loop can train: a sum of pieces' vectors guesses one more piece."""

import select
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.corpus.example_order import order_examples
from bert_tf.corpus.mapping import InputShard
from bert_tf.network.losses import WeightedSum


class Table(keras.Model):
    """Scores pieces by the sum of a text's vectors; noise stands for dropout."""

    def __init__(self, pieces: int, length: int) -> None:
        super().__init__(name="table")
        self.table = keras.layers.Embedding(pieces, 8, name="table")
        self.out = keras.layers.Dense(pieces, name="out")
        self.out.build([None, 8])
        self.table.build([None, length])

    def call(self, batch: Any, training: bool, dropout_seed: Any = None) -> Any:
        hidden = tf.reduce_sum(self.table(batch["pieces"]), axis=1)
        if training:
            hidden += tf.random.stateless_normal(tf.shape(hidden), [dropout_seed, 0]) / 10
        return self.out(hidden)


class TableTask:
    """A `bert_tf.training.task.Task` over records of `length` pieces and the one to be guessed.

    A record of zeros alone has no loss: it is what rewinds are for.
    Each batch takes `seconds` to read: time for faults to come.
    """

    loss_names, sum_names = ("loss_of_pieces",), ("loss_of_pieces",)

    def __init__(self, records: Any, pieces: int, length: int, seconds: float) -> None:
        self.model = Table(pieces, length)
        self.records = records
        self.length = length
        self.seconds = seconds

    def train_dataset(self, batch_size: int, start_step: int, shard: InputShard) -> tf.data.Dataset:
        rows = shard.rows(batch_size)

        def read(step: np.ndarray) -> np.ndarray:
            select.select([], [], [], self.seconds)  # libfaketime breaks sleep
            ids, _ = order_examples(step * batch_size + rows, len(self.records), 0)
            return np.stack([np.frombuffer(r, np.int32) for r in self.records.read(ids)])

        def load(step: tf.Tensor) -> dict[str, tf.Tensor]:
            found = tf.numpy_function(read, [step], tf.int32)
            found = tf.ensure_shape(found, [len(rows), self.length + 1])
            return {"pieces": found[:, :-1], "targets": found[:, -1]}

        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return tf.data.Dataset.range(start_step, 10**9).map(load).with_options(options)

    def eval_dataset(self, batch_size: int, max_steps: int, shard: InputShard) -> tf.data.Dataset:
        return self.train_dataset(batch_size, 0, shard).take(max_steps)

    def loss_weights(self, batch: Any) -> dict[str, tf.Tensor]:
        return {"loss_of_pieces": tf.cast(tf.size(batch["targets"]), tf.float32)}

    def score(self, results: dict[str, float]) -> float:
        return -results["loss"]

    def loss_and_metric_sums(self, batch: Any, outputs: tf.Tensor) -> dict[str, WeightedSum]:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["targets"], outputs)
        is_broken = tf.reduce_all(batch["pieces"] == 0, axis=1)
        losses = tf.where(is_broken, np.nan, losses)
        weight = tf.cast(tf.size(batch["targets"]), tf.float32)
        return {"loss_of_pieces": WeightedSum(tf.reduce_sum(losses), weight)}
