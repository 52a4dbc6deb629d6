"""One optimizer step, and many of them in one graph call.

Losses are sums with weights. The weights depend only on the labels, so their total over all
replicas and micro-batches is known in advance. Every micro-batch divides its summed loss by this
total, and the gradients are added: the result is the gradient of the whole batch, however it is
split.

XLA compiles the work of one replica. On one device that is the whole step; with several devices it
is the forward and backward pass of a micro-batch. The loop over micro-batches, the reduction and
the update then stay outside, because two replicas on one CPU would deadlock if each ran in a
compiled loop. Without XLA the length of the examples may differ from batch to batch; on one device
the update of each variable is still compiled, so that it passes over the weights only once.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.network.attention_form import attention_form
from bert_tf.network.losses import WeightedSum
from bert_tf.network.xla_region import compile_xla_regions
from bert_tf.system.type_names import Batch, Tensor
from bert_tf.training.distribution import split_rows
from bert_tf.training.loss_spikes import LossGuard
from bert_tf.training.optimizers import AdamWeightDecay
from bert_tf.training.task import Task

Gradients = list[Tensor]
SUM = tf.distribute.ReduceOp.SUM


class ReplicaFunction:
    """A compiled function, traced once per replica.

    A traced function captures the first caller's copies of the variables. If replicas shared a
    function, all would read the variables of the first replica.

    Args:
      compile_parts: compile only the regions of `xla_region.py`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        strategy: tf.distribute.Strategy,
        jit_compile: bool,
        compile_parts: bool = False,
        attention: str = "plain",
    ) -> None:
        # A TPU compiles everything that its replicas run, and does not accept the option.
        is_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        options = {"jit_compile": True} if jit_compile and not is_tpu else {}
        # On a TPU one trace serves all replicas, whose index is a tensor.
        replicas = 1 if is_tpu else strategy.num_replicas_in_sync

        def traced(*args: Any) -> Any:
            with compile_xla_regions(compile_parts), attention_form(attention):
                return function(*args)

        self._functions = [tf.function(traced, autograph=False, **options) for _ in range(replicas)]

    def __call__(self, *args: Any) -> Any:
        if len(self._functions) == 1:
            return self._functions[0](*args)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return self._functions[int(tf.get_static_value(tf.convert_to_tensor(replica)))](*args)


class LossScale:
    """Dynamic loss scale for float16: halved on overflow, doubled after `PERIOD` good steps."""

    PERIOD = 2000

    def __init__(self) -> None:
        self.scale = tf.Variable(2.0**15, trainable=False, name="scale")
        self.good_steps = tf.Variable(0, trainable=False, name="good_steps")

    @property
    def variables(self) -> dict[str, tf.Variable]:
        return {"loss_scale/scale": self.scale, "loss_scale/good_steps": self.good_steps}

    def update(self, is_finite: Tensor) -> None:
        """Updates the scale after a step whose gradients were finite or not."""
        good = tf.where(is_finite, self.good_steps + 1, 0)
        grown = tf.where(good >= self.PERIOD, self.scale * 2.0, self.scale)
        self.scale.assign(tf.where(is_finite, grown, tf.maximum(self.scale / 2.0, 1.0)))
        self.good_steps.assign(tf.where(good >= self.PERIOD, 0, good))


def step_seed(random_seed: int, step: Tensor, part: Tensor) -> Tensor:
    """Returns the dropout seed of one micro-batch: int32 [], a pure function of its arguments.

    Args:
      step: int32 [], optimizer steps done before this one.
      part: int32 [], index of the micro-batch over all replicas.
    """
    seed = tf.stack([tf.cast(step, tf.int32), tf.cast(part, tf.int32)])
    folded = tf.random.experimental.stateless_fold_in(seed, random_seed)
    return tf.random.stateless_uniform([], folded, minval=None, maxval=None, dtype=tf.int32)


def row_of(sums: dict[str, WeightedSum], names: Sequence[str]) -> Tensor:
    """Returns float32 [2 * sums]: all totals, then all weights."""
    totals = [sums[name].total for name in names]
    weights = [sums[name].weight for name in names]
    return tf.stack(totals + weights)


def sum_columns(names: Sequence[str]) -> list[str]:
    """Returns the names of the numbers of `row_of`."""
    return [f"{name}_total" for name in names] + [f"{name}_weight" for name in names]


