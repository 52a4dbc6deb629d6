"""The model of scaling against cases worked by hand."""

import pytest

from benchmarks.scaling_model import (
    BASE,
    LARGE,
    Machine,
    all_reduce_seconds,
    efficiency,
    num_parameters,
    ring_seconds,
    step,
)
from bert_tf.config import ModelConfig

# 10 FLOP/s, half of which is reached; 16 bytes/s of memory; nodes of 2.
MACHINE = Machine(10.0, {128: 0.5}, 16.0, 2, 8.0, 4.0, 1.0, 2.0)


def test_a_ring_by_hand():
    assert ring_seconds(8, 4, 2, 1) == 12
    assert ring_seconds(8, 1, 2, 1) == 0


def test_two_levels_by_hand():
    # In the node: 2 halves of 16 bytes at 8 bytes/s, 2 hops of 1 s: 4 s. Between four nodes: each
    # device has 8 bytes, 6 quarters of them at 4 bytes/s and 6 hops of 2 s: 15 s.
    assert all_reduce_seconds(MACHINE, 16, 8) == 4 + 15


def test_the_weights_are_those_of_google_s_models():
    assert num_parameters(BASE)[0] == 110_106_428
    assert num_parameters(LARGE)[0] == 336_226_108
    assert num_parameters(BASE)[1] == (30522 + 512 + 2 + 2) * 768


def test_a_step_by_hand():
    config = ModelConfig(
        vocab_size=5,
        max_position_embeddings=128,
        hidden_size=1,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=1,
    )
    # A layer: 8 T + 4 T^2 + 4 T = 67,072 for T = 128; heads: 20 (2 + 10) + 2 + 4 = 246; thrice.
    flops = 3 * (67072 + 246)
    # Embeddings 135 + 2; layer 4 * 2 + 2 + 2 + 4; heads 2 * 2 + 2 + 5 + 2 + 2.
    weights, embeddings = 137 + 16 + 15, 137
    assert num_parameters(config) == (weights, embeddings)
    one = step(MACHINE, config, 128, 1, examples=3, passes=7)
    assert one.compute == pytest.approx(3 * flops / 5)
    assert one.exposed == 0
    assert one.update == pytest.approx(7 * 4 * weights / 16)
    two = step(MACHINE, config, 128, 2, examples=3, passes=7)
    assert two.exposed == pytest.approx(4 * weights / 8 + 2)
    hidden = step(MACHINE, config, 128, 2, examples=3, passes=7, overlap=True)
    assert hidden.exposed == pytest.approx(4 * embeddings / 8 + 2)
    expected = one.total / two.total
    assert efficiency(MACHINE, config, 128, 2, examples=3, passes=7) == pytest.approx(expected)


def test_what_hides_the_all_reduce_helps():
    values = [
        efficiency(MACHINE, BASE, 128, 64, **how)
        for how in ({}, {"overlap": True}, {"overlap": True, "micro_batches": 8})
    ]
    assert values == sorted(values) and values[0] < values[-1] <= 1
