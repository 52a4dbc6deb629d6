"""However fine-tuning computes its steps, the losses are the same: padded or not, cut or whole.

They are compared with a slow way: each row by itself without padding, its loss written out, the
sums and the optimizer in NumPy.
"""

import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import ModelConfig, OptimizerConfig
from bert_tf.corpus.example_order import order_examples
from bert_tf.tasks.base.examples.rows import length_buckets
from bert_tf.training.distribution import distribute
from bert_tf.training.optimizers import build_optimizer, decays
from bert_tf.training.packed_rows import pack_batch
from bert_tf.training.train_step import TrainStep
from tests.float_bounds import assert_close
from tests.reference.optimizers import Twin, clip_by_global_norm, linear_schedule
from tests.training.toy_fine_tuning import LONGEST, TINY, toy_rows, toy_task

STEPS, BATCH, SEED = 6, 8, 11
RECIPE = OptimizerConfig("adamw", 3e-3, num_train_steps=20, num_warmup_steps=2)
CONFIG = ModelConfig.from_dict({**TINY.to_dict(), "num_hidden_layers": 1})


def row_loss(kind: str, row: dict[str, Any], outputs: Any) -> tuple[Any, Any]:
    """Returns summed loss and weight of a single row without padding."""
    if kind == "classes":
        scores = tf.nn.log_softmax(outputs)
        return -row["example_weights"][0] * scores[0, row["label_ids"][0]], row["example_weights"]
    if kind == "spans":
        places = row["start_positions"][0], row["end_positions"][0]
        logits = outputs["start_logits"], outputs["end_logits"]
        scores = [tf.nn.log_softmax(x)[0, at] for x, at in zip(logits, places, strict=True)]
        return -(scores[0] + scores[1]) / 2.0, tf.ones([1])
    tags = row["tag_ids"][0]
    words = tf.where(tags >= 0)[:, 0]
    scores = tf.nn.log_softmax(tf.gather(outputs[0], words))
    picked = tf.gather(scores, tf.gather(tags, words), batch_dims=1)
    return -tf.reduce_sum(picked), tf.cast(tf.size(words), tf.float32)[None]


@functools.cache
def slow_losses(kind: str) -> list[float]:
    """Trains row by row; returns the loss of each step."""
    keras.utils.set_random_seed(SEED)
    rows = toy_rows(kind)
    model = toy_task(kind, [LONGEST], config=CONFIG).model
    variables = [variable.value for variable in model.trainable_variables]
    twins = [Twin("adamw", v.numpy(), decays(v.path)) for v in model.trainable_variables]

    @tf.function(reduce_retracing=True)
    def one_row(row: dict[str, Any]) -> tuple:
        with tf.GradientTape() as tape:
            total, weight = row_loss(kind, row, model(row))
        gradients = tape.gradient(total, variables, unconnected_gradients="zero")
        return total, weight[0], [tf.convert_to_tensor(g) for g in gradients]

    losses = []
    for step in range(STEPS):
        row_ids, _ = order_examples(np.arange(step * BATCH, (step + 1) * BATCH), len(rows), 3)
        batches = [
            rows.batch(row_ids[i : i + 1], 1, rows.lengths[row_ids[i]]) for i in range(BATCH)
        ]
        totals, weights, gradients = zip(*map(one_row, batches), strict=True)
        weight = np.sum(weights)
        losses.append(float(np.sum(totals) / weight))
        means = [np.sum(parts, axis=0) / weight for parts in zip(*gradients, strict=True)]
        rate = linear_schedule(3e-3, step, 20, 2)
        for variable, twin, mean in zip(
            variables, twins, clip_by_global_norm(means, 1.0), strict=True
        ):
            variable.assign(twin.step(mean, rate))
    return losses


@functools.cache
def strategy_of(num_devices: int) -> tf.distribute.Strategy:
    """One strategy for all tests: TensorFlow mixes up the all-reduces of several mirrored ones."""
    if num_devices == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(num_devices)])


def fast_losses(
    kind: str,
    *,
    unpad: bool = False,
    is_plain: bool = False,
    jit_compile: bool = False,
    num_devices: int = 1,
    accumulation_steps: int = 1,
    packed: bool = False,
) -> np.ndarray:
    """Trains as the programs do; returns the loss of each step."""
    keras.utils.set_random_seed(SEED)
    buckets = length_buckets(LONGEST, jit_compile, is_plain)
    assert len(buckets) == 1 if is_plain else len(buckets) > 1
    strategy = strategy_of(num_devices)
    with strategy.scope():
        task = toy_task(kind, buckets, config=CONFIG, unpad=unpad)
        optimizer = build_optimizer(RECIPE)
        optimizer.build(task.model.trainable_variables)
    step = TrainStep(
        task,
        optimizer,
        strategy,
        random_seed=SEED,
        accumulation_steps=accumulation_steps,
        jit_compile=jit_compile,
    )
    pack = functools.partial(pack_batch, num_parts=accumulation_steps) if packed else None
    data = distribute(strategy, lambda shard: task.train_dataset(BATCH, 0, shard), pack)
    rows = step(iter(data), tf.constant(0), tf.constant(STEPS)).numpy()
    columns = dict(zip(step.columns, rows.T, strict=True))
    return columns["loss_total"] / columns["loss_weight"]


WAYS = {
    "padded": {"is_plain": True},
    "buckets": {},
    "unpadded": {"unpad": True},
    "xla": {"jit_compile": True},
    "micro_batches": {"unpad": True, "accumulation_steps": 2},
    "two_devices": {"unpad": True, "num_devices": 2},
    "two_devices_micro_batches": {"unpad": True, "num_devices": 2, "accumulation_steps": 2},
    "packed": {"packed": True},
    "packed_xla": {"packed": True, "is_plain": True, "jit_compile": True},
    "packed_micro_batches": {"packed": True, "accumulation_steps": 2},
    "packed_two_devices_micro_batches": {
        **{"packed": True, "num_devices": 2, "accumulation_steps": 2},
        **{"is_plain": True, "jit_compile": True},
    },
}
CASES = [("classes", way) for way in WAYS]
CASES += [("tags", way) for way in ("padded", "unpadded", "packed", "two_devices_micro_batches")]
CASES += [("tags", "packed_two_devices_micro_batches")]
CASES += [("spans", way) for way in ("padded", "micro_batches", "packed_micro_batches")]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "way"), CASES)
def test_losses_are_those_of_rows_by_themselves(kind, way):
    expected = slow_losses(kind)
    assert max(expected) - min(expected) > 0.05
    losses = fast_losses(kind, **WAYS[way])
    assert_close(losses, expected)
