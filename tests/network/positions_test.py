"""Position schemes and blocks: formulas against golden files, layouts against each other."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network import attention, position_schemes, positions
from bert_tf.network.attention import AttentionPattern
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.heads import HeadTransform
from bert_tf.network.layout import find_layout
from bert_tf.training.packed_rows import pack_batch
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.network.toy_heads import BATCH, CONFIG, make_batch, with_random_weights
from tests.shared_data import golden_file, read_arrays
from tests.slow_variants import slow_unless, slow_where

TURNING = {"num_attention_heads": 3, "hidden_size": 24, "vocab_size": 53}
PRE_NORM = {
    "block_type": "pre_norm",
    "gated_feed_forward": True,
    "biases": "output",
    "hidden_act": "gelu_exact",
}
BUCKETS = {"relative_buckets": 8, "relative_max_distance": 11}
LOCAL = {"local_attention": 8, "global_attention_every": 3, "num_hidden_layers": 4}


@pytest.fixture(name="golden", scope="module")
def fixture_golden() -> dict[str, np.ndarray]:
    return read_arrays(golden_file("families", "positions", "positions.npz"))


@pytest.mark.parametrize(("rows", "width"), [(1, 4), (50, 16), (128, 30), (512, 8)])
def test_sinusoids(golden, rows, width):
    received = positions.sinusoids(np.arange(rows, dtype=np.int32), width)
    expected = golden[f"sinusoidal_interleaved_{rows}x{width}"]
    np.testing.assert_allclose(received, expected, atol=5e-5 if rows > 128 else 1e-5)


@pytest.mark.parametrize("offset", [0, 11])
@pytest.mark.parametrize("theta", [10000, 160000])
@pytest.mark.parametrize(
    ("scheme", "name"), [("rotary", "rotate_half"), ("rotary_interleaved", "interleaved")]
)
def test_rotations(golden, scheme, name, theta, offset):
    config = ModelConfig(
        hidden_size=48, num_attention_heads=3, position_type=scheme, rotary_theta=theta
    )
    query, key = (golden[f"in_rope_{x}"].transpose(0, 2, 1, 3) for x in "qk")  # [B, T, N, H]
    places = np.arange(offset, offset + query.shape[1], dtype=np.int32)[None]
    turned = position_schemes.make_positions(config).rotate(
        tf.constant(query), tf.constant(key), places
    )
    for x, received in zip("qk", turned, strict=True):
        expected = golden[f"rope_{name}_{x}_theta{theta}_offset{offset}"].transpose(0, 2, 1, 3)
        assert_close(received, expected, OTHER_FRAMEWORK)


def test_one_convention_from_the_other():
    """Reordered kernels give the other convention's scores."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(1, 9, 24)).astype(np.float32)
    kernels = draw.normal(size=(2, 24, 24)).astype(np.float32)
    places, scores = np.arange(9, dtype=np.int32)[None], []
    for scheme, reorder in (
        ("rotary_interleaved", lambda kernel: kernel),
        ("rotary", lambda kernel: positions.interleaved_to_halves(kernel, 3)),
    ):
        config = ModelConfig(**TURNING, position_type=scheme)
        pair = (tf.constant((x @ reorder(kernel)).reshape(1, 9, 3, 8)) for kernel in kernels)
        query, key = position_schemes.make_positions(config).rotate(*pair, places)
        scores.append(np.einsum("BTNH,BSNH->BNTS", query, key))
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("heads", [8, 12])
def test_alibi(golden, heads):
    np.testing.assert_allclose(
        positions.alibi_slopes(heads), golden[f"alibi_slopes_{heads}"], rtol=1e-6
    )
    config = ModelConfig(hidden_size=heads, num_attention_heads=heads, position_type="alibi")
    there = np.arange(19)
    bias = position_schemes.make_positions(config).bias(tf.constant(abs(there[:, None] - there)))
    expected = golden[f"alibi_symmetric_bias_{heads}x19"]
    assert_close(bias, expected, OTHER_FRAMEWORK)
    assert not np.einsum("Nii->Ni", bias).any()


def config_of(**changes: object) -> ModelConfig:
    return dataclasses.replace(CONFIG, hidden_size=24, **changes)


NETWORKS = {
    **{scheme: config_of(position_type=scheme) for scheme in position_schemes.SCHEMES},
    "offset": config_of(max_position_embeddings=21, position_offset=2, pad_token_id=1),
    "projected": config_of(embedding_size=10),
    "pre_norm": config_of(**PRE_NORM, position_type="rotary", type_vocab_size=0),
    "local": config_of(**PRE_NORM, **LOCAL, position_type="rotary"),
    "local_alibi": config_of(**LOCAL, position_type="alibi"),
    "per_layer": config_of(position_type="relative", **BUCKETS, relative_bias_per_layer=True),
    "local_relative": config_of(**LOCAL, position_type="relative", **BUCKETS),
    "local_disentangled": config_of(**LOCAL, position_type="disentangled", **BUCKETS),
}


