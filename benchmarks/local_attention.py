"""Times attention in a window beside attention to all pieces, over the length of the row.

    python -m benchmarks.local_attention

One row, 4 heads of 64, a window of 128, forward and backward, without XLA; medians of the rounds,
taken in turn.
"""

from collections.abc import Callable

import tensorflow as tf
from absl import app, flags

from benchmarks.timing import in_turn, print_table
from bert_tf.config import ModelConfig
from bert_tf.network.attention import AttentionPattern
from bert_tf.network.layout import PaddedBatch

LENGTHS = flags.DEFINE_list("lengths", "512,1024,2048,4096,8192", "Pieces in a row.")
ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds.")
CONFIG = ModelConfig(
    hidden_size=256, num_attention_heads=4, position_type="rotary", local_attention=128
)


def make_call(length: int, is_local: bool) -> Callable[[], object]:
    """Returns a call that computes attention and its gradients once."""
    shape = [3, 1, length, CONFIG.num_attention_heads, CONFIG.head_size]
    parts = tf.random.normal(shape)

    @tf.function
    def compute() -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(parts)
            pattern = AttentionPattern(
                PaddedBatch(tf.ones([1, length], tf.int32)), CONFIG, is_local
            )
            total = tf.reduce_sum(pattern.attend(*tf.unstack(parts), lambda probs: probs))
        return tape.gradient(total, parts)

    return lambda: compute().numpy()


def main(_: list[str]) -> None:
    rows = []
    for length in map(int, LENGTHS.value):
        calls = {name: make_call(length, name == "window") for name in ("all", "window")}
        seconds = in_turn(calls, ROUNDS.value)
        whole, window = (1000 * seconds[name][0] for name in ("all", "window"))
        rows.append([f"{length:,}", f"{whole:,.0f}", f"{window:,.0f}", f"{window / whole:.2f}"])
    print_table(["pieces", "all, ms", "window, ms", "window / all"], rows)


if __name__ == "__main__":
    app.run(main)
