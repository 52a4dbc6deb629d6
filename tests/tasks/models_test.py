"""The whole network: against NumPy, padding, gradients, fit, saving, recomputation, precision."""

import concurrent.futures
import multiprocessing

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.losses import cross_entropy
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.training.optimizers import AdamW
from tests.float_bounds import assert_close
from tests.reference.numpy_bert import NumpyBert

CONFIG = ModelConfig(
    vocab_size=53,
    hidden_size=21,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=37,
    max_position_embeddings=19,
)
BATCH, LENGTH, PREDICTIONS = 5, 17, 4


def make_batch(seed: int = 0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    shape = (BATCH, LENGTH)
    lengths = draw.integers(6, LENGTH + 1, BATCH)
    return {
        "input_word_ids": draw.integers(0, 53, shape).astype(np.int32),
        "input_mask": (np.arange(LENGTH) < lengths[:, None]).astype(np.int32),
        "input_type_ids": draw.integers(0, 2, shape).astype(np.int32),
        "masked_lm_positions": draw.integers(0, 6, (BATCH, PREDICTIONS)).astype(np.int32),
        "masked_lm_ids": draw.integers(0, 53, (BATCH, PREDICTIONS)).astype(np.int32),
        "masked_lm_weights": draw.integers(0, 2, (BATCH, PREDICTIONS)).astype(np.float32),
        "next_sentence_labels": draw.integers(0, 2, BATCH).astype(np.int32),
        "next_sentence_weights": np.array([1, 1, 0, 1, 1], np.float32),
    }


def make_model(seed: int = 0, **kwargs) -> BertPretrainer:
    """Random weights everywhere, so that swapped gains, biases or kernels show."""
    model = BertPretrainer(CONFIG, **kwargs)
    draw = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(draw.normal(0.3 * ("gamma" in variable.path), 0.2, variable.shape))
    return model


def loss_and_gradients(model: BertPretrainer, batch: dict, seed: int = 7) -> tuple:
    with tf.GradientTape() as tape:
        outputs = model(batch, training=True, dropout_seed=tf.constant(seed))
        loss = sum(loss.mean() for loss in model.objective_losses(batch, outputs).values())
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    return loss, [None if g is None else tf.convert_to_tensor(g) for g in gradients]


def test_forward_equals_numpy():
    model, batch = make_model(), make_batch()
    twin = NumpyBert({v.path: v.numpy() for v in model.trainable_variables}, 2, 3)
    encoded, outputs = model.bert(batch), model(batch)
    for row in range(BATCH):
        inputs = (batch[f"input_{name}"][row] for name in ("word_ids", "mask", "type_ids"))
        sequence = twin.encode(*inputs)
        pooled = twin.pool(sequence)
        scores = twin.masked_lm(sequence, batch["masked_lm_positions"][row])
        assert_close(encoded["sequence_output"][row], sequence)
        assert_close(encoded["pooled_output"][row], pooled)
        assert_close(outputs["masked_lm_logits"][row], scores)
        expected = twin.next_sentence(pooled)
        assert_close(outputs["next_sentence_logits"][row], expected)
    assert len(encoded["encoder_outputs"]) == 3
    assert outputs["masked_lm_logits"].shape == (BATCH, PREDICTIONS, 53)


def test_padding_content_changes_nothing():
    model, batch = make_model(), make_batch()
    other = dict(batch)
    padding = batch["input_mask"] == 0
    assert padding.sum() > 5
    other["input_word_ids"] = np.where(
        padding, 52 - batch["input_word_ids"], other["input_word_ids"]
    )
    other["input_type_ids"] = np.where(
        padding, 1 - batch["input_type_ids"], other["input_type_ids"]
    )
    one, two = model.bert(batch)["sequence_output"], model.bert(other)["sequence_output"]
    np.testing.assert_array_equal(one.numpy()[~padding], two.numpy()[~padding])
    assert np.abs(one.numpy()[padding] - two.numpy()[padding]).max() > 0.01


def test_row_of_padding_alone_is_finite():
    model, batch = make_model(), make_batch()
    batch["input_mask"] = np.zeros_like(batch["input_mask"])
    assert np.isfinite(model.bert(batch)["sequence_output"]).all()


@pytest.mark.slow
def test_parameter_counts_of_base():
    model = BertPretrainer(ModelConfig())
    assert model.bert.count_params() == 109_482_240
    assert model.count_params() == 110_106_428


def test_every_variable_receives_a_gradient():
    model = make_model()
    _, gradients = loss_and_gradients(model, make_batch())
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.path
        if not variable.path.endswith("key/bias"):  # softmax does not see it
            assert np.abs(gradient).max() > 1e-6, variable.path


def test_word_table_is_tied():
    model, batch = make_model(), make_batch()
    paths = [variable.path for variable in model.trainable_variables]
    assert sum(53 in v.shape and len(v.shape) == 2 for v in model.trainable_variables) == 1
    assert len(paths) == len(set(paths)) == 5 + 2 * 16 + 2 + 5 + 2
    before = model(batch)["masked_lm_logits"].numpy()
    rows = model.bert.embeddings.word_embeddings
    unused = next(i for i in range(53) if i not in batch["input_word_ids"])
    changed = rows.numpy()
    changed[unused] += 1.0
    rows.assign(changed)
    after = model(batch)["masked_lm_logits"].numpy()
    difference = np.abs(after - before).max((0, 1))
    assert difference[unused] > 0.1
    assert np.delete(difference, unused).max() == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_recomputation_gives_the_same_gradients_with_dropout(jit_compile):
    batch = make_batch()
    plain, recomputing = make_model(), make_model(recompute=True)
    results = []
    for model in (plain, recomputing):
        run = tf.function(lambda m=model: loss_and_gradients(m, batch), jit_compile=jit_compile)
        results.append(run())
    assert abs(results[0][0] - results[1][0]) < 1e-6
    for variable, one, two in zip(
        plain.trainable_variables, results[0][1], results[1][1], strict=True
    ):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6, err_msg=variable.path)
    # The comparison would see another mask.
    _, other = loss_and_gradients(plain, batch, seed=8)
    assert max(np.abs(a - b).max() for a, b in zip(other, results[0][1], strict=True)) > 1e-2


