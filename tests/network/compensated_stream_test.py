"""Targets that see every position (MPNet): what each depends on, and a slow twin."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.network.attention import AttentionPattern, attend_from_scaled
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.layout import PADDING_BIAS, PaddedBatch
from bert_tf.network.relative_positions import distance_buckets
from bert_tf.training.packed_rows import pack_batch
from tests.float_bounds import assert_close
from tests.network import query_stream_test
from tests.network.query_stream_test import LENGTH, MASK
from tests.network.toy_heads import BATCH, CLOSE, CONFIG, with_random_weights
from tests.slow_variants import slow_unless, slow_where

NETWORKS = {
    **query_stream_test.NETWORKS,
    "alibi": {"position_type": "alibi"},
    "own_biases": {"position_type": "relative", "relative_bias_per_layer": True},
    "mpnet": {
        "position_type": "learned_relative",
        "max_position_embeddings": 21,
        "position_offset": 2,
        "pad_token_id": 1,
        "type_vocab_size": 0,
        "relative_buckets": 8,
        "relative_max_distance": 9,
    },
}


def make_encoder(name: str, **options: object) -> BertEncoder:
    config = dataclasses.replace(CONFIG, hidden_size=24, **NETWORKS[name])
    return with_random_weights(BertEncoder(config, use_pooler=False, **options))


def compensated_batch() -> dict[str, np.ndarray]:
    """Makes a batch with [MASK] at the targets, which are listed in a random order."""
    batch = query_stream_test.ordered_batch()
    del batch["key_ranks"], batch["query_ranks"]
    positions = batch["query_positions"]
    word_ids = batch["input_word_ids"]
    is_target = positions >= 0
    content = np.take_along_axis(word_ids, np.maximum(positions, 0), axis=1)
    masked = word_ids.copy()
    for row in range(BATCH):
        masked[row, positions[row][is_target[row]]] = MASK
    return {
        **batch,
        "input_word_ids": masked,
        "query_content_ids": np.where(is_target, content, 0),
    }


def targets_of(batch: dict[str, np.ndarray], row: int) -> np.ndarray:
    positions = batch["query_positions"][row]
    return positions[positions >= 0]


@pytest.mark.parametrize("name", slow_unless("alibi", NETWORKS))
def test_targets_depend_on_earlier_tokens_alone(name):
    encoder = make_encoder(name)
    batch = compensated_batch()
    plain = encoder(batch)
    count = len(targets_of(batch, 0))
    assert count == 5
    for number in range(count):
        changed = {**batch, "query_content_ids": batch["query_content_ids"].copy()}
        changed["query_content_ids"][0, number] += 1
        found = encoder(changed)
        difference = np.abs(found["query_output"] - plain["query_output"])[0].max(axis=-1)
        # Not the target itself, nor those before it in the order.
        assert difference[: number + 1].max() < 1e-6
        if name != "local":  # A window may hide it from the later ones.
            assert (difference[number + 1 : count] > 1e-4).all()
        # The tokens are those of a masked language model.
        np.testing.assert_array_equal(found["sequence_output"], plain["sequence_output"])
    without_targets = {key: value for key, value in batch.items() if "query" not in key}
    received = encoder(without_targets)["sequence_output"]
    np.testing.assert_allclose(received, plain["sequence_output"], **CLOSE)


def test_targets_see_the_positions_of_later_ones():
    """Position compensation: something stands at each position of the text."""
    encoder = make_encoder("learned")
    batch = compensated_batch()
    plain = encoder(batch)["query_output"]
    last = targets_of(batch, 0)[-1]
    changed = {**batch, "input_word_ids": batch["input_word_ids"].copy()}
    changed["input_word_ids"][0, last] -= 1  # In place of its [MASK].
    difference = np.abs(encoder(changed)["query_output"] - plain)[0].max(axis=-1)
    assert (difference[:5] > 1e-4).all()


class SlowPattern(AttentionPattern):
    """Attention in a row of any tokens, whose positions and visibility are given."""

    def __init__(self, encoder: BertEncoder, is_local: bool, positions, visible) -> None:
        super().__init__(PaddedBatch(tf.ones([1, len(positions)], tf.int32)), encoder.config, False)
        self.encoder = encoder
        self.position_ids = tf.constant(positions[None], tf.int32)
        config = encoder.config
        bias = np.zeros([1, config.num_attention_heads, *visible.shape], np.float32)
        for i, query in enumerate(positions):
            for j, key in enumerate(positions):
                distance = abs(int(query) - int(key))
                bias[0, :, i, j] = self.positions.bias(tf.constant(distance))
                if not visible[i, j] or (is_local and distance > config.local_attention // 2):
                    bias[0, :, i, j] = PADDING_BIAS
        self.bias = tf.constant(bias)

    def relative_bias(self, table: tf.Tensor) -> tf.Tensor:
        config = self.config
        positions = self.position_ids[0]
        distances = positions[None, :] - positions[:, None]
        buckets = distance_buckets(distances, config.relative_buckets, config.relative_max_distance)
        return tf.transpose(tf.gather(table, buckets), [2, 0, 1])[None]

    def attend(self, query, key, value, dropout, terms):
        query, key = self.positions.rotate(query, key, self.position_ids)
        bias = self.bias
        if "relative" in self.config.position_type:
            layer = terms.args[0] if self.config.relative_bias_per_layer else self.encoder
            bias += self.relative_bias(layer.relative_attention_bias)
        return attend_from_scaled(query * query.shape[-1] ** -0.5, key, value, bias)


# The twin computes no learned terms but the biases of distances.
@pytest.mark.parametrize(
    "name",
    slow_where(
        lambda name: name in ("alibi", "local", "relative", "own_biases", "rotary_pre_norm"),
        sorted(set(NETWORKS) - {"disentangled", "transformer_xl"}),
    ),
)
def test_slow_twin(name):
    """One row of the tokens, the content and the queries, with every pair's visibility."""
    encoder = make_encoder(name)
    config = encoder.config
    batch = compensated_batch()
    found = encoder(batch)
    for row in range(BATCH):
        real = np.flatnonzero(batch["input_mask"][row])
        targets = targets_of(batch, row)
        count = len(targets)
        if count < 2:
            continue
        order = {int(target): number for number, target in enumerate(targets)}
        positions = np.concatenate([real, targets, targets])
        kinds = np.repeat(["token", "content", "query"], [len(real), count, count])
        word_ids = np.concatenate(
            [
                batch["input_word_ids"][row, real],
                batch["query_content_ids"][row, :count],
                batch["query_word_ids"][row, :count],
            ]
        )
        visible = np.zeros([len(positions)] * 2, bool)
        for i, (kind, query) in enumerate(zip(kinds, positions, strict=True)):
            for j, (other, key) in enumerate(zip(kinds, positions, strict=True)):
                if other == "query":
                    continue
                if kind == "token":
                    visible[i, j] = other == "token"
                    continue
                is_earlier = key in order and order[key] < order[query]
                is_own_content = kind == "content" and key == query
                is_known = is_earlier or is_own_content
                visible[i, j] = is_known if other == "content" else not is_known
        hidden = encoder.embeddings(
            tf.constant(word_ids[None], tf.int32),
            tf.constant(batch["input_type_ids"][row, positions][None]),
            position_ids=tf.constant(positions[None] + config.position_offset, tf.int32),
        )[0]
        if config.table_width != config.hidden_size:
            hidden = encoder.embeddings_project(hidden)
        for index, layer in enumerate(encoder.encoder_layers):
            pattern = SlowPattern(encoder, config.is_local(index), positions, visible)
            hidden = layer(hidden, pattern=pattern)
        if config.block_type == "pre_norm":
            hidden = encoder.final_norm(hidden)
        tokens = found["sequence_output"][row].numpy()[real]
        assert_close(tokens, hidden[: len(real)])
        assert_close(found["query_output"][row, :count], hidden[len(real) + count :])


@pytest.mark.parametrize("name", ["learned", pytest.param("mpnet", marks=pytest.mark.slow)])
def test_recomputation_changes_no_gradient(name):
    make = functools.partial(make_encoder, name)
    query_stream_test.check_recomputation(make, compensated_batch())


@pytest.mark.slow
def test_compiled_results_are_the_same():
    encoder = make_encoder("mpnet")
    batch = {key: tf.constant(value) for key, value in compensated_batch().items()}
    compiled = tf.function(lambda: encoder(batch)["query_output"], jit_compile=True)
    real = batch["query_positions"].numpy() >= 0
    expected = encoder(batch)["query_output"].numpy()
    assert_close(compiled().numpy()[real], expected[real])


def test_what_contradicts_the_stream():
    batch = compensated_batch()
    packed = pack_batch({key: tf.constant(values) for key, values in batch.items()})
    with pytest.raises(ValueError, match="pack_rows"):
        make_encoder("learned")(packed)
    ranks = np.zeros([BATCH, LENGTH], np.int32)
    with pytest.raises(ValueError, match="key_ranks"):
        make_encoder("learned")({**batch, "key_ranks": ranks, "query_ranks": ranks + 1})