def outputs_and_gradients(model: BertEncoder, batch: dict, real: np.ndarray) -> tuple:
    with tf.GradientTape() as tape:
        sequence = model(batch, training=True, dropout_seed=tf.constant(3))["sequence_output"]
        total = tf.reduce_sum(tf.boolean_mask(sequence, real) ** 3)
    gradients = tape.gradient(total, [v.value for v in model.trainable_variables])
    return sequence.numpy()[real], [tf.convert_to_tensor(g).numpy() for g in gradients]


@pytest.mark.parametrize(
    "config", slow_unless(NETWORKS["pre_norm"], NETWORKS.values()), ids=NETWORKS
)
def test_layouts_and_recomputation_change_nothing(config, monkeypatch):
    monkeypatch.setattr(attention, "MIN_BLOCK_SIZE", 4)
    monkeypatch.setattr(attention, "MAX_FULL_BLOCKS", 3)
    batch = make_batch(BATCH, 17, holes=False)
    batch["input_word_ids"] = np.where(batch["input_mask"], batch["input_word_ids"] % 51 + 2, 1)
    batch["input_type_ids"] %= max(1, config.type_vocab_size)
    real = batch["input_mask"] == 1
    plain = with_random_weights(BertEncoder(config, use_pooler=False))
    expected, expected_gradients = outputs_and_gradients(plain, batch, real)
    packed = pack_batch({name: tf.constant(values) for name, values in batch.items()})
    for options, given in (({"unpad": True}, batch), ({}, packed), ({"recompute": True}, batch)):
        model = with_random_weights(BertEncoder(config, use_pooler=False, **options))
        received, gradients = outputs_and_gradients(model, given, real)
        assert_close(received, expected)
        scale = max(np.abs(gradient).max() for gradient in expected_gradients)
        for variable, one, two in zip(
            model.trainable_variables, gradients, expected_gradients, strict=True
        ):
            np.testing.assert_allclose(one, two, atol=1e-5 * scale, err_msg=variable.path)


CHUNKS = []
for scheme, rows in itertools.product(
    ["rotary", "alibi"], [(51, False), (64, False), (7, False), (17, True)]
):
    CHUNKS += [(scheme, *rows, False), (scheme, *rows, True)]


@pytest.mark.parametrize(
    ("scheme", "length", "packed", "in_graph"),
    slow_where(lambda case: case[3] or (case[0] == "rotary" and case[1] > 50), CHUNKS),
)
def test_chunks_see_what_the_window_shows(scheme, length, packed, in_graph, monkeypatch):
    """Against the whole matrix of scores; three chunks or fewer are not cut when known."""
    config = config_of(**LOCAL, position_type=scheme)
    monkeypatch.setattr(attention, "MIN_BLOCK_SIZE", 4)
    monkeypatch.setattr(attention, "MAX_FULL_BLOCKS", 3)
    batch = {k: tf.constant(v) for k, v in make_batch(BATCH, length, holes=False).items()}
    batch = pack_batch(batch) if packed else batch
    rows, width = (batch["packed_positions"] if packed else batch["input_mask"]).shape
    draw = np.random.default_rng(4)
    query, key, value = draw.normal(size=(3, rows, width, 3, 8)).astype(np.float32)

    def attend(batch: dict, *parts: tf.Tensor) -> tf.Tensor:
        pattern = AttentionPattern(find_layout(batch, unpad=False), config, is_local=True)
        assert pattern.is_blocked is (None if in_graph else length > 12)
        return pattern.attend(*parts, lambda probs: probs)

    if in_graph:  # The length is not known when it is traced.
        shapes = {name: tf.TensorSpec([None] * len(v.shape), v.dtype) for name, v in batch.items()}
        parts = [tf.TensorSpec([None, None, 3, 8])] * 3
        attend = tf.function(attend, input_signature=[shapes, *parts])
    received = attend(batch, query, key, value).numpy()

    layout = find_layout(batch, unpad=False)
    texts, places = layout.texts().numpy(), np.arange(width)
    scheme_of = position_schemes.make_positions(config, is_local=True)
    query, key = scheme_of.rotate(tf.constant(query), tf.constant(key), layout.row_positions())
    scores = np.einsum("BTNH,BSNH->BNTS", query, key) / np.sqrt(8)
    distance = abs(places[:, None] - places)
    scores = scores + scheme_of.bias(tf.constant(distance))
    is_seen = (texts[:, :, None] == texts[:, None]) & (distance <= 4)
    weights = np.where(is_seen[:, None], np.exp(scores), 0.0)
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("BNTS,BSNH->BTNH", weights, value)
    is_real = texts >= 0
    assert_close(received[is_real], expected[is_real])


