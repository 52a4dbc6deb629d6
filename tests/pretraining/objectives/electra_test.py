"""ELECTRA's two towers: golden losses and gradients of both, fakes, sharing, Keras."""

import dataclasses
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.families import FAMILIES
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.weight_names import to_file_names
from bert_tf.config import ModelConfig
from bert_tf.pretraining.objectives import electra
from bert_tf.pretraining.objectives.electra import (
    ElectraPretrainer,
    draw_tokens,
    generator_config,
    put_replacements,
)
from bert_tf.pretraining.objectives.replaced_tokens import ReplacedTokens
from tests.float_bounds import OTHER_FRAMEWORK, assert_close, close_to
from tests.shared_data import golden_file, read_arrays


def two_towers():
    """Returns the golden folders' towers as one model, and its weights by their names there."""
    folder = golden_file("families", "electra", "generator").parent
    discriminator, generator = (
        read_checkpoint(folder / name) for name in ("discriminator", "generator")
    )
    model = ElectraPretrainer(discriminator.config, generator.config)
    names = {}
    for variable in model.weights:
        path = variable.path
        if path.startswith("generator/"):
            start = "cls/" if "/predictions/" in path else "bert/"
            name = start + path.removeprefix("generator/")
            variable.assign(generator.weights[name])
            names[path] = ("generator", name)
        elif "seed" not in path:
            variable.assign(discriminator.weights[path])
            names[path] = ("shared" if "/embeddings/" in path else "discriminator", path)
    return model, names


@pytest.fixture(scope="module")
def joint():
    path = golden_file("families", "electra", "joint")
    return read_arrays(path / "golden.npz")


def inputs_of(golden):
    return {
        "input_word_ids": tf.constant(golden["in_masked_input_ids"]),
        "input_mask": tf.constant(golden["in_attention_mask"]),
        "input_type_ids": tf.constant(golden["in_token_type_ids"]),
        "masked_lm_positions": tf.constant(golden["in_masked_lm_positions"]),
        "masked_lm_ids": tf.constant(golden["in_masked_lm_ids"]),
        "masked_lm_weights": tf.constant(golden["in_masked_lm_weights"], tf.float32),
    }


def close(ours, theirs, limit):
    return np.abs(np.asarray(ours) - theirs).max() <= limit * np.abs(theirs).max()


def test_losses_and_gradients_are_the_golden_ones(joint, monkeypatch):
    model, names = two_towers()
    monkeypatch.setattr(electra, "draw_tokens", lambda *_: tf.constant(joint["in_sampled_ids"]))
    batch = inputs_of(joint)
    variables = {v.path: v.value for v in model.trainable_variables}
    with tf.GradientTape() as tape:
        outputs = model(batch)
        losses = model.objective_losses(batch, outputs)
        total = sum(loss.mean() for loss in losses.values())
    real = joint["in_attention_mask"]
    weights = joint["in_masked_lm_weights"][..., None]
    assert close(outputs["masked_lm_logits"] * weights, joint["out_generator_logits"], 1e-5)
    assert close(outputs["replaced_logits"] * real, joint["out_discriminator_logits"], 1e-5)
    np.testing.assert_array_equal(outputs["is_replaced"], joint["out_is_replaced"])
    assert float(losses["masked_lm_loss"].mean()) == close_to(
        float(joint["out_mlm_loss"]), OTHER_FRAMEWORK
    )
    assert float(losses["replaced_tokens_loss"].mean()) == close_to(
        50 * float(joint["out_discriminator_loss"]), OTHER_FRAMEWORK
    )
    assert float(total) == close_to(float(joint["out_total_loss"]), OTHER_FRAMEWORK)

    found = tape.gradient(total, variables)
    towers = {"shared": {}, "discriminator": {}, "generator": {}}
    for path, gradient in found.items():
        tower, name = names[path]
        towers[tower][name] = tf.convert_to_tensor(gradient).numpy()
    rows = FAMILIES["electra"].rows(model.config.num_hidden_layers, "masked_lm")
    ours = {
        f"grad_{tower}.{name.removeprefix('electra.') if tower == 'shared' else name}": value
        for tower, gradients in towers.items()
        for name, value in to_file_names(rows, gradients).items()
    }
    expected = {key: value for key, value in joint.items() if key.startswith("grad_")}
    assert len(expected) == 17 and set(expected) <= set(ours)
    for key, value in expected.items():
        received = ours[key]
        if key.endswith("word_embeddings.weight"):  # PyTorch's has none in padding's row.
            received = np.concatenate([value[:1], received[1:]])
        assert close(received, value, 1e-5), key


