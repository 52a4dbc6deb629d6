"""Learning rates by layer: the factor of every variable, and the steps that it takes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import ModelConfig, OptimizerConfig
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.tagging.model import BertTokenClassifier
from bert_tf.training.layer_rates import freeze, layer_rates
from bert_tf.training.optimizers import AdamW, build_optimizer
from tests.float_bounds import assert_close
from tests.reference.optimizers import Twin

CONFIG = ModelConfig(
    vocab_size=9,
    hidden_size=4,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=6,
    max_position_embeddings=5,
)
# Of three layers, with a half: by the start of the variable's path.
RATES = {
    "bert/embeddings/": 1 / 16,
    "bert/encoder/layer_0/": 1 / 8,
    "bert/encoder/layer_1/": 1 / 4,
    "bert/encoder/layer_2/": 1 / 2,
    "bert/pooler/": 1.0,
    "cls/classifier/": 1.0,
}


def expected_rate(path: str) -> float:
    (rate,) = [rate for start, rate in RATES.items() if path.startswith(start)]
    return rate


def test_every_variable_of_a_model_has_its_factor():
    paths = [variable.path for variable in BertClassifier(CONFIG, 2).trainable_variables]
    rates = layer_rates(paths, 0.5)
    assert rates == [expected_rate(path) for path in paths]
    assert len(paths) == 5 + 3 * 16 + 2 + 2
    assert {rates[i] for i, path in enumerate(paths) if "embeddings" in path} == {min(rates)}
    assert layer_rates(paths, 1.0) == [1.0] * len(paths)


def test_biases_of_all_layers_have_the_rate_of_the_tables():
    path = "bert/encoder/relative_attention_bias"
    assert layer_rates([path, "bert/encoder/layer_1/x"], 0.5) == [0.125, 0.5]
    of_layer = "bert/encoder/layer_1/attention/self/relative_attention_bias"
    assert layer_rates([of_layer], 0.5) == [0.5]


def test_layers_of_two_figures():
    names = ["bert/embeddings/x", *(f"bert/encoder/layer_{i}/x" for i in range(12)), "cls/x"]
    expected = [0.8 ** (13 - depth) for depth in range(14)]
    assert_close(layer_rates(names, 0.8), expected)


def test_factors_of_google_research_electra():
    """Its own table for three layers, 0.8 ** (3 + 2 - depth): /embeddings/ and /embeddings_project/
    of depth 0, encoder/layer_0/ to layer_2/ of 1 to 3, task_specific/ of 5."""
    names = (
        "embeddings/x",
        "embeddings_project/kernel",
        *(f"encoder/layer_{i}/x" for i in range(3)),
    )
    paths = [*(f"bert/{name}" for name in names), "cls/classifier/kernel"]
    theirs = [0.32768, 0.32768, 0.4096, 0.512, 0.64, 1.0]
    assert_close(layer_rates(paths, 0.8, like_electra=True), theirs)
    ours = [0.4096, 0.4096, 0.512, 0.64, 0.8, 1.0]
    assert_close(layer_rates(paths, 0.8), ours)
    config = OptimizerConfig(layerwise_lr_decay=0.8, electra_layer_rates=True)
    optimizer = build_optimizer(config)
    assert optimizer.get_config()["electra_layer_rates"]
    model = BertClassifier(CONFIG, 2)
    optimizer.build(model.trainable_variables)
    assert min(optimizer._rates) == pytest.approx(0.32768)
    with pytest.raises(ValueError, match="electra_layer_rates=True .*layerwise_lr_decay"):
        OptimizerConfig(electra_layer_rates=True)


def test_factors_stay_where_lower_layers_are_frozen():
    model = BertTokenClassifier(CONFIG, 2)
    freeze(model, 2)
    paths = [variable.path for variable in model.trainable_variables]
    assert len(paths) == 16 + 2
    assert layer_rates(paths, 0.5) == [0.5] * 16 + [1.0] * 2
    freeze(model, 3)
    assert layer_rates([variable.path for variable in model.trainable_variables], 0.5) == [1.0] * 2


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("adamw", marks=pytest.mark.slow),
        "adam_weight_decay",
        pytest.param("lamb", marks=pytest.mark.slow),
    ],
)
def test_two_steps_of_every_variable_equal_numpy(kind, jit_compile):
    model = BertClassifier(CONFIG, 2)
    variables, draw = model.trainable_variables, np.random.default_rng(0)
    for variable in variables:
        variable.assign(draw.normal(size=variable.shape))
    config = OptimizerConfig(
        kind, 0.1, num_train_steps=100, num_warmup_steps=0, clip_norm=0.0, layerwise_lr_decay=0.5
    )
    optimizer = build_optimizer(config)
    optimizer.build(variables)
    step = tf.function(lambda g: optimizer.apply_summed(g, variables), jit_compile=jit_compile)
    twins = []
    for variable in variables:
        decayed = "LayerNorm" not in variable.path and "bias" not in variable.path
        twins.append(Twin(kind, variable.numpy(), decayed))
    for rate in (0.1, 0.099):
        gradients = [draw.normal(size=v.shape).astype(np.float32) for v in variables]
        step([tf.constant(gradient) for gradient in gradients])
        for variable, twin, gradient in zip(variables, twins, gradients, strict=True):
            before = twin.value
            expected = twin.step(gradient, rate * expected_rate(variable.path))
            assert_close(variable.numpy(), expected, err_msg=variable.path)
            assert np.abs(expected - before).max() > 1e-3


def test_factor_is_part_of_the_configuration():
    optimizer = AdamW(0.1, layerwise_lr_decay=0.75)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert again.layerwise_lr_decay == 0.75
    assert build_optimizer(OptimizerConfig(layerwise_lr_decay=0.9)).layerwise_lr_decay == 0.9
