"""The optimizers against NumPy, what is decayed, sparse gradients, two replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import ModelConfig, OptimizerConfig
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.training.clipping import clip_scale, global_norm
from bert_tf.training.optimizers import LAMB, AdamW, AdamWeightDecay, build_optimizer, decays
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.reference import optimizers as reference
from tests.slow_variants import slow_where

CLASSES = {"adam_weight_decay": AdamWeightDecay, "adamw": AdamW, "lamb": LAMB}
NAMES = ("kernel", "bias", "zeros")


def make_variables() -> list[keras.Variable]:
    draw = np.random.default_rng(0)
    values = [draw.normal(size=(5, 7)), draw.normal(size=7), np.zeros(3)]
    return [
        keras.Variable(value.astype(np.float32), name=name)
        for value, name in zip(values, NAMES, strict=True)
    ]


def make_gradients(step: int) -> list[np.ndarray]:
    draw = np.random.default_rng(100 + step)
    return [draw.normal(size=shape).astype(np.float32) for shape in ((5, 7), (7,), (3,))]


def two_replicas() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_ten_steps_equal_numpy(kind, jit_compile):
    variables = make_variables()
    config = OptimizerConfig(
        optimizer=kind, learning_rate=0.1, num_train_steps=20, num_warmup_steps=3
    )
    optimizer = build_optimizer(config)
    optimizer.build(variables)
    twins = [
        reference.Twin(kind, v.numpy(), name != "bias")
        for v, name in zip(variables, NAMES, strict=True)
    ]
    step_once = tf.function(lambda g: optimizer.apply_summed(g, variables), jit_compile=jit_compile)
    for step in range(10):
        gradients = make_gradients(step)
        norm = step_once([tf.constant(g) for g in gradients])
        assert_close(norm, np.sqrt(sum((g**2).sum() for g in gradients)))
        rate = reference.linear_schedule(0.1, step, 20, 3)
        clipped = reference.clip_by_global_norm(gradients, 1.0)
        for variable, twin, gradient in zip(variables, twins, clipped, strict=True):
            expected = twin.step(gradient, rate)
            assert_close(variable.numpy(), expected, OTHER_FRAMEWORK)
    assert int(optimizer.iterations) == 10


def test_first_step_by_hand():
    # m = 0.1, v = 0.001, update = 0.1 / (sqrt(0.001) + 1e-6) + 0.01 * 2 = 3.18218
    variable = keras.Variable(np.array([2.0], np.float32), name="kernel")
    AdamWeightDecay(0.1).apply_summed([tf.constant([1.0])], [variable])
    np.testing.assert_allclose(variable.numpy(), 2.0 - 0.318218, rtol=1e-5)


@pytest.mark.as_in_use
@pytest.mark.parametrize("jit_compile", [pytest.param(False, marks=pytest.mark.slow), True])
def test_update_is_traced_once_for_a_shape(jit_compile):
    names = ["a", "b", "bias", "c"]
    variables = [keras.Variable(np.ones((2, 3), np.float32), name=name) for name in names]
    gradients = [tf.fill((2, 3), float(value)) for value in (1, 2, 3, 4)]
    optimizer = AdamW(0.1, clip_norm=0.0)
    optimizer.jit_compile = jit_compile
    tf.function(lambda g: optimizer.apply_summed(g, variables))(gradients)
    traced = [function.experimental_get_tracing_count() for function in optimizer._updates.values()]
    assert traced == [1, 1]  # One is for what is not decayed.
    compiled = [bool(function._jit_compile) for function in optimizer._updates.values()]
    assert compiled == [jit_compile] * 2
    for variable, gradient in zip(variables, gradients, strict=True):
        other = keras.Variable(np.ones((2, 3), np.float32), name=variable.name)
        alone = AdamW(0.1, clip_norm=0.0)
        alone.apply_summed([gradient], [other])
        np.testing.assert_allclose(variable.numpy(), other.numpy(), rtol=1e-6)


def test_decayed_variables_by_path():
    model = BertPretrainer(
        ModelConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=2)
    )
    layer = "bert/encoder/layer_0"
    assert [v.path for v in model.trainable_variables if decays(v.path)] == [
        "bert/embeddings/word_embeddings",
        "bert/embeddings/token_type_embeddings",
        "bert/embeddings/position_embeddings",
        f"{layer}/attention/self/query/kernel",
        f"{layer}/attention/self/key/kernel",
        f"{layer}/attention/self/value/kernel",
        f"{layer}/attention/output/dense/kernel",
        f"{layer}/intermediate/dense/kernel",
        f"{layer}/output/dense/kernel",
        "bert/pooler/dense/kernel",
        "cls/predictions/transform/dense/kernel",
        "cls/seq_relationship/output_weights",
    ]


def test_repeated_rows_are_summed_before_they_are_squared():
    # Two slices of value 1 on one row: v = 0.001 * 2**2, norm 2; apart they give 0.002 and 1.414.
    slices = tf.IndexedSlices(tf.ones((2, 1)), tf.constant([1, 1]), tf.constant([3, 1]))
    variable = keras.Variable(np.zeros((3, 1), np.float32), name="table")
    optimizer = AdamWeightDecay(0.1, clip_norm=0.0)
    norm = optimizer.apply_summed([slices], [variable])
    assert float(norm) == 2.0
    np.testing.assert_allclose(optimizer._squares[0].numpy()[1], 0.0040, rtol=1e-5)
    other = keras.Variable(np.zeros((3, 1), np.float32), name="table")
    optimizer = AdamWeightDecay(0.1, clip_norm=0.0)
    optimizer.apply([slices], [other])  # as Keras calls it
    np.testing.assert_array_equal(other.numpy(), variable.numpy())


def test_clipping_is_that_of_tensorflow():
    gradients = [tf.constant([3.0, 0.0]), tf.constant([[4.0]])]
    for limit in (1.0, 5.0, 7.0):
        norm = global_norm(gradients)
        received = [gradient * clip_scale(norm, limit) for gradient in gradients]
        expected, _ = tf.clip_by_global_norm(gradients, limit)
        assert norm == 5.0
        for one, two in zip(received, expected, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-6)
    assert clip_scale(norm, 0.0) == 1.0


@pytest.mark.parametrize("method", ["apply_summed", pytest.param("apply", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", slow_where(lambda kind: kind == "lamb", CLASSES))
def test_two_replicas_equal_one_device(kind, method):
    strategy = two_replicas()
    with strategy.scope():
        variables = make_variables()
        optimizer = CLASSES[kind](0.1)
        optimizer.build(variables)

    @tf.function
    def replica_step(gradients):
        context = tf.distribute.get_replica_context()
        share = 0.25 + 0.5 * tf.cast(context.replica_id_in_sync_group, tf.float32)
        parts = [gradient * share for gradient in gradients]  # a quarter and three quarters
        if method == "apply":
            return optimizer.apply(parts, variables)
        optimizer.apply_summed(context.all_reduce("SUM", parts), variables)
        return None

    single = make_variables()
    one_device = CLASSES[kind](0.1)
    for step in range(3):
        gradients = [tf.constant(g) for g in make_gradients(step)]
        strategy.run(replica_step, args=(gradients,))
        one_device.apply_summed(gradients, single)
    for one, two in zip(variables, single, strict=True):
        for copy in strategy.experimental_local_results(one.value):
            np.testing.assert_allclose(copy, two.numpy(), rtol=1e-5, atol=1e-6)
    assert int(tf.convert_to_tensor(optimizer.iterations.value)) == 3


def test_serialises_with_its_schedule():
    optimizer = build_optimizer(OptimizerConfig(optimizer="lamb", learning_rate=0.5))
    twin = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(twin) is LAMB
    assert twin.get_config() == optimizer.get_config()


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ({"weight_decay": 0.1}, "weight_decay_rate"),
        ({"clipnorm": 1.0}, "clip_norm"),
        ({"global_clipnorm": 1.0}, "clip_norm"),
        ({"clipvalue": 1.0}, "clip_norm"),
        ({"use_ema": True}, "ema_decay"),
        ({"gradient_accumulation_steps": 2}, "batches"),
        ({"loss_scale_factor": 8.0}, "LossScaleOptimizer"),
    ],
)
def test_arguments_that_only_kerass_own_have_are_refused(arguments, remedy):
    (name,) = arguments
    for kind in (AdamWeightDecay, LAMB):
        with pytest.raises(ValueError, match=rf"^{name}=.*\b{kind.__name__} .*: .*\b{remedy}"):
            kind(1e-4, **arguments)
    assert name in LAMB(1e-4, **{name: None}).get_config()


def test_missing_gradient_is_named():
    with pytest.raises(ValueError, match=r"gradient.*'kernel'.*variables"):
        AdamW(0.1).apply_summed([None, None, None], make_variables())
