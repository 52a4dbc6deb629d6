"""Measures what an example keeps for the backward pass, beside the estimate for micro-batches.

    python -m benchmarks.activation_memory

Every row is two processes that compute gradients with XLA on two batch sizes; the difference of
their peak memories, divided by that of the sizes, is the memory of an example.
"""

import json
import resource
import subprocess
import sys
from typing import Any, NamedTuple

from absl import app, flags

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


CASES = [
    Case(128, 20, 12, 768, False, (8, 24)),
    Case(512, 76, 12, 768, False, (2, 6)),
    Case(128, 20, 12, 768, True, (8, 24)),
    Case(512, 76, 4, 512, False, (4, 12)),
    Case(128, 20, 4, 256, False, (32, 96)),
]


def compute_gradients(case: Case, batch_size: int) -> None:
    """Computes the gradients of one batch twice and prints this process' peak memory in bytes."""
    import tensorflow as tf

    from benchmarks.training_step import make_batch
    from bert_tf.modeling.models import BertPretrainer, pretraining_losses

    model = BertPretrainer(case.config(), recompute=case.recompute)
    values = make_batch(batch_size, case.length, case.predictions)
    batch = {name: tf.constant(value) for name, value in values.items()}
    variables = [variable.value for variable in model.trainable_variables]

    @tf.function(jit_compile=True)
    def gradients() -> list[Any]:
        with tf.GradientTape() as tape:
            outputs = model(batch, training=True, dropout_seed=tf.constant(7))
            loss = sum(part.mean() for part in pretraining_losses(batch, outputs).values())
        return [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]

    for _ in range(2):
        gradients()
    print("peak", 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def peak_bytes(case: Case, batch_size: int) -> int:
    """Returns the peak memory of a process that computes gradients."""
    argument = f"--case={json.dumps([*case, batch_size])}"
    command = [sys.executable, "-m", "benchmarks.activation_memory", argument]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return int(printed.split("peak")[1])


def main(_: list[str]) -> None:
    if CASE.value:
        *fields, batch_size = json.loads(CASE.value)
        compute_gradients(Case(*fields), batch_size)
        return
    print("| layers | width | length | recompute | MB an example | estimate, MB |")
    print("|---:|---:|---:|---|---:|---:|")
    for case in CASES:
        small, large = (peak_bytes(case, size) for size in case.sizes)
        measured = (large - small) / (case.sizes[1] - case.sizes[0])
        estimate = activation_bytes(case.config(), case.length, case.predictions, case.recompute)
        cells = [case.layers, case.width, case.length, "yes" if case.recompute else "no"]
        row = " | ".join(map(str, [*cells, f"{measured / 1e6:.1f}", f"{estimate / 1e6:.1f}"]))
        print(f"| {row} |", flush=True)


if __name__ == "__main__":
    app.run(main)
