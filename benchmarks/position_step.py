"""Times forward and backward pass with each position scheme beside learned positions, in turn.

    python -m benchmarks.position_step --schemes=learned,relative,disentangled,transformer_xl

The first scheme is the base. Processor time of two layers of 384, at 16 x 128 and 4 x 512 tokens,
with and without XLA.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app, flags

from benchmarks.timing import in_turn, print_table
from bert_tf.config import ModelConfig
from bert_tf.network.encoder import BertEncoder

SCHEMES = flags.DEFINE_list(
    "schemes", ["learned", "relative", "disentangled", "transformer_xl"], "Position types."
)
ROUNDS = flags.DEFINE_integer("rounds", 7, "Timed rounds.", lower_bound=1)
SHAPES = ((16, 128), (4, 512))  # B, T


def make_pass(scheme: str, rows: int, length: int, is_compiled: bool) -> Callable[[], Any]:
    """Returns a call that computes the encoder and its gradients on a batch."""
    config = ModelConfig(
        vocab_size=1000,
        hidden_size=384,
        num_attention_heads=6,
        num_hidden_layers=2,
        intermediate_size=1536,
        position_type=scheme,
        max_position_embeddings=512,
    )
    encoder = BertEncoder(config, use_pooler=False)
    draw = np.random.default_rng(0)
    batch = {
        "input_word_ids": tf.constant(draw.integers(0, 1000, (rows, length)), tf.int32),
        "input_mask": tf.ones((rows, length), tf.int32),
        "input_type_ids": tf.zeros((rows, length), tf.int32),
    }

    @tf.function(jit_compile=is_compiled)
    def compute() -> Any:
        with tf.GradientTape() as tape:
            outputs = encoder(batch, training=True, dropout_seed=tf.constant(3))
            total = tf.reduce_sum(outputs["sequence_output"] ** 2)
        gradients = tape.gradient(total, [v.value for v in encoder.trainable_variables])
        return sum(tf.reduce_sum(gradient) for gradient in gradients)

    return lambda: compute().numpy()


def main(_: list[str]) -> None:
    columns: dict[str, list[str]] = {scheme: [] for scheme in SCHEMES.value}
    heads = ["positions"]
    for rows, length in SHAPES:
        for is_compiled in (True, False):
            heads.append(f"{length}, XLA" if is_compiled else f"{length}")
            calls = {s: make_pass(s, rows, length, is_compiled) for s in columns}
            taken = in_turn(calls, ROUNDS.value)
            base = taken[SCHEMES.value[0]][1]
            for scheme, (_, processor_seconds) in taken.items():
                columns[scheme].append(f"{processor_seconds / base:.2f}")
    print_table(heads, ([scheme, *cells] for scheme, cells in columns.items()))


if __name__ == "__main__":
    app.run(main)
