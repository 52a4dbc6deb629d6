"""A step in parts for losses that need the embeddings of the whole batch at once.

If the texts of all other rows are negatives, a separate micro-batch would have fewer of them, and
the loss would depend on the machine's memory. So the batch is embedded part by part, keeping only
the embeddings; the loss over all embeddings of all devices is computed once, with its gradient with
respect to each embedding; then every part is embedded again, with the same dropout, and that
gradient is passed on. Dropout is that of the whole batch, however it is cut:

    parts --embed, forget--> embeddings [B, D] --loss--> dL/d(embedding)
    parts --embed, keep--> backward with the part's rows of it, added up

A batch of a single part is embedded only once.

Reference: Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited
Setup" (GradCache).
"""

from typing import Any, Protocol

import tensorflow as tf

from bert_tf.network.losses import WeightedSum
from bert_tf.network.xla_region import compile_xla_regions
from bert_tf.training.distribution import split_rows
from bert_tf.training.task import Batch, Task
from bert_tf.training.train_step import Gradients, ReplicaFunction, TrainStep, row_of, step_seed

Embeddings = tuple[tf.Tensor, ...]


class EmbeddingTask(Task, Protocol):
    """A task whose loss is a function of the whole batch.

    Attributes:
      label_names: features of a batch that the loss needs in addition to the embeddings.
    """

    label_names: tuple[str, ...]

    def embed(self, batch: Batch, dropout_seed: tf.Tensor) -> Embeddings:
        """Embeds rows: tensors [b, ...], where each row depends only on itself; dropout is on.

        A part of a batch has the names of `sizes`, too: int32 [b, 2], the sum over all rows before.
        """

    def sizes(self, batch: Batch) -> Batch:
        """Returns what dropout counts of each row, rows of attention and pieces: int32 [B, 2]."""

    def batch_sums(self, embeddings: Embeddings, labels: Batch) -> dict[str, WeightedSum]:
        """Returns the sums of losses and metrics of a whole batch."""


class CachedStep(TrainStep):
    """`TrainStep` for an `EmbeddingTask`; arguments are those of `TrainStep`."""

    task: EmbeddingTask

    def __init__(self, task: EmbeddingTask, *arguments: Any, **options: Any) -> None:
        super().__init__(task, *arguments, **options)
        self._run_embed = ReplicaFunction(task.embed, *self.compilation)
        self._run_backward = ReplicaFunction(self._backward, *self.compilation)

    def _gradients(
        self, batch: Batch, weights: dict[str, tf.Tensor], step: tf.Tensor, part: tf.Tensor
    ) -> tuple[Gradients, tf.Tensor]:
        """See `TrainStep`; `weights`, `part` are not needed: loss and dropout are of all rows."""
        labels = {name: batch[name] for name in self.task.label_names}
        seed, count = step_seed(self.random_seed, step, tf.constant(0)), self.accumulation_steps
        if count * self.strategy.num_replicas_in_sync > 1:
            sizes = self.task.sizes(batch)
            batch = {**batch, **{name: self._before(value) for name, value in sizes.items()}}
        if count == 1:
            with compile_xla_regions(self.compile_parts):
                return self._at_once(batch, labels, seed)
        parts = {name: split_rows(value, count) for name, value in batch.items()}

        def micro(index: tf.Tensor) -> tuple[Batch, tf.Tensor]:
            return {name: value[index] for name, value in parts.items()}, seed

        first = self._run_embed(*micro(tf.constant(0)))
        arrays = [
            tf.TensorArray(tf.float32, count, element_shape=value.shape).write(0, value)
            for value in first
        ]

        def embed(index: tf.Tensor, arrays: list[tf.TensorArray]) -> tuple[Any, ...]:
            found = self._run_embed(*micro(index))
            written = [a.write(index, value) for a, value in zip(arrays, found, strict=True)]
            return index + 1, written

        _, arrays = tf.while_loop(lambda index, _: index < count, embed, (tf.constant(1), arrays))
        embeddings = tuple(array.concat() for array in arrays)
        for value, like in zip(embeddings, first, strict=True):
            value.set_shape([None, *like.shape[1:]])
        upstream, sums = self._loss_gradients(embeddings, labels)
        cut = [split_rows(value, count) for value in upstream]

        def add(index: tf.Tensor, gradients: Gradients) -> tuple[Any, ...]:
            more = self._run_backward(*micro(index), [value[index] for value in cut])
            return index + 1, [old + new for old, new in zip(gradients, more, strict=True)]

        start = (tf.constant(0), [tf.zeros_like(v) for v in self._variables()])
        _, gradients = tf.while_loop(lambda index, _: index < count, add, start)
        return gradients, sums

    def _at_once(self, batch: Batch, labels: Batch, seed: tf.Tensor) -> tuple[Gradients, tf.Tensor]:
        """One part: its embeddings are kept with what made them."""
        variables = self._variables()
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            embeddings = self.task.embed(batch, seed)
        upstream, sums = self._loss_gradients(embeddings, labels)
        return self._through(tape, embeddings, upstream), sums

    def _backward(self, batch: Batch, seed: tf.Tensor, upstream: list[tf.Tensor]) -> Gradients:
        """Returns the gradients of a part, given those of its embeddings."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._variables())
            embeddings = self.task.embed(batch, seed)
        return self._through(tape, embeddings, upstream)

    def _through(
        self, tape: tf.GradientTape, embeddings: Embeddings, upstream: list[tf.Tensor]
    ) -> Gradients:
        gradients = tape.gradient(
            list(embeddings),
            self._variables(),
            output_gradients=list(upstream),
            unconnected_gradients="zero",
        )
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _loss_gradients(
        self, embeddings: Embeddings, labels: Batch
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Computes the loss of the rows of all devices.

        Returns:
          The gradients of this device's embeddings, and its share of the row of sums, so that the
          shares of all devices add up to the sums.
        """
        replicas = self.strategy.num_replicas_in_sync
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            own = [tf.stop_gradient(value) for value in embeddings]
            gathered = tuple(self._gather(value) for value in own)
            tape.watch(gathered)
            sums = self.task.batch_sums(
                gathered, {name: self._gather(value) for name, value in labels.items()}
            )
            ratio = tf.math.divide_no_nan
            loss = tf.add_n([ratio(sums[k].total, sums[k].weight) for k in self.task.loss_names])
            if self.loss_scale:
                loss *= self.loss_scale.scale
        gradients = tape.gradient(loss, gathered, unconnected_gradients="zero")
        row = row_of(sums, self.task.sum_names)
        if replicas == 1:
            return list(gradients), row
        context = tf.distribute.get_replica_context()
        replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
        cut = [split_rows(gradient, replicas)[replica] for gradient in gradients]
        return cut, row / replicas

    def _before(self, sizes: tf.Tensor) -> tf.Tensor:
        """Returns the sum of sizes [B, 2] over all rows before each, those of other devices too."""
        starts = tf.cumsum(sizes, exclusive=True)
        if self.strategy.num_replicas_in_sync == 1:
            return starts
        own = tf.reduce_sum(sizes, axis=0, keepdims=True)
        totals = self._gather(tf.cast(own, tf.float32))  # Devices do not exchange int32.
        context = tf.distribute.get_replica_context()
        replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
        return starts + tf.cast(tf.cumsum(totals, exclusive=True)[replica], tf.int32)

    def _gather(self, value: tf.Tensor) -> tf.Tensor:
        """Returns the rows of all devices, in the order of the batch."""
        if self.strategy.num_replicas_in_sync == 1:
            return value
        return tf.distribute.get_replica_context().all_gather(value, axis=0)