def test_dropout_seed_determines_the_output():
    model, batch = make_model(), make_batch()

    def logits(**kwargs) -> np.ndarray:
        return model(batch, **kwargs)["masked_lm_logits"].numpy()

    same = [logits(training=True, dropout_seed=tf.constant(3)) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert np.abs(logits(training=True, dropout_seed=tf.constant(4)) - same[0]).max() > 0.01
    assert np.abs(logits(training=True) - logits(training=True)).max() > 0.01  # own generator
    np.testing.assert_array_equal(logits(), logits(dropout_seed=tf.constant(3)))  # inference


@pytest.mark.slow
@pytest.mark.parametrize("use_next_sentence", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_fit_learns_one_batch(use_next_sentence):
    keras.utils.set_random_seed(1)
    model = BertPretrainer(CONFIG, use_next_sentence)
    model.compile(optimizer=AdamW(3e-3), jit_compile=False)
    batch = make_batch()
    data = tf.data.Dataset.from_tensors(batch)
    history = model.fit(data.repeat(40), shuffle=False, verbose=0)
    first = np.log(53) + np.log(2) * use_next_sentence
    assert history.history["loss"][0] < first - 0.5
    final = model.evaluate(data, verbose=0)
    assert final < 0.5 * first


def fit_rows(num_devices: int) -> tuple[list[float], list[np.ndarray]]:
    """Fits five batches of four rows; returns the loss and the weights."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = ModelConfig.from_dict({**CONFIG.to_dict(), **off})
    rows = {name: value[:4] for name, value in make_batch().items()}
    for name in ("masked_lm_weights", "next_sentence_weights"):
        rows[name] = np.ones_like(rows[name])  # a mean of means is the mean if all weigh the same
    keras.utils.set_random_seed(1)
    devices = [f"CPU:{index}" for index in range(num_devices)]
    with tf.distribute.MirroredStrategy(devices).scope():
        model = BertPretrainer(config)
        model.compile(optimizer=AdamW(1e-2), jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices(rows).batch(4).repeat(5)
    loss = model.fit(data, shuffle=False, verbose=0).history["loss"]
    return loss, [variable.numpy() for variable in model.trainable_variables]


@pytest.mark.slow
def test_fit_on_two_devices_is_fit_on_one():
    # In processes of their own: TensorFlow mixes up the all-reduces of several mirrored strategies.
    with concurrent.futures.ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        (loss, weights), (other_loss, other_weights) = pool.map(fit_rows, [1, 2])
    np.testing.assert_allclose(other_loss, loss, rtol=1e-4)
    for value, expected in zip(other_weights, weights, strict=True):
        np.testing.assert_allclose(value, expected, atol=1e-3)


def test_initial_loss_is_that_of_guessing():
    keras.utils.set_random_seed(0)
    batch = make_batch()
    model = BertPretrainer(CONFIG)
    losses = model.objective_losses(batch, model(batch))
    assert abs(losses["masked_lm_loss"].mean() / np.log(53) - 1) < 0.02
    assert abs(losses["next_sentence_loss"].mean() / np.log(2) - 1) < 0.05


def test_same_seed_same_weights():
    models = []
    for seed in (5, 5, 6):
        keras.utils.set_random_seed(seed)
        models.append(BertPretrainer(CONFIG))
    one, two, other = ([v.numpy() for v in m.trainable_variables] for m in models)
    assert all((a == b).all() for a, b in zip(one, two, strict=True))
    assert not all((a == b).all() for a, b in zip(one, other, strict=True))
    layers = [models[0].bert.layer_0, models[0].bert.layer_1]
    kernels = [layer.intermediate.kernel.numpy() for layer in layers]
    assert np.abs(kernels[0] - kernels[1]).max() > 0.01
    assert np.abs(kernels[0]).max() <= 0.04 and 0.015 < kernels[0].std() < 0.02


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras' own
def test_save_and_load(tmp_path):
    model, batch = make_model(), make_batch()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert [v.path for v in loaded.variables] == [v.path for v in model.variables]
    np.testing.assert_array_equal(
        model(batch)["masked_lm_logits"], loaded(batch)["masked_lm_logits"]
    )
    encoder = BertEncoder.from_config(model.bert.get_config())
    assert encoder.count_params() == model.bert.count_params()
    # Layers are attributes, so TensorFlow's own checkpoints see them, too.
    tf.train.Checkpoint(model=model).save(str(tmp_path / "tf"))
    names = [name for name, _ in tf.train.list_variables(str(tmp_path))]
    assert sum("VARIABLE_VALUE" in n for n in names) >= len(model.trainable_variables)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(policy):
    batch = make_batch()
    expected = make_model()(batch)["masked_lm_logits"].numpy()
    model = make_model(dtype=policy)
    outputs = model(batch)
    assert outputs["masked_lm_logits"].dtype == outputs["next_sentence_logits"].dtype == tf.float32
    assert model.bert(batch)["sequence_output"].dtype == policy.removeprefix("mixed_")
    assert all(v.dtype == "float32" for v in model.trainable_variables)
    tolerance = 0.1 if "bfloat16" in policy else 0.02
    assert np.abs(outputs["masked_lm_logits"] - expected).max() < tolerance * np.abs(expected).max()
    _, gradients = loss_and_gradients(model, batch)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_too_long_a_sequence_is_refused():
    batch = {name: np.zeros((1, 20), np.int32) for name in make_batch() if name.startswith("input")}
    with pytest.raises(ValueError, match="20 .*19 .*max_position_embeddings"):
        BertEncoder(CONFIG)(batch)


def test_dynamic_shapes_trace_once():
    model = make_model()

    spec = {n: tf.TensorSpec([None, None], tf.int32) for n in make_batch() if "input" in n}
    run = tf.function(lambda x: model.bert(x)["sequence_output"], input_signature=[spec])
    batch = {name: make_batch()[name] for name in spec}
    short = {name: value[:2, :9] for name, value in batch.items()}
    assert_close(run(batch), model.bert(batch)["sequence_output"])
    assert_close(run(short), model.bert(short)["sequence_output"])


def test_masked_loss_uses_only_weighted_positions():
    model, batch = make_model(), make_batch()
    logits = model(batch)["masked_lm_logits"]
    other = np.where(batch["masked_lm_weights"] == 0, 52 - batch["masked_lm_ids"], 0)
    ids = np.where(batch["masked_lm_weights"] == 0, other, batch["masked_lm_ids"])
    one = cross_entropy(logits, batch["masked_lm_ids"], batch["masked_lm_weights"])
    two = cross_entropy(logits, ids, batch["masked_lm_weights"])
    assert one.total == two.total and one.weight == two.weight
