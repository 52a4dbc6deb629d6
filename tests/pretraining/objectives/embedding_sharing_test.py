"""Gradient-disentangled embedding sharing: gradients, sums of tables, checkpoints."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.electra_networks import DIFFERENCE, one_network
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.google import write_google
from bert_tf.config import ModelConfig
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.pretrained import checkpoint_variables
from bert_tf.pretraining.objectives import electra
from bert_tf.pretraining.objectives.electra import (
    ElectraDiscriminator,
    ElectraPretrainer,
    generator_config,
)
from tests.float_bounds import assert_close
from tests.pretraining.objectives.electra_test import TINY, make_batch

CONFIG = dataclasses.replace(
    TINY,
    num_hidden_layers=1,
    pooler_act="gelu_exact",
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
SINUSOIDAL = dataclasses.replace(CONFIG, position_type="sinusoidal", type_vocab_size=0)
LOSSES = ("masked_lm_loss", "replaced_tokens_loss")
EMBEDDINGS = "bert/embeddings/"


def make_pretrainer(sharing: str, config: ModelConfig = CONFIG) -> ElectraPretrainer:
    keras.utils.set_random_seed(1)
    return ElectraPretrainer(config, generator_config(config, 0.5), embedding_sharing=sharing)


def gradients_of(model: ElectraPretrainer, losses: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Returns the gradients of the sum of these losses by the variables' paths, 0 for none."""
    batch = make_batch()
    variables = {variable.path: variable.value for variable in model.trainable_variables}
    with tf.GradientTape() as tape:
        sums = model.objective_losses(batch, model(batch))
        total = sum(sums[name].mean() for name in losses)
    found = tape.gradient(total, variables, unconnected_gradients="zero")
    return {path: tf.convert_to_tensor(gradient).numpy() for path, gradient in found.items()}


@pytest.mark.parametrize(
    "config",
    [pytest.param(CONFIG, marks=pytest.mark.slow), SINUSOIDAL],
    ids=["learned", "sinusoidal"],
)
def test_each_table_gets_the_gradient_of_one_loss(config, monkeypatch):
    """Full sharing adds both gradients of the same numbers; here each table has one of them."""
    # The loss of the replacements depends on what is drawn, here always token 1.
    drawn = tf.ones([3, 2], "int32")
    monkeypatch.setattr(electra, "draw_tokens", lambda *_: drawn)
    full = make_pretrainer("full", config)
    model = make_pretrainer("gradient_disentangled", config)
    weights = {variable.path: variable for variable in full.weights}
    for variable in model.weights:
        if not variable.path.endswith(DIFFERENCE) and "seed" not in variable.path:
            other = variable.path.replace("generator/embeddings/", EMBEDDINGS)
            variable.assign(weights[other])
    of_generator, of_discriminator = (gradients_of(full, (loss,)) for loss in LOSSES)
    received = gradients_of(model, LOSSES)
    names = [path for path in of_generator if path.startswith(EMBEDDINGS)]
    assert len(names) == (5 if config is CONFIG else 3)
    for path in names:
        name = path.removeprefix(EMBEDDINGS)
        discriminator_path = path if "LayerNorm" in name else f"{path}{DIFFERENCE}"
        for found, expected in (
            (received[f"generator/embeddings/{name}"], of_generator[path]),
            (received[discriminator_path], of_discriminator[path]),
        ):
            assert np.abs(expected).max() > 0
            limit = 1e-5 * np.abs(expected).max()
            np.testing.assert_allclose(found, expected, atol=limit, err_msg=path)


def randomized(model: ElectraPretrainer) -> ElectraPretrainer:
    draw = np.random.default_rng(5)
    for variable in model.trainable_variables:
        variable.assign(draw.normal(scale=0.3, size=variable.shape))
    return model


def test_the_discriminator_is_written_with_the_sums(tmp_path):
    model = randomized(make_pretrainer("gradient_disentangled"))
    variables = checkpoint_variables(model)
    batch = make_batch()
    encoded = {name: batch[name] for name in ("input_word_ids", "input_mask", "input_type_ids")}
    expected = model.discriminator(model.bert(encoded)["sequence_output"])
    whole = model.to_checkpoint("both")
    for name in ("word_embeddings", "token_type_embeddings", "position_embeddings"):
        table = np.asarray(variables[f"generator/embeddings/{name}"])
        difference = np.asarray(variables[f"{EMBEDDINGS}{name}{DIFFERENCE}"])
        assert np.abs(difference).max() > 0.1
        np.testing.assert_array_equal(whole.weights[f"{EMBEDDINGS}{name}"], table + difference)
        np.testing.assert_array_equal(whole.generator.weights[f"{EMBEDDINGS}{name}"], table)
    gamma = np.asarray(variables["generator/embeddings/LayerNorm/gamma"])
    np.testing.assert_array_equal(whole.generator.weights[f"{EMBEDDINGS}LayerNorm/gamma"], gamma)
    written = write_checkpoint(whole, tmp_path / "discriminator", "huggingface")
    written.check()
    again = ElectraDiscriminator.from_checkpoint(read_checkpoint(tmp_path / "discriminator"))
    assert_close(again(batch)["replaced_logits"], expected)
    generator = write_checkpoint(whole.generator, tmp_path / "generator", "huggingface")
    received = BertEncoder.from_checkpoint(generator, use_pooler=False)(encoded)
    expected = model.generator(encoded)["sequence_output"]
    np.testing.assert_allclose(received["sequence_output"], expected, atol=1e-5)
    (tmp_path / "google").mkdir()
    with pytest.raises(ValueError, match="--tower"):
        write_google(whole, tmp_path / "google")


def test_weights_of_a_run_have_the_names_of_the_model():
    """A reader of a run's checkpoint has only the names of the variables."""
    model = randomized(make_pretrainer("gradient_disentangled"))
    values = {name: np.asarray(value) for name, value in checkpoint_variables(model).items()}
    for network in ("generator", "discriminator"):
        expected = model.to_checkpoint(network).weights
        received = one_network(values, network, "run")
        assert {name for name in received if "seed" not in name} == set(expected)
        for name, value in expected.items():
            np.testing.assert_array_equal(received[name], value)


def test_a_keras_file_keeps_the_sharing(tmp_path):
    model = randomized(make_pretrainer("gradient_disentangled"))
    model.save(tmp_path / "electra.keras")
    again = keras.models.load_model(tmp_path / "electra.keras")
    assert again.embedding_sharing == "gradient_disentangled"
    batch = make_batch()
    np.testing.assert_allclose(
        again(batch)["replaced_logits"], model(batch)["replaced_logits"], atol=1e-6
    )


def test_an_unknown_sharing_is_refused():
    with pytest.raises(ValueError, match="'some'"):
        ElectraPretrainer(CONFIG, embedding_sharing="some")
