"""Times the pre-training step of a small model with a normal and with a large vocabulary.

    python -m benchmarks.large_vocabulary

4 layers x 256, batch 32 x 128, 20 predictions an example: forward, backward, clipping, update.
Every row is one process, so that its peak memory is its own; medians of the steps after two that
warm up. On a machine that does other work as well, compare the processor seconds.
"""

import json
import resource
import subprocess
import sys
from typing import Any

from absl import app, flags

from benchmarks.timing import in_turn, print_table

CASE = flags.DEFINE_string("case", "", "Used by this program itself.")
STEPS = flags.DEFINE_integer("steps", 5, "Steps that are timed.")
PRECISIONS = flags.DEFINE_list("precisions", ["float32", "mixed_bfloat16"], "Keras' policies.")
SIZES = (30522, 250037)
WHOLE = 1 << 30  # No vocabulary is so large that its losses are computed in chunks.


def measure_case(vocab_size: int, precision: str, in_chunks: bool) -> None:
    """Prints the seconds of a step and this process's peak memory in MB, as JSON."""
    import keras

    from benchmarks.training_step import make_batch, whole_step
    from bert_tf.config import ModelConfig
    from bert_tf.pretraining.masked_words.model import BertPretrainer
    from bert_tf.pretraining.objectives import masked_lm

    if not in_chunks:
        masked_lm.LARGE_VOCABULARY = WHOLE
    keras.mixed_precision.set_global_policy(precision)
    config = ModelConfig(
        vocab_size=vocab_size,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
    )
    step = whole_step(BertPretrainer(config), make_batch(), in_parts=precision != "float32")
    for _ in range(2):
        step()
    taken = in_turn({"step": step}, STEPS.value)["step"]
    peak_mb = 1.024e-3 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([*taken, peak_mb]))


def main(_: list[str]) -> None:
    if CASE.value:
        measure_case(*json.loads(CASE.value))
        return
    rows = []
    for precision in PRECISIONS.value:
        for size, in_chunks in ((SIZES[0], False), (SIZES[1], False), (SIZES[1], True)):
            cells = run_case(size, precision, in_chunks)
            rows.append([size, precision, "yes" if in_chunks else "no", *cells])
    print_table(["tokens", "precision", "in chunks", "s/step", "processor s", "peak MB"], rows)


def run_case(*case: Any) -> list[str]:
    """Measures a case in a new process and returns the cells of its numbers."""
    command = [sys.executable, "-m", "benchmarks.large_vocabulary", f"--case={json.dumps(case)}"]
    command.append(f"--steps={STEPS.value}")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, processor_seconds, peak_mb = json.loads(done.stdout.splitlines()[-1])
    return [f"{seconds:.2f}", f"{processor_seconds:.2f}", f"{peak_mb:,.0f}"]


if __name__ == "__main__":
    app.run(main)