def test_fakes_stand_where_pieces_were_chosen(joint):
    ids, labels = put_replacements(inputs_of(joint), tf.constant(joint["in_sampled_ids"]))
    np.testing.assert_array_equal(ids, joint["out_discriminator_input_ids"])
    np.testing.assert_array_equal(labels, joint["out_is_replaced"])


def test_fakes_are_drawn_from_the_generators_distribution():
    """Chi-squared over 20,000 draws of 8 pieces; the bound fails one time in 10^6."""
    logits = np.float32([0.0, 1.0, -1.0, 2.0, 0.5, -2.0, 0.0, 1.5])
    count = 20_000
    ids = np.random.default_rng(1).integers(5, 1000, [count // 10, 16]).astype("int32")
    positions = np.tile(np.arange(10, dtype="int32"), (len(ids), 1))
    numbers = electra.uniforms(tf.constant(ids), tf.constant(positions)).numpy()
    assert 0 <= numbers.min() and numbers.max() < 1 and len(np.unique(numbers)) > 0.99 * count
    drawn = draw_tokens(tf.constant(np.tile(logits, (*numbers.shape, 1))), numbers).numpy()
    expected = count * np.exp(logits) / np.exp(logits).sum()
    counts = np.bincount(drawn.ravel(), minlength=8)
    assert ((counts - expected) ** 2 / expected).sum() < 40.5


def test_fakes_depend_on_the_row_alone():
    ids = tf.constant(np.random.default_rng(2).integers(5, 1000, [6, 16]), tf.int32)
    positions = tf.tile(tf.range(4)[None], [6, 1])
    whole = electra.uniforms(ids, positions).numpy()
    halves = [electra.uniforms(ids[i : i + 3], positions[i : i + 3]).numpy() for i in (0, 3)]
    np.testing.assert_array_equal(whole, np.concatenate(halves))
    changed = tf.tensor_scatter_nd_update(ids, [[0, 15]], [4])  # Another mask of another epoch.
    assert (electra.uniforms(changed, positions).numpy()[0] != whole[0]).all()


TINY = ModelConfig(
    vocab_size=50,
    hidden_size=32,
    embedding_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=16,
    hidden_act="gelu_exact",
)


def make_batch(num_rows: int = 3) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(4).integers(5, 50, [num_rows, 12]).astype("int32")
    return {
        "input_word_ids": np.where(np.isin(np.arange(12), [1, 5]), 4, ids).astype("int32"),
        "input_mask": 1 + 0 * ids,
        "input_type_ids": (ids % 2).astype("int32"),
        "masked_lm_positions": np.tile(np.int32([1, 5]), (num_rows, 1)),
        "masked_lm_ids": ids[:, [1, 5]],
        "masked_lm_weights": np.ones([num_rows, 2], "float32"),
    }


def test_generators_shape():
    small = ModelConfig(
        hidden_size=256, embedding_size=128, num_attention_heads=4, intermediate_size=1024
    )
    made = generator_config(small)
    assert (made.hidden_size, made.num_attention_heads, made.intermediate_size) == (64, 1, 256)
    assert made.table_width == 128 and made.num_hidden_layers == 12
    base = generator_config(ModelConfig(), 1 / 3)
    assert (base.hidden_size, base.num_attention_heads, base.table_width) == (256, 4, 768)
    wide = dataclasses.replace(TINY, hidden_size=64)
    with pytest.raises(ValueError, match="generator .*64.* discriminator .*32"):
        ElectraPretrainer(TINY, wide)


def test_tables_are_shared_and_dropout_is_not(monkeypatch):
    model = ElectraPretrainer(TINY, TINY)
    paths = [variable.path for variable in model.trainable_variables]
    assert len(paths) == len(set(paths))
    assert sum("embeddings/" in path for path in paths) == 5
    assert not any(path.startswith("generator/embeddings/") for path in paths)
    batch = make_batch(2)
    inputs = {name: values for name, values in batch.items() if name.startswith("input_")}
    for ours, theirs in zip(model.generator.encoder_layers, model.bert.encoder_layers, strict=True):
        for one, other in zip(ours.weights, theirs.weights, strict=True):
            one.assign(other)
    model.generator.embeddings_project.kernel.assign(model.bert.embeddings_project.kernel)
    still = [np.asarray(t(inputs)["sequence_output"]) for t in (model.bert, model.generator)]
    assert_close(still[0], still[1])
    # Both are called with a seed of their own, and so have other masks.
    seeds = []
    for tower in (model.bert, model.generator):
        call = tower.call

        def kept(*args, call=call, **options):
            seeds.append(int(options["dropout_seed"]))
            return call(*args, **options)

        monkeypatch.setattr(tower, "call", kept)
    model(batch, training=True, dropout_seed=tf.constant(5))
    assert len(seeds) == 2 and seeds[0] != seeds[1] == 5


def test_sums_of_replaced_tokens_by_hand():
    """Row 0: four pieces, one replaced and found, one false alarm; row 1: padding but for one."""
    logits = np.float32([[2.0, 1.0, -1.0, -3.0], [-0.5, 9.0, 9.0, 9.0]])
    labels = np.float32([[1, 0, 0, 0], [1, 0, 0, 0]])
    mask = np.int32([[1, 1, 1, 1], [1, 0, 0, 0]])
    sums = ReplacedTokens(50.0).loss_and_metric_sums(
        {"input_mask": mask}, {"replaced_logits": logits, "is_replaced": labels}
    )

    def loss(logit, label):
        return -math.log(1 / (1 + math.exp(-logit if label else logit)))

    pairs = [(2.0, 1), (1.0, 0), (-1.0, 0), (-3.0, 0), (-0.5, 1)]
    expected = {
        "replaced_tokens_loss": (50 * sum(loss(*pair) for pair in pairs), 5),
        "replaced_tokens_accuracy": (3, 5),
        "replaced_tokens_recall": (1, 2),
        "replaced_tokens_share": (2, 5),
    }
    for name, (total, weight) in expected.items():
        assert float(sums[name].total) == close_to(total), name
        assert float(sums[name].weight) == weight, name


@pytest.mark.parametrize("reference", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_draws_of_one_position_differ_with_reference_sampling(reference, monkeypatch):
    numbers = []

    def kept(logits, drawn):
        numbers.append(np.asarray(drawn))
        return draw_tokens(logits, drawn)

    monkeypatch.setattr(electra, "draw_tokens", kept)
    model = ElectraPretrainer(TINY, TINY, reference_sampling=reference)
    ids = np.random.default_rng(3).integers(5, 50, [2, 12]).astype("int32")
    inputs = {"input_word_ids": ids, "input_mask": 1 + 0 * ids, "input_type_ids": 0 * ids}
    same = {f"masked_lm_{name}": 3 + 0 * ids[:, :6] for name in ("positions", "ids")}
    model({**inputs, **same, "masked_lm_weights": np.ones([2, 6], "float32")})
    assert [len(set(row)) for row in numbers[0]] == [6 if reference else 1] * 2
    assert model.get_config()["reference_sampling"] == reference
    assert (model.objectives[1].mask_batch is not None) == reference


@pytest.mark.slow
def test_keras_trains_and_loads_it(tmp_path):
    keras.utils.set_random_seed(1)
    model = ElectraPretrainer(TINY, generator_config(TINY, 0.5))
    batch = make_batch(8)
    data = tf.data.Dataset.from_tensors(batch)
    model.compile(keras.optimizers.Adam(1e-3), jit_compile=False)
    history = model.fit(data.repeat(12), epochs=2, verbose=0, shuffle=False).history["loss"]
    assert history[1] < history[0]
    model.save(tmp_path / "electra.keras")
    again = keras.models.load_model(tmp_path / "electra.keras")
    assert_close(again(batch)["replaced_logits"], model(batch)["replaced_logits"])
