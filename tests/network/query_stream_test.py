"""Orders of tokens and the query stream: what each token may depend on, and slow twins."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.network import attention
from bert_tf.network.attention import AttentionPattern
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.layout import PADDING_BIAS, PaddedBatch
from bert_tf.training.packed_rows import pack_batch
from tests.float_bounds import assert_close
from tests.network.toy_heads import BATCH, CONFIG, make_batch, with_random_weights
from tests.slow_variants import slow_unless, slow_where

LENGTH = 17
MASK = 52  # The id of [MASK].
NETWORKS = {
    "learned": {},
    "offset": {"max_position_embeddings": 21, "position_offset": 2, "pad_token_id": 1},
    "rotary_pre_norm": {"position_type": "rotary", "block_type": "pre_norm"},
    "relative": {"position_type": "relative", "relative_buckets": 8},
    "disentangled": {"position_type": "disentangled", "relative_buckets": 8},
    "transformer_xl": {"position_type": "transformer_xl"},
    "projected": {"embedding_size": 10},
    "local": {"local_attention": 8, "global_attention_every": 2, "position_type": "alibi"},
}


def make_encoder(name: str, **options: object) -> BertEncoder:
    config = dataclasses.replace(CONFIG, hidden_size=24, **NETWORKS[name])
    return with_random_weights(BertEncoder(config, use_pooler=False, **options))


def ordered_batch(seed: int = 0) -> dict[str, np.ndarray]:
    """Draws a batch whose last third of each text, in a random order, is to be predicted."""
    draw = np.random.default_rng(seed)
    batch = make_batch(BATCH, LENGTH, holes=False)
    mask = batch["input_mask"]
    mask[-1, :3] = 1  # A text without tokens has no targets.
    batch["input_word_ids"] = np.where(mask, batch["input_word_ids"] % 49 + 2, 1)
    key_ranks = np.zeros_like(mask)
    query_ranks = np.ones_like(mask)
    positions = np.full([BATCH, 6], -1, np.int32)
    for row, length in enumerate(mask.sum(axis=1)):
        targets = draw.permutation(length)[: length // 3]
        key_ranks[row, targets] = np.arange(1, len(targets) + 1)
        query_ranks[row, targets] = key_ranks[row, targets]
        positions[row, : len(targets)] = targets
    return {
        **batch,
        "key_ranks": key_ranks,
        "query_ranks": query_ranks,
        "query_positions": positions,
        "query_word_ids": np.full_like(positions, MASK),
    }


@pytest.mark.parametrize(
    "name", slow_where(lambda name: name not in ("offset", "projected"), NETWORKS)
)
def test_targets_depend_on_earlier_tokens_alone(name, monkeypatch):
    monkeypatch.setattr(attention, "MIN_BLOCK_SIZE", 4)
    monkeypatch.setattr(attention, "MAX_FULL_BLOCKS", 3)
    encoder = make_encoder(name)
    batch = ordered_batch()
    plain = encoder(batch)
    row = 0
    targets = batch["query_positions"][row]
    targets = targets[targets >= 0]
    assert len(targets) == 5
    for number, target in enumerate(targets):
        changed = {**batch, "input_word_ids": batch["input_word_ids"].copy()}
        changed["input_word_ids"][row, target] += 1
        found = encoder(changed)
        difference = np.abs(found["query_output"] - plain["query_output"])[row].max(axis=-1)
        # Not the target itself, nor those before it in the order.
        assert difference[: number + 1].max() < 1e-6
        if name != "local":  # A window may hide it from the later ones.
            assert (difference[number + 1 : len(targets)] > 1e-4).all()
        content = np.abs(found["sequence_output"] - plain["sequence_output"])[row].max(axis=-1)
        is_later = batch["key_ranks"][row] > batch["key_ranks"][row, target]
        is_later[target] = True
        assert content[~is_later].max() < 1e-6
        assert content[target] > 1e-3


def test_query_stream_of_a_slow_twin():
    """Learned positions: targets as further tokens of the row, with every pair's visibility."""
    encoder = make_encoder("learned")
    batch = ordered_batch()
    found = encoder(batch)
    for row in range(BATCH):
        real = np.flatnonzero(batch["input_mask"][row])
        if len(real) < 2:
            continue  # Keras warns about a softmax of one score.
        targets = batch["query_positions"][row]
        targets = targets[targets >= 0]
        positions = np.concatenate([real, targets])
        is_target = np.arange(len(positions)) >= len(real)
        word_ids = np.where(is_target, MASK, batch["input_word_ids"][row, positions])
        bias = np.zeros([len(positions)] * 2, np.float32)
        for i, query in enumerate(positions):
            for j, key in enumerate(positions):
                is_earlier = batch["key_ranks"][row, key] < batch["query_ranks"][row, query]
                is_visible = is_earlier if is_target[i] else (is_earlier or i == j)
                if is_target[j] or not is_visible:
                    bias[i, j] = PADDING_BIAS
        layout = PaddedBatch(tf.ones([1, len(positions)], tf.int32))
        layout.attention_bias = lambda sees_itself, bias=bias: tf.constant(bias[None, None])
        pattern = AttentionPattern(layout, encoder.config, is_local=False)
        hidden = encoder.embeddings(
            tf.constant(word_ids[None], tf.int32),
            tf.constant(batch["input_type_ids"][row, positions][None]),
            position_ids=tf.constant(positions[None], tf.int32),
        )[0]
        for layer in encoder.encoder_layers:
            hidden = layer(hidden, pattern=pattern)
        assert_close(found["sequence_output"][row].numpy()[real], hidden[: len(real)])
        assert_close(found["query_output"][row, : len(targets)], hidden[len(real) :])