class TrainStep:
    """Runs optimizer steps of a task under a strategy.

    Args:
      task: the model, its losses and metrics.
      optimizer: an optimizer of `bert_tf.optimization`, built.
      accumulation_steps: micro-batches per step; divides a replica's batch.
      compile_parts: compile only the regions of `xla_region.py`.
      attention: see `attention_form.py`.
      loss_scale: the loss scale, for float16.
      guard: skips updates whose loss or gradients are bad.
    """

    def __init__(
        self,
        task: Task,
        optimizer: AdamWeightDecay,
        strategy: tf.distribute.Strategy,
        *,
        random_seed: int,
        accumulation_steps: int = 1,
        jit_compile: bool = True,
        compile_parts: bool = False,
        attention: str = "plain",
        loss_scale: LossScale | None = None,
        guard: LossGuard | None = None,
    ) -> None:
        self.task = task
        self.optimizer = optimizer
        self.strategy = strategy
        self.random_seed = random_seed
        self.accumulation_steps = accumulation_steps
        self.loss_scale = loss_scale
        self.guard = guard
        self.compile_parts = compile_parts
        self.compilation = (strategy, jit_compile, compile_parts, attention)
        columns = [*sum_columns(task.sum_names), "learning_rate", "gradient_norm"]
        if guard:
            columns += ["loss_limit", "is_good"]
        self.columns = tuple(columns)
        self._run_micro_batch = ReplicaFunction(self._micro_batch, *self.compilation)
        self._run_one_device = ReplicaFunction(self._whole_step, *self.compilation)
        # Without XLA for the step, the update is compiled alone, as its shapes never change.
        optimizer.jit_compile = not jit_compile

    @tf.function
    def __call__(self, iterator: Iterator, first_step: Tensor, num_steps: Tensor) -> Tensor:
        """Runs `num_steps` steps, each with the next batch.

        Args:
          iterator: iterator over batches of `distribute`.
          first_step: int32 [], steps done so far.
          num_steps: int32 [], steps to run.

        Returns:
          float32 [num_steps, len(self.columns)], one row per step.
        """
        rows = tf.TensorArray(tf.float32, num_steps, element_shape=[len(self.columns)])
        # AutoGraph makes this a loop of the graph: Python is not called between steps.
        for index in tf.range(num_steps):
            rows = rows.write(index, self._step(next(iterator), first_step + index))
        return rows.stack()

    # AutoGraph would convert all called functions, but only the loop above needs it.
    @tf.autograph.experimental.do_not_convert
    def _step(self, batch: Batch, step: Tensor) -> Tensor:
        if self.strategy.num_replicas_in_sync == 1:
            return self.strategy.run(self._run_one_device, (batch, step))
        gradients, sums = self.strategy.run(self._reduced_gradients, (batch, step))
        sums = self.strategy.experimental_local_results(sums)[0]
        return self._apply(gradients, sums, lambda grads: self.strategy.run(self._update, (grads,)))

    def _whole_step(self, batch: Batch, step: Tensor) -> Tensor:
        """Runs a step on one device: forward, backward, clip and update."""
        weights = self.task.loss_weights(batch)
        gradients, sums = self._gradients(batch, weights, step, tf.constant(0))
        return self._apply(gradients, sums, self._update)

    def _reduced_gradients(self, batch: Batch, step: Tensor) -> tuple[Gradients, Tensor]:
        """Runs forward and backward on one of several replicas, and sums over all replicas."""
        replica = tf.distribute.get_replica_context()
        # Each replica divides by the weight of the whole batch, so the gradients are only added.
        weights = replica.all_reduce(SUM, self.task.loss_weights(batch))
        part = tf.cast(replica.replica_id_in_sync_group, tf.int32) * self.accumulation_steps
        gradients, sums = self._gradients(batch, weights, step, part)
        loss_scale = self.loss_scale.scale if self.loss_scale else 1.0
        # An optimizer that clips like the original does so on each replica, before the sum.
        gradients = self.optimizer.clip_share(gradients, loss_scale)
        return replica.all_reduce(SUM, gradients), replica.all_reduce(SUM, sums)

    def _gradients(
        self, batch: Batch, weights: dict[str, Tensor], step: Tensor, part: Tensor
    ) -> tuple[Gradients, Tensor]:
        """Adds gradients and sums over this replica's micro-batches.

        Returns:
          The gradients of the scaled loss, dense, one per trainable variable; and float32
          [2 * sums]: all totals, then all weights.
        """
        count = self.accumulation_steps
        if count == 1:
            return self._run_micro_batch(batch, weights, step_seed(self.random_seed, step, part))
        parts = {name: split_rows(value, count) for name, value in batch.items()}

        def add(
            index: Tensor, gradients: Gradients, sums: Tensor
        ) -> tuple[Tensor, Gradients, Tensor]:
            micro_batch = {name: value[index] for name, value in parts.items()}
            seed = step_seed(self.random_seed, step, part + index)
            part_gradients, part_sums = self._run_micro_batch(micro_batch, weights, seed)
            return index + 1, list(map(tf.add, gradients, part_gradients)), sums + part_sums

        gradients = list(map(tf.zeros_like, self._variables()))
        sums = tf.zeros([2 * len(self.task.sum_names)])
        start = (tf.constant(0), gradients, sums)
        # By default TensorFlow begins ten micro-batches at once, and keeps the activations of all.
        loop = tf.while_loop(lambda index, *_: index < count, add, start, parallel_iterations=1)
        return loop[1:]

    def _micro_batch(
        self, batch: Batch, weights: dict[str, Tensor], seed: Tensor
    ) -> tuple[Gradients, Tensor]:
        variables = self._variables()
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            outputs = self.task.model(batch, training=True, dropout_seed=seed)
            sums = self.task.loss_and_metric_sums(batch, outputs)
            # A loss without weight (no NSP labels in the batch) counts as zero.
            ratio = tf.math.divide_no_nan
            loss = tf.add_n([ratio(sums[k].total, weights[k]) for k in self.task.loss_names])
            if self.loss_scale:
                loss *= self.loss_scale.scale
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        # This sums repeated ids of an embedding gradient; optimizers need the dense form.
        return list(map(tf.convert_to_tensor, gradients)), row_of(sums, self.task.sum_names)

    def _apply(
        self, gradients: Gradients, sums: Tensor, update: Callable[[Gradients], Any]
    ) -> Tensor:
        """Updates the weights unless the step is bad; returns its row, float32 [len(columns)]."""
        learning_rate = tf.cast(self.optimizer.learning_rate, tf.float32)
        if self.loss_scale is None and self.guard is None:
            row = [learning_rate, self._local(update(gradients))]
        else:
            row = [learning_rate, *self._apply_if_good(gradients, sums, update)]
        return tf.concat([sums, tf.stack(row)], axis=0)

    def _apply_if_good(
        self, gradients: Gradients, sums: Tensor, update: Callable[[Gradients], Any]
    ) -> list[Tensor]:
        """Updates the weights, unless float16 gradients overflowed or the guard rejects the step.

        Returns:
          The gradient norm, 0 or not finite if the update was skipped, and with a guard
          `loss_limit` and `is_good`; all float32 [].
        """
        total = tf.add_n([tf.reduce_sum(self._local(gradient)) for gradient in gradients])
        is_finite = tf.math.is_finite(total)
        is_good = is_finite
        # An overflow that a smaller loss scale prevents is not a fault of the step.
        is_scaled = self.loss_scale.scale > 1.0 if self.loss_scale else tf.constant(False)
        skipped_norm = tf.where(is_finite | is_scaled, 0.0, total)
        guard_columns = []
        if self.guard:
            accepted, limit = self.guard.check(self._loss(sums), is_finite | is_scaled)
            is_good &= accepted
            guard_columns = [limit, tf.cast(accepted, tf.float32)]
        # The decision is in the graph: the host sees a step only after its call.
        norm = tf.cond(is_good, lambda: self._local(update(gradients)), lambda: skipped_norm)
        if self.loss_scale:
            self.loss_scale.update(is_finite)
        return [norm, *guard_columns]

    def _loss(self, sums: Tensor) -> Tensor:
        # [sums] each; see `row_of`.
        totals, weights = tf.split(sums, 2)
        columns = list(map(self.task.sum_names.index, self.task.loss_names))
        return tf.add_n([tf.math.divide_no_nan(totals[i], weights[i]) for i in columns])

    def _update(self, gradients: Gradients) -> Tensor:
        if self.loss_scale:
            # The loss was multiplied by the scale, so that small float16 gradients do not become 0.
            gradients = [g / self.loss_scale.scale for g in gradients]
        return self.optimizer.apply_summed(gradients, self.task.model.trainable_variables)

    def _local(self, value: Tensor) -> Tensor:
        return self.strategy.experimental_local_results(value)[0]

    def _variables(self) -> list[tf.Variable]:
        return [variable.value for variable in self.task.model.trainable_variables]


class EvalStep:
    """Sums losses and metrics over batches, without dropout."""

    def __init__(
        self,
        task: Task,
        strategy: tf.distribute.Strategy,
        jit_compile: bool = True,
        compile_parts: bool = False,
        attention: str = "plain",
    ) -> None:
        self.task = task
        self.strategy = strategy
        compilation = (strategy, jit_compile, compile_parts, attention)
        self._run_sums = ReplicaFunction(self._sums, *compilation)

    @tf.function(autograph=False)
    def __call__(self, batch: Batch) -> Tensor:
        """Returns the sums of one global batch, float32 [2 * sums]: totals, then weights."""
        return self.strategy.reduce(SUM, self.strategy.run(self._run_sums, (batch,)), axis=None)

    def _sums(self, batch: Batch) -> Tensor:
        sums = self.task.loss_and_metric_sums(batch, self.task.model(batch, training=False))
        return row_of(sums, self.task.sum_names)