def test_padding_takes_no_position():
    """RoBERTa: wherever padding stands, and whatever the mask says."""
    config = config_of(max_position_embeddings=21, position_offset=2, pad_token_id=1)
    model = with_random_weights(BertEncoder(config, use_pooler=False))
    ids = np.array([[5, 6, 7, 8, 1, 1], [1, 5, 1, 6, 7, 8]], np.int32)
    batch = {"input_word_ids": ids, "input_mask": ids != 1, "input_type_ids": ids * 0}
    sequence = model(batch)["sequence_output"].numpy()
    assert_close(sequence[0, :4], sequence[1, [1, 3, 4, 5]])
    table = model.embeddings.position_ids_of(ids)
    np.testing.assert_array_equal(table, [[2, 3, 4, 5, 1, 1], [1, 2, 1, 3, 4, 5]])


def test_with_one_type_all_pieces_have_it():
    """RoBERTa: a second text that is marked as one changes nothing; without a row it would."""
    model = with_random_weights(BertEncoder(config_of(type_vocab_size=1), use_pooler=False))
    batch = make_batch(BATCH, 9)
    marked, unmarked = (
        model({**batch, "input_type_ids": np.full_like(batch["input_mask"], kind)})
        for kind in (1, 0)
    )
    np.testing.assert_array_equal(marked["sequence_output"], unmarked["sequence_output"])
    model.embeddings.token_type_embeddings.assign([np.linspace(-1, 1, 24)])
    other = model({**batch, "input_type_ids": batch["input_mask"] * 0})["sequence_output"]
    assert np.abs(other - unmarked["sequence_output"]).max() > 0.1


def test_a_head_has_its_own_activation():
    """RoBERTa's masked LM computes GELU on top of layers with another activation."""
    config = config_of(hidden_act="relu", head_act="gelu_exact")
    head = HeadTransform(config, 24)
    head.build()
    with_random_weights(head)
    x = np.random.default_rng(2).normal(size=(5, 24)).astype(np.float32)
    inner = tf.nn.gelu(x @ head.dense.kernel + head.dense.bias, approximate=False)
    assert_close(head(x), head.layer_norm(inner))
    assert (inner.numpy() < 0).any()


def test_rows_may_be_longer_than_any_before_but_for_a_table():
    for scheme in ("sinusoidal", "rotary", "alibi"):
        model = BertEncoder(config_of(position_type=scheme), use_pooler=False)
        assert model(make_batch(3, 40))["sequence_output"].shape == (3, 40, 24)


def test_layers_that_are_local():
    config = config_of(**LOCAL)
    assert [config.is_local(index) for index in range(4)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"position_type": "rotary", "hidden_size": 21, "num_attention_heads": 3}, "rotary .* 7 "),
        ({"biases": "attention,norms"}, "biases.*norms"),
        ({"local_attention": 2000}, "local_attention 2000 .*max_position_embeddings 512"),
        (
            {"position_type": "alibi", "position_offset": 2},
            "position_offset 2 .*position_type .*alibi",
        ),
        ({"position_offset": 512}, "position_offset 512 .*max_position_embeddings .*512"),
        ({"position_type": "circular"}, "position_type: .*'circular', .*'learned'"),
        ({"position_type": "relative", "relative_buckets": 6}, "relative_buckets .*6, .* 4"),
        ({"position_type": "disentangled", "relative_buckets": 7}, "relative_buckets .*7,"),
        (
            {"position_type": "disentangled", "relative_max_distance": 9},
            "_distance .*9, .*relative_buckets",
        ),
        ({"position_type": "transformer_xl", "local_attention": 4}, "local_attention"),
        (
            {"position_type": "transformer_xl", "hidden_size": 21, "num_attention_heads": 3},
            "_xl .* 21",
        ),
        ({"query_vector": True, "reads_left_to_right": True}, "query_vector"),
        ({"masked_lm_transform": False, "embedding_size": 10}, "masked_lm_transform"),
        (
            {"position_type": "relative", "relative_max_distance": 8},
            "_distance .*8, .*relative_buckets",
        ),
    ],
)
def test_networks_that_cannot_be(fields, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**fields)