@pytest.mark.parametrize(
    "name",
    [
        "learned",
        pytest.param("relative", marks=pytest.mark.slow),
        pytest.param("transformer_xl", marks=pytest.mark.slow),
    ],
)
def test_recomputation_changes_no_gradient(name):
    check_recomputation(functools.partial(make_encoder, name), ordered_batch())


def check_recomputation(make, batch) -> None:
    """Checks that recomputed layers have the same gradients of the query stream."""
    results = []
    for recompute in (False, True):
        encoder = make(recompute=recompute)
        with tf.GradientTape() as tape:
            found = encoder(batch, training=True, dropout_seed=tf.constant(5))
            total = tf.reduce_sum(found["query_output"] ** 3)
        gradients = tape.gradient(total, [v.value for v in encoder.trainable_variables])
        results.append([tf.convert_to_tensor(gradient).numpy() for gradient in gradients])
    scale = max(np.abs(gradient).max() for gradient in results[0])
    for variable, one, two in zip(encoder.trainable_variables, *results, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6 * scale, err_msg=variable.path)
        # Keys have a bias that no softmax depends on.
        assert np.abs(one).max() > 0 or "key/bias" in variable.path


def causal_batch() -> dict[str, np.ndarray]:
    batch = make_batch(BATCH, LENGTH, holes=False)
    batch["input_word_ids"] = np.where(batch["input_mask"], batch["input_word_ids"] % 49 + 2, 1)
    positions = np.broadcast_to(np.arange(LENGTH, dtype=np.int32), [BATCH, LENGTH])
    return {**batch, "key_ranks": positions, "query_ranks": positions + 1}


@pytest.mark.parametrize("name", slow_unless("projected", NETWORKS))
def test_causal_order_in_every_layout(name, monkeypatch):
    """The output at a token is that of the text cut after the token."""
    monkeypatch.setattr(attention, "MIN_BLOCK_SIZE", 4)
    monkeypatch.setattr(attention, "MAX_FULL_BLOCKS", 3)
    batch = causal_batch()
    encoder = make_encoder(name)
    expected = encoder(batch)["sequence_output"].numpy()
    for length in (2, 5, 14):
        cut = {key: values[:, :length] for key, values in batch.items() if values.ndim == 2}
        del cut["label_rows"]
        last = encoder(cut)["sequence_output"][:, -1].numpy()
        real = batch["input_mask"][:, length - 1] == 1
        assert_close(last[real], expected[real, length - 1])
    real = batch["input_mask"] == 1
    packed = pack_batch({key: tf.constant(values) for key, values in batch.items()})
    for options, given in (({"unpad": True}, batch), ({}, packed)):
        received = make_encoder(name, **options)(given)["sequence_output"].numpy()
        assert_close(received[real], expected[real])


def test_a_query_stream_needs_a_padded_batch():
    packed = pack_batch({key: tf.constant(values) for key, values in ordered_batch().items()})
    with pytest.raises(ValueError, match="pack_rows"):
        make_encoder("learned")(packed)
