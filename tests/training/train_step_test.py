"""The step: however a batch is cut, the numbers are those of the whole batch."""

import dataclasses
import functools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import OptimizerConfig
from bert_tf.corpus.mapping import ALL
from bert_tf.training.distribution import distribute
from bert_tf.training.optimizers import build_optimizer
from bert_tf.training.packed_rows import pack_batch
from bert_tf.training.train_step import EvalStep, LossScale, TrainStep, step_seed
from tests.float_bounds import assert_close
from tests.reference.optimizers import clip_by_global_norm
from tests.slow_variants import slow_unless
from tests.training.toy_task import TOY, ToyTask

SLOW = pytest.mark.slow
ONE_LAYER = dataclasses.replace(TOY, num_hidden_layers=1)
RECIPE = OptimizerConfig(learning_rate=1e-2, num_train_steps=40, num_warmup_steps=4)


def run(
    strategy,
    num_steps,
    batch_size=32,
    jit_compile=False,
    accumulation_steps=1,
    scaled=False,
    packed=False,
    **options,
):
    """Returns (rows by column name, weights after training)."""
    keras.utils.set_random_seed(3)
    with strategy.scope():
        task = ToyTask(**{"config": ONE_LAYER, **options})
        optimizer = build_optimizer(RECIPE)
        optimizer.build(task.model.trainable_variables)
        loss_scale = LossScale() if scaled else None
    step = TrainStep(
        task,
        optimizer,
        strategy,
        random_seed=1,
        accumulation_steps=accumulation_steps,
        jit_compile=jit_compile,
        loss_scale=loss_scale,
    )
    pack = functools.partial(pack_batch, num_parts=accumulation_steps) if packed else None
    data = distribute(strategy, lambda shard: task.train_dataset(batch_size, 0, shard), pack)
    rows = step(iter(data), tf.constant(0), tf.constant(num_steps)).numpy()
    columns = dict(zip(step.columns, rows.T, strict=True))
    return columns, [v.numpy() for v in task.model.trainable_variables]


def losses(columns):
    return sum(
        columns[f"{name}_total"] / columns[f"{name}_weight"]
        for name in ("masked_lm_loss", "next_sentence_loss")
    )


def two_devices():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def parallel_iterations(function, *arguments):
    """Returns how many iterations of each loop of a function may be under way at a time."""
    graph = tf.function(function, autograph=False).get_concrete_function(*arguments).graph
    loops = [op for op in graph.get_operations() if op.type in ("While", "StatelessWhile")]
    return [op.get_attr("parallel_iterations") for op in loops]


def test_one_micro_batch_is_computed_at_a_time():
    """Ten at a time, TensorFlow's default, keep the activations of ten."""
    task = ToyTask(config=ONE_LAYER)
    strategy = tf.distribute.get_strategy()
    optimizer = build_optimizer(RECIPE)
    step = TrainStep(
        task, optimizer, strategy, random_seed=1, accumulation_steps=4, jit_compile=False
    )
    batch = next(iter(task.train_dataset(8, 0, ALL)))
    zero = tf.constant(0)
    weights = task.loss_weights(batch)
    assert parallel_iterations(step._gradients, batch, weights, zero, zero) == [1]


@pytest.fixture(scope="module")
def whole_batch():
    return run(tf.distribute.get_strategy(), 20)


WAYS = {
    "4x8": {"accumulation_steps": 4},
    "xla": {"jit_compile": True},
    "4x8_xla": {"accumulation_steps": 4, "jit_compile": True},
    "packed": {"packed": True},
    "packed_xla": {"packed": True, "jit_compile": True},
    "2_devices": {},
    "2_devices_2x8": {"accumulation_steps": 2},
    "2_devices_2x8_xla": {"accumulation_steps": 2, "jit_compile": True},
    "packed_2_devices_2x8": {"packed": True, "accumulation_steps": 2},
}


