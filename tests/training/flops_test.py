"""The work of a step, against a count by hand and TensorFlow's own."""

import pytest
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.training import flops
from bert_tf.training.flops import (
    DEVICES,
    attended_tokens,
    data_sheet,
    forward_flops,
    measure_products,
    peak_flops,
    training_flops,
)


def test_one_layer_of_width_one_by_hand():
    config = ModelConfig(
        vocab_size=7,
        hidden_size=1,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=1,
    )
    # Projections 8, scores and values 4, feed-forward 4, pooler 2, next-sentence head 4.
    assert forward_flops(config, length=1, predictions=0) == 22
    # A prediction: transform 2, vocabulary 14.
    assert forward_flops(config, length=1, predictions=3) == 22 + 3 * 16
    # Only the scores grow with the square of the length.
    assert forward_flops(config, 10, 0) == 10 * 12 + 100 * 4 + 6
    assert training_flops(config, 1, 0) == 66


@pytest.mark.parametrize(("window", "chunk"), [(128, 64), (90, 45), (16, 32)])
def test_pieces_that_a_local_layer_looks_at(window, chunk):
    """Of rows longer than 16 chunks of half a window, at least 32 pieces: a chunk and two more."""
    config = ModelConfig(position_type="rotary", local_attention=window, global_attention_every=3)
    long = 16 * chunk + 1
    assert [attended_tokens(config, layer, long) for layer in range(4)] == [
        *(long, 3 * chunk, 3 * chunk, long)
    ]
    assert attended_tokens(config, 1, long - 1) == long - 1


def test_count_is_that_of_tensorflows_profiler():
    config = ModelConfig(
        vocab_size=1000,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
    )
    model, b, t, p = BertPretrainer(config), 2, 32, 5

    @tf.function
    def forward(ids, positions):
        batch = {name: ids for name in ("input_word_ids", "input_mask", "input_type_ids")}
        return model({**batch, "masked_lm_positions": positions}, training=False)

    graph = forward.get_concrete_function(
        tf.TensorSpec([b, t], tf.int32), tf.TensorSpec([b, p], tf.int32)
    ).graph
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation())
    profile = profiler.profile(graph, options=options.with_empty_output().build())
    # The profiler also counts what is no matrix product (GELU and its slope), and one-hot gathers.
    assert profile.total_float_ops == pytest.approx(b * forward_flops(config, t, p), rel=0.08)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A10", "A10"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA L40S", None),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_data_sheet_is_that_of_the_gpu(name, key):
    assert data_sheet(name) == (DEVICES[key] if key else None)


@pytest.mark.parametrize("has_units", [True, False])
def test_products_are_measured(monkeypatch, has_units):
    monkeypatch.setattr(flops, "has_bfloat16_units", lambda: has_units)
    measured = measure_products.__wrapped__(size=256, seconds=0.05)
    assert set(measured) == ({"float32", "bfloat16"} if has_units else {"float32"})
    assert all(1e8 < rate < 1e14 for rate in measured.values())


def test_the_peak_is_that_of_the_precision(monkeypatch):
    monkeypatch.setattr(flops, "known_gpu", lambda: ("", None))
    monkeypatch.setattr(flops, "measure_products", lambda: {"float32": 1.0, "bfloat16": 2.0})
    assert peak_flops("float32")[0] == 1.0
    assert peak_flops("mixed_bfloat16")[0] == 2.0
    assert peak_flops("mixed_float16")[0] == 1.0
    monkeypatch.setattr(flops, "measure_products", lambda: {"float32": 1.0})
    assert peak_flops("mixed_bfloat16")[0] == 1.0
