"""Layers that share their weights in groups, compared with copies that have the same weights."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.adapt import keep_layers
from bert_tf.checkpoints.checkpoint import encoder_shapes
from bert_tf.config import ModelConfig
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.pretrained import checkpoint_variables
from bert_tf.pretraining.objectives.electra import generator_config
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.training.layer_rates import freeze
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.float_bounds import assert_close
from tests.network.toy_heads import CLOSE, CONFIG, make_batch, with_random_weights

SHARED = dataclasses.replace(CONFIG, num_hidden_layers=5, num_layer_groups=2, embedding_size=9)
GROUPS = [0, 0, 0, 1, 1]
BATCH = make_batch(6, 11)


def make_encoder(config: ModelConfig = SHARED, **options) -> BertEncoder:
    return with_random_weights(BertEncoder(config, **options))


def layer_of(name: str) -> tuple[int, str]:
    """Returns the number of the layer in a name, and the rest; (-1, name) outside of layers."""
    start = "bert/encoder/layer_"
    if not name.startswith(start):
        return -1, name
    number, _, rest = name.removeprefix(start).partition("/")
    return int(number), rest


def loss_and_gradients(encoder: BertEncoder, **options) -> tuple:
    variables = checkpoint_variables(encoder)
    with tf.GradientTape() as tape:
        outputs = encoder(BATCH, **options)
        loss = tf.reduce_sum(outputs["pooled_output"] ** 2)
        loss += tf.reduce_sum(outputs["sequence_output"][:, 3] ** 2)
    slopes = tape.gradient(loss, {name: v.value for name, v in variables.items()})
    return outputs, {name: np.asarray(tf.convert_to_tensor(s)) for name, s in slopes.items()}


@pytest.mark.parametrize(
    ("num_layers", "num_groups", "expected"),
    [
        (5, 2, GROUPS),
        (4, 1, [0] * 4),
        (3, 0, [0, 1, 2]),
        (3, 3, [0, 1, 2]),
        (6, 3, [0, 0, 1, 1, 2, 2]),
    ],
)
def test_layers_are_in_groups_of_neighbours(num_layers, num_groups, expected):
    config = ModelConfig(num_hidden_layers=num_layers, num_layer_groups=num_groups)
    assert [config.unique_layer(layer) for layer in range(num_layers)] == expected
    assert config.num_unique_layers == expected[-1] + 1


def test_groups_of_different_sizes_are_those_of_transformers():
    # 9 / (18 / 14) is 6.999.. in its floating point, and 7 in exact numbers.
    assert ModelConfig(num_hidden_layers=18, num_layer_groups=14).unique_layer(9) == 6


def test_more_groups_than_layers_are_refused():
    with pytest.raises(ValueError, match="num_layer_groups 3 .*num_hidden_layers 2"):
        ModelConfig(num_hidden_layers=2, num_layer_groups=3)


@pytest.mark.parametrize(
    "block_type", ["post_norm", pytest.param("pre_norm", marks=pytest.mark.slow)]
)
def test_outputs_are_those_of_copies_and_gradients_their_sums(block_type):
    config = dataclasses.replace(SHARED, block_type=block_type)
    shared = make_encoder(config)
    names = {name: tuple(v.shape) for name, v in checkpoint_variables(shared).items()}
    pooler = {name for name in names if "/pooler/" in name}
    assert {name: names[name] for name in names.keys() - pooler} == encoder_shapes(config)
    copies = BertEncoder(dataclasses.replace(config, num_layer_groups=5))
    values = {layer_of(name): v.numpy() for name, v in checkpoint_variables(shared).items()}
    for name, variable in checkpoint_variables(copies).items():
        layer, rest = layer_of(name)
        variable.assign(values[GROUPS[layer] if layer >= 0 else -1, rest])
    received, slopes = loss_and_gradients(shared)
    expected, slopes_of_copies = loss_and_gradients(copies)
    assert len(received["encoder_outputs"]) == 6
    for one, two in zip(received["encoder_outputs"], expected["encoder_outputs"], strict=True):
        np.testing.assert_allclose(one, two, **CLOSE)
    sums = dict.fromkeys(values, 0.0)
    for name, slope in slopes_of_copies.items():
        layer, rest = layer_of(name)
        sums[GROUPS[layer] if layer >= 0 else -1, rest] += slope
    for name, slope in slopes.items():
        np.testing.assert_allclose(slope, sums[layer_of(name)], rtol=1e-4, atol=1e-4, err_msg=name)


def test_attentions_of_every_layer():
    attentions = make_encoder()(BATCH, output_attentions=True)["attentions"]
    assert len(attentions) == 5
    for one, two in zip(attentions, attentions[1:], strict=False):
        assert np.abs(one - two).max() > 1e-3


def test_every_layer_drops_other_elements():
    encoder = make_encoder()
    seeds = [int(encoder.layer_dropout_seed(layer, tf.constant(7))) for layer in range(5)]
    assert len(set(seeds[:3])) == 3 and len(set(seeds[3:])) == 2
    assert seeds[0] == seeds[3] == 7  # Layers of different groups have different salts.
    assert encoder.layer_dropout_seed(1, None) is None


@pytest.fixture
def dropping():
    config = dataclasses.replace(SHARED, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3)
    return make_encoder(config)


def test_recomputed_layers_have_the_same_gradients(dropping):
    options = {"training": True, "dropout_seed": tf.constant(7)}
    outputs, expected = loss_and_gradients(dropping, **options)
    without, _ = loss_and_gradients(dropping)
    assert np.abs(outputs["sequence_output"] - without["sequence_output"]).max() > 0.1
    dropping.recompute = True
    _, received = loss_and_gradients(dropping, **options)
    for name, slope in expected.items():
        np.testing.assert_allclose(received[name], slope, err_msg=name, **CLOSE)


def test_a_part_of_a_batch_has_the_masks_of_the_whole(dropping):
    whole = dropping(BATCH, training=True, dropout_seed=tf.constant(7))["sequence_output"]
    rest = {name: value[4:] for name, value in BATCH.items()}
    seed = tf.constant([7, 4, 4 * 11])
    part = dropping(rest, training=True, dropout_seed=seed)["sequence_output"]
    assert_close(part, whole[4:])


def test_prepared_for_inference_the_answers_are_the_same():
    encoder = make_encoder()
    expected = encoder(BATCH)["sequence_output"]
    encoder.prepare_for_inference()
    assert_close(encoder(BATCH)["sequence_output"], expected)


def test_a_saved_model_has_each_weight_once(tmp_path):
    model = with_random_weights(BertClassifier(SHARED, 3))
    expected = model(BATCH)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(BATCH), expected)
    assert len(loaded.weights) == len(model.weights)
    assert len([v for v in loaded.weights if "/query/kernel" in v.path]) == 2
    tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    names = [name for name, _ in tf.train.list_variables(str(tmp_path / "checkpoint"))]
    assert len([name for name in names if "query/_kernel" in name]) == 2
    other = with_random_weights(BertClassifier(SHARED, 3))
    other.bert.layer_1.output_dense.kernel.assign_add(tf.ones([37, 21]))
    tf.train.Checkpoint(model=other).read(str(tmp_path / "checkpoint")).assert_consumed()
    np.testing.assert_array_equal(other(BATCH), expected)


def test_whole_groups_are_frozen():
    model = BertClassifier(SHARED, 3)
    with pytest.raises(ValueError, match="--frozen_layers=2 .*5 layers .* 2 groups"):
        freeze(model, 2)
    assert len(model.trainable_variables) == len(model.weights)
    freeze(model, 3)
    frozen = {layer_of(v.path)[0] for v in model.weights if "/layer_" in v.path and not v.trainable}
    assert frozen == {0}


def test_layers_of_a_group_are_not_dropped():
    made = make_checkpoint("encoder", num_hidden_layers=4, num_layer_groups=2)
    with pytest.raises(ValueError, match="--keep_layers=0,1"):
        keep_layers(made, "0,1")


def test_a_generator_has_no_more_groups_than_layers():
    config = dataclasses.replace(CONFIG, num_hidden_layers=4, num_layer_groups=3)
    assert generator_config(config, 1.0, 0.5).num_layer_groups == 2
    assert generator_config(config, 1.0, 1.0).num_layer_groups == 3