@pytest.mark.parametrize("way", slow_unless("4x8", WAYS))
def test_cut_batch_trains_like_the_whole_batch(whole_batch, way):
    strategy = two_devices() if "2_devices" in way else tf.distribute.get_strategy()
    columns, weights = run(strategy, 20, **WAYS[way])
    assert_close(losses(columns), losses(whole_batch[0]))
    np.testing.assert_allclose(columns["gradient_norm"], whole_batch[0]["gradient_norm"], rtol=1e-4)
    assert losses(columns)[-1] < losses(columns)[0] - 0.1
    for value, expected in zip(weights, whole_batch[1], strict=True):
        np.testing.assert_allclose(value, expected, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("strategy", [tf.distribute.get_strategy, two_devices])
def test_sixteen_bits_train_like_thirty_two(whole_batch, policy, strategy):
    keras.config.set_dtype_policy(policy)
    scaled = policy == "mixed_float16"
    columns, _ = run(strategy(), 20, scaled=scaled, jit_compile=strategy is two_devices)
    np.testing.assert_allclose(losses(columns), losses(whole_batch[0]), rtol=0.02)
    np.testing.assert_allclose(columns["gradient_norm"], whole_batch[0]["gradient_norm"], rtol=0.2)
    assert losses(columns)[-1] < losses(columns)[0] - 0.1


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_update_is_compiled_once_alone_or_with_the_step(jit_compile):
    task = ToyTask(ONE_LAYER)
    optimizer = build_optimizer(RECIPE)
    strategy = tf.distribute.get_strategy()
    TrainStep(task, optimizer, strategy, random_seed=1, jit_compile=jit_compile)
    assert optimizer.jit_compile is not jit_compile


def test_rows_are_those_of_the_model_called_by_hand(whole_batch):
    columns, _ = whole_batch
    keras.utils.set_random_seed(3)
    task = ToyTask(ONE_LAYER)
    batch = next(iter(task.train_dataset(32, 0, ALL)))
    sums = task.loss_and_metric_sums(batch, task.model(batch, training=False))
    for name, pair in sums.items():
        np.testing.assert_allclose(columns[f"{name}_total"][0], pair.total, rtol=1e-5)
        assert columns[f"{name}_weight"][0] == pair.weight


def test_learning_rate_is_that_of_the_schedule(whole_batch):
    # Warm-up over 4 steps, then linear from the value at step 4 of 40.
    expected = [0.0, 0.0025, 0.005, 0.0075, 0.01 * 36 / 40, 0.01 * 35 / 40]
    np.testing.assert_allclose(whole_batch[0]["learning_rate"][:6], expected, rtol=1e-6)


def test_dropout_seeds_differ_by_step_and_part_and_repeat():
    seeds = [
        int(step_seed(seed, tf.constant(step), tf.constant(part)))
        for seed in (0, 1)
        for step in range(4)
        for part in range(4)
    ]
    assert len(set(seeds)) == len(seeds)
    assert int(step_seed(1, tf.constant(3), tf.constant(2))) == seeds[16 + 3 * 4 + 2]


def test_loss_scale_skips_an_overflow_and_halves(monkeypatch):
    monkeypatch.setattr(LossScale, "PERIOD", 7)
    scale = LossScale()
    scale.update(tf.constant(False))
    assert float(scale.scale.numpy()) == 2.0**14
    for _ in range(7):
        assert float(scale.scale.numpy()) == 2.0**14
        scale.update(tf.constant(True))
    assert float(scale.scale.numpy()) == 2.0**15
    assert int(scale.good_steps.numpy()) == 0


@pytest.mark.slow
def test_overflow_changes_no_weight():
    """A scale of 2 ** 127 and a large head: infinite gradients; 2 ** 10 is divided out again."""
    keras.utils.set_random_seed(3)
    task, scale = ToyTask(ONE_LAYER), LossScale()
    optimizer = build_optimizer(OptimizerConfig(learning_rate=1e-2, num_warmup_steps=0))
    optimizer.build(task.model.trainable_variables)
    step = TrainStep(
        task,
        optimizer,
        tf.distribute.get_strategy(),
        random_seed=1,
        jit_compile=False,
        loss_scale=scale,
    )
    batches = iter(task.train_dataset(4, 0, ALL))
    head = next(v for v in task.model.trainable_variables if v.path.endswith("output_weights"))
    usual = head.numpy()
    head.assign(1e4 * usual)
    before = [variable.numpy() for variable in task.model.trainable_variables]
    scale.scale.assign(2.0**127)
    step(batches, tf.constant(0), tf.constant(1))
    assert float(scale.scale) == 2.0**126 and int(optimizer.iterations) == 0
    for variable, value in zip(task.model.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    head.assign(usual)
    scale.scale.assign(2.0**10)
    columns, _ = run(tf.distribute.get_strategy(), 2, batch_size=4, jit_compile=False)
    (row,) = step(batches, tf.constant(1), tf.constant(1)).numpy()
    assert float(scale.scale) == 2.0**10 and int(optimizer.iterations) == 1
    # `run` has not moved either: its first step of the warm-up has the rate 0.
    norm = dict(zip(step.columns, row, strict=True))["gradient_norm"]
    assert_close(norm, columns["gradient_norm"][1])


@pytest.mark.parametrize(("scale", "norm"), [(2.0, 0.0), (1.0, math.inf)])
def test_float16_gradients_that_no_scale_helps_are_reported(scale, norm):
    task, loss_scale = ToyTask(ONE_LAYER), LossScale()
    optimizer = build_optimizer(OptimizerConfig(num_warmup_steps=0))
    optimizer.build(task.model.trainable_variables)
    step = TrainStep(
        task, optimizer, tf.distribute.get_strategy(), random_seed=1, loss_scale=loss_scale
    )
    loss_scale.scale.assign(scale)
    sums = tf.ones([2 * len(task.sum_names)])
    assert float(step._apply_if_good([tf.constant([math.inf])], sums, step._update)[0]) == norm
    assert float(loss_scale.scale) == 1.0


def half_gradients(task, batch, half):
    """Returns a half's share of the whole batch's gradient, from a plain tape."""
    rows = {name: value[16 * half : 16 * half + 16] for name, value in batch.items()}
    weights = task.loss_weights(batch)
    with tf.GradientTape() as tape:
        sums = task.loss_and_metric_sums(rows, task.model(rows, training=False))
        loss = sum(sums[name].total / weights[name] for name in task.loss_names)
    gradients = tape.gradient(loss, [v.value for v in task.model.trainable_variables])
    return [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]


@pytest.mark.slow
def test_replicas_clip_their_own_gradients():
    """Two halves of a batch, each clipped to 0.05 as a mean of its own, then averaged."""
    keras.utils.set_random_seed(3)
    strategy = two_devices()
    recipe = OptimizerConfig("adamw", num_warmup_steps=0, clip_norm=0.05, clip_where="before")
    with strategy.scope():
        task = ToyTask(ONE_LAYER)
        optimizer = build_optimizer(recipe)
        optimizer.build(task.model.trainable_variables)
    batch = next(iter(task.train_dataset(32, 0, ALL)))
    clipped = [
        clip_by_global_norm([2 * g for g in half_gradients(task, batch, half)], 0.05)
        for half in (0, 1)
    ]
    expected = [(one + two) / 2 for one, two in zip(*clipped, strict=True)]
    step = TrainStep(task, optimizer, strategy, random_seed=1, jit_compile=False)
    data = distribute(strategy, lambda shard: task.train_dataset(32, 0, shard))
    (row,) = step(iter(data), tf.constant(0), tf.constant(1)).numpy()
    for moment, gradient in zip(optimizer._moments, expected, strict=True):
        np.testing.assert_allclose(moment.numpy(), 0.1 * gradient, rtol=1e-3, atol=1e-7)
    norm = dict(zip(step.columns, row, strict=True))["gradient_norm"]
    np.testing.assert_allclose(norm, np.sqrt(sum((g**2).sum() for g in expected)), rtol=1e-4)
    assert norm < 0.05


@pytest.mark.parametrize(
    "strategy", [tf.distribute.get_strategy, pytest.param(two_devices, marks=SLOW)]
)
def test_evaluation_sums_over_replicas(strategy):
    keras.utils.set_random_seed(3)
    strategy = strategy()
    with strategy.scope():
        task = ToyTask(ONE_LAYER)
    data = distribute(strategy, lambda shard: task.eval_dataset(32, 1, shard))
    row = EvalStep(task, strategy)(next(iter(data))).numpy()
    batch = next(iter(task.eval_dataset(32, 1, ALL)))
    sums = task.loss_and_metric_sums(batch, task.model(batch, training=False))
    totals = [float(sums[name].total) for name in task.sum_names]
    weights = [float(sums[name].weight) for name in task.sum_names]
    np.testing.assert_allclose(row, totals + weights, rtol=1e-5)
