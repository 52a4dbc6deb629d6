"""Measures what an example keeps for the backward pass, beside the estimate for micro-batches.

    python -m benchmarks.activation_memory

Every row is two processes that compute gradients with XLA on two batch sizes; the difference of
their peak memories, divided by that of the sizes, is the memory of an example.
"""

import json
import sys
from typing import Any, NamedTuple

from absl import app, flags

from benchmarks.timing import measure, print_table
from bert_tf.config import ModelConfig
from bert_tf.training.memory import activation_bytes

CASE = flags.DEFINE_string("case", "", "Used by this program itself.")


class Case(NamedTuple):
    """Length, predictions, layers, width (heads of 64), recomputation, and two batch sizes."""

    length: int
    predictions: int
    layers: int
    width: int
    recompute: bool
    sizes: tuple[int, int]

    def config(self) -> ModelConfig:
        return ModelConfig(
            hidden_size=self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.width // 64,
            intermediate_size=4 * self.width,
        )

    def peak_mb(self, batch_size: int) -> float:
        """Returns the peak memory of a process that computes gradients."""
        argument = f"--case={json.dumps([*self, batch_size])}"
        return measure([sys.executable, "-m", "benchmarks.activation_memory", argument]).peak_mb

    def row(self) -> list[Any]:
        small, large = map(self.peak_mb, self.sizes)
        measured = (large - small) / (self.sizes[1] - self.sizes[0])
        estimate = activation_bytes(self.config(), self.length, self.predictions, self.recompute)
        kind = [self.layers, self.width, self.length, "yes" if self.recompute else "no"]
        return [*kind, f"{measured:.1f}", f"{estimate / 1e6:.1f}"]


CASES = [
    Case(128, 20, 12, 768, False, (8, 24)),
    Case(512, 76, 12, 768, False, (2, 6)),
    Case(128, 20, 12, 768, True, (8, 24)),
    Case(512, 76, 4, 512, False, (4, 12)),
    Case(128, 20, 4, 256, False, (32, 96)),
]


def compute_gradients(case: Case, batch_size: int) -> None:
    """Computes the gradients of one batch twice."""
    import tensorflow as tf

    from benchmarks.training_step import make_batch
    from bert_tf.pretraining.masked_words.model import BertPretrainer

    model = BertPretrainer(case.config(), recompute=case.recompute)
    values = make_batch(batch_size, case.length, case.predictions)
    batch = {name: tf.constant(value) for name, value in values.items()}
    variables = [variable.value for variable in model.trainable_variables]

    @tf.function(jit_compile=True)
    def gradients() -> list[Any]:
        with tf.GradientTape() as tape:
            outputs = model(batch, training=True, dropout_seed=tf.constant(7))
            loss = sum(part.mean() for part in model.objective_losses(batch, outputs).values())
        return [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]

    for _ in range(2):
        gradients()


def main(_: list[str]) -> None:
    if CASE.value:
        *fields, batch_size = json.loads(CASE.value)
        compute_gradients(Case(*fields), batch_size)
        return
    heads = ["layers", "width", "length", "recompute", "MB an example", "estimate, MB"]
    print_table(heads, (case.row() for case in CASES))


if __name__ == "__main__":
    app.run(main)
