"""A train step in micro-batches for losses that need the embeddings of the whole batch at once.

With in-batch negatives, an independent micro-batch would have fewer negatives, and the loss would
depend on the machine's memory. Instead, the batch is embedded part by part and only the embeddings
are kept. The loss over the embeddings of all devices is computed once, with its gradient with
respect to each embedding. Then every part is embedded again, with the same dropout, and this
gradient is propagated. The dropout is that of the whole batch, however it is split:

    parts --embed, discard--> embeddings [B, D] --loss--> dL/d(embedding)
    parts --embed, keep--> backward from the part's rows of dL/d(embedding), summed

A batch of a single part is embedded only once.

Reference: Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited
Setup" (GradCache).
"""

from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from bert_tf.network.losses import WeightedSum
from bert_tf.network.xla_region import compile_xla_regions
from bert_tf.system.type_names import Batch, Tensor
from bert_tf.training.distribution import split_rows
from bert_tf.training.task import Task
from bert_tf.training.train_step import Gradients, ReplicaFunction, TrainStep, row_of, step_seed

Embeddings = tuple[Tensor, ...]


class EmbeddingTask(Task, Protocol):
    """A task whose loss is a function of the whole batch.

    Attributes:
      label_names: features of a batch that the loss needs in addition to the embeddings.
    """

    label_names: tuple[str, ...]

    def embed(self, batch: Batch, dropout_seed: Tensor) -> Embeddings:
        """Embeds b examples with dropout; returns tensors [b, ...], each row from one example.

        A part of a batch also has the names of `sizes`: int32 [b, 2], the sums of the sizes over
        all preceding examples.
        """

    def sizes(self, batch: Batch) -> Batch:
        """Returns the sizes by which dropout counts: attention rows and tokens, int32 [B, 2]."""

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
        self, batch: Batch, weights: dict[str, Tensor], step: Tensor, part: Tensor
    ) -> tuple[Gradients, Tensor]:
        """See `TrainStep`; `weights` and `part` are unused, as the loss is that of all rows."""
        labels = {name: batch[name] for name in self.task.label_names}
        seed = step_seed(self.random_seed, step, tf.constant(0))
        count = self.accumulation_steps
        # Dropout counts rows and tokens from the start of the whole batch.
        if count * self.strategy.num_replicas_in_sync > 1:
            batch = dict(batch)
            for name, sizes in self.task.sizes(batch).items():
                batch[name] = self._before(sizes)
        if count == 1:
            with compile_xla_regions(self.compile_parts):
                return self._at_once(batch, labels, seed)
        parts = {name: split_rows(value, count) for name, value in batch.items()}

        def micro_batch(index: Tensor) -> Batch:
            return {name: value[index] for name, value in parts.items()}

        # First pass: embeddings only, no activations are kept.
        embeddings = self._embed_parts(micro_batch, seed)
        upstream, sums = self._loss_gradients(embeddings, labels)
        upstream_parts = [split_rows(value, count) for value in upstream]  # [count, B / count, D]

        def add(index: Tensor, gradients: Gradients) -> tuple[Tensor, Gradients]:
            part_upstream = [value[index] for value in upstream_parts]
            # Second pass: the same part with the same dropout, now with a backward pass.
            part_gradients = self._run_backward(micro_batch(index), seed, part_upstream)
            return index + 1, list(map(tf.add, gradients, part_gradients))

        start = (tf.constant(0), list(map(tf.zeros_like, self._variables())))
        # As in `TrainStep`, one micro-batch at a time: several would keep more activations.
        _, gradients = tf.while_loop(
            lambda index, _: index < count, add, start, parallel_iterations=1
        )
        return gradients, sums

    def _embed_parts(self, micro_batch: Callable[[Tensor], Batch], seed: Tensor) -> Embeddings:
        """Returns the embeddings of all micro-batches, [B, ...] each."""
        count = self.accumulation_steps
        first = self._run_embed(micro_batch(tf.constant(0)), seed)
        arrays = []
        for value in first:
            # The first part is embedded outside the loop, because it gives the shapes.
            array = tf.TensorArray(tf.float32, count, element_shape=value.shape)
            arrays.append(array.write(0, value))

        def embed(
            index: Tensor, arrays: list[tf.TensorArray]
        ) -> tuple[Tensor, list[tf.TensorArray]]:
            values = self._run_embed(micro_batch(index), seed)
            written = [array.write(index, v) for array, v in zip(arrays, values, strict=True)]
            return index + 1, written

        _, arrays = tf.while_loop(
            lambda index, _: index < count, embed, (tf.constant(1), arrays), parallel_iterations=1
        )
        embeddings = tuple(array.concat() for array in arrays)
        for value, part in zip(embeddings, first, strict=True):
            value.set_shape([None, *part.shape[1:]])
        return embeddings

    def _at_once(self, batch: Batch, labels: Batch, seed: Tensor) -> tuple[Gradients, Tensor]:
        """Handles a batch of a single part, whose forward pass is kept for the backward pass."""
        variables = self._variables()
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            embeddings = self.task.embed(batch, seed)
        upstream, sums = self._loss_gradients(embeddings, labels)
        return self._through(tape, embeddings, upstream), sums

    def _backward(self, batch: Batch, seed: Tensor, upstream: list[Tensor]) -> Gradients:
        """Returns the gradients of a part, given the gradients of its embeddings."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._variables())
            embeddings = self.task.embed(batch, seed)
        return self._through(tape, embeddings, upstream)

    def _through(
        self, tape: tf.GradientTape, embeddings: Embeddings, upstream: list[Tensor]
    ) -> Gradients:
        gradients = tape.gradient(
            list(embeddings),
            self._variables(),
            output_gradients=list(upstream),
            unconnected_gradients="zero",
        )
        return list(map(tf.convert_to_tensor, gradients))

    def _loss_gradients(self, embeddings: Embeddings, labels: Batch) -> tuple[list[Tensor], Tensor]:
        """Computes the loss over the embeddings of all devices.

        Returns:
          The gradients of this device's embeddings, and its share of the row of sums; the shares of
          all devices add up to the sums.
        """
        replicas = self.strategy.num_replicas_in_sync
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            # Every device has the embeddings of all: negatives come from the whole batch.
            gathered = tuple(self._gather(tf.stop_gradient(value)) for value in embeddings)
            tape.watch(gathered)
            gathered_labels = {name: self._gather(value) for name, value in labels.items()}
            sums = self.task.batch_sums(gathered, gathered_labels)
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
        # Each device propagates the gradients of its rows; a sum over devices is the whole.
        local = [split_rows(gradient, replicas)[replica] for gradient in gradients]
        # All devices computed the same sums, which the reduction would add.
        return local, row / replicas

    def _before(self, sizes: Tensor) -> Tensor:
        """Returns the sum of sizes [B, 2] over all rows before each, on all devices."""
        starts = tf.cumsum(sizes, exclusive=True)  # [B, 2]
        if self.strategy.num_replicas_in_sync == 1:
            return starts
        local_total = tf.reduce_sum(sizes, axis=0, keepdims=True)  # [1, 2]
        totals = self._gather(tf.cast(local_total, tf.float32))  # Devices do not exchange int32.
        context = tf.distribute.get_replica_context()
        replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
        return starts + tf.cast(tf.cumsum(totals, exclusive=True)[replica], tf.int32)

    def _gather(self, value: Tensor) -> Tensor:
        """Returns the rows of all devices in the order of the batch."""
        if self.strategy.num_replicas_in_sync == 1:
            return value
        return tf.distribute.get_replica_context().all_gather(value, axis=0)
