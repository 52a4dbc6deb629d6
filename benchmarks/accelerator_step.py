"""Times training steps on one GPU: of BERT-Base, by part, in each form of attention.

  python -m benchmarks.accelerator_step --minutes=8 --output=gpu.jsonl

The parts come in the order of their worth; each is a process of its own, and its line is written as
soon as it is measured, so that the command can be cut off. A part that would not end in time is
left out. `share` is that of the data sheet's peak; `first_s` is the first step, compiled. With
--small the shapes fit a CPU: only the command itself is tried.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks.training_step import make_batch, whole_step

BASE: dict[str, Any] = {"length": 128, "batch": 512, "predictions": 20}
LONG: dict[str, Any] = {"length": 512, "batch": 128, "predictions": 77}
# The modern recipe, and the only one of the fused kernel.
NO_DROPOUT = {"attention_probs_dropout_prob": 0.0}
MODERN = {
    **NO_DROPOUT,
    "hidden_dropout_prob": 0.0,
    "num_hidden_layers": 22,
    "intermediate_size": 1152,
    "gated_feed_forward": True,
    "position_type": "rotary",
    "block_type": "pre_norm",
    "local_attention": 128,
    "global_attention_every": 3,
    "max_position_embeddings": 1024,
    "biases": "none",
}
PARTS: dict[str, dict[str, Any]] = {
    "base, 128": BASE,
    "base, 512": LONG,
    "base, 128, fused": {**BASE, "attention": "fused", "config": NO_DROPOUT},
    "base, 512, fused": {**LONG, "attention": "fused", "config": NO_DROPOUT},
    "base, 128, no dropout of attention": {**BASE, "config": NO_DROPOUT},
    "base, 512, no dropout of attention": {**LONG, "config": NO_DROPOUT},
    "base, 128, by heads": {**BASE, "attention": "by_heads"},
    # A layer is half of their difference; the rest is head, embeddings and update.
    "2 layers, 128": {**BASE, "config": {"num_hidden_layers": 2}},
    "4 layers, 128": {**BASE, "config": {"num_hidden_layers": 4}},
    # The second run finds the first one's programs.
    "base, 128, writes the cache": {**BASE, "cache": True},
    "base, 128, reads the cache": {**BASE, "cache": True},
    "base, 128, float16": {**BASE, "precision": "mixed_float16"},
    "ModernBERT-base, 1024": {"length": 1024, "batch": 64, "predictions": 307, "config": MODERN},
    "4 layers, 128, float32": {**BASE, "precision": "float32", "config": {"num_hidden_layers": 4}},
}
SMALL = {"length": 16, "batch": 2, "predictions": 2}
SMALL_CONFIG = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 32}


def time_step(
    length: int,
    batch: int,
    predictions: int,
    config: dict[str, Any],
    attention: str = "plain",
    precision: str = "mixed_bfloat16",
    steps: int = 30,
) -> dict[str, Any]:
    """Returns the times of a step, its rate and share of the peak, and three losses."""
    import keras

    from bert_tf.config import ModelConfig
    from bert_tf.pretraining.masked_words.model import BertPretrainer
    from bert_tf.training.flops import peak_flops, training_flops

    keras.utils.set_random_seed(1)
    keras.mixed_precision.set_global_policy(precision)
    model = BertPretrainer(ModelConfig(**config))
    step = whole_step(model, make_batch(batch, length, predictions), attention=attention)
    start = time.perf_counter()
    losses = [step()]
    first = time.perf_counter() - start
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    rate = batch * training_flops(model.config, length, predictions) / median
    peak, _ = peak_flops(precision)
    return {
        "ms": round(1e3 * median, 2),
        "tokens_s": round(batch * length / median),
        "share": round(rate / peak, 3) if peak else None,
        "first_s": round(first, 1),
        "losses": losses[:3],
    }


def run_part(name: str, is_small: bool, folder: str, seconds: float) -> dict[str, Any]:
    """Measures a part in another process; returns its line, or its error."""
    flags = os.environ.get("TF_XLA_FLAGS", "")
    if PARTS[name].get("cache"):
        flags += f" --tf_xla_persistent_cache_directory={folder}"
    command = [sys.executable, "-m", "benchmarks.accelerator_step", f"--part={name}"]
    try:
        done = subprocess.run(
            [*command, *(["--small"] if is_small else [])],
            capture_output=True,
            text=True,
            timeout=seconds,
            env={**os.environ, "TF_XLA_FLAGS": flags.strip()},
        )
    except subprocess.TimeoutExpired:
        return {"part": name, "error": f"not done in {seconds:.0f} s"}
    if done.returncode:
        return {"part": name, "error": done.stderr.strip().splitlines()[-1][:300]}
    return {"part": name, **json.loads(done.stdout.splitlines()[-1])}


def main() -> None:
    """Measures all parts, or in another process the one of --part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=8.0, help="Time for all parts.")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("gpu.jsonl"))
    parser.add_argument("--part", choices=PARTS, help="Measures this part alone.")
    parser.add_argument("--small", action="store_true", help="Shapes for a CPU.")
    given = parser.parse_args()
    if given.part:
        options = {key: value for key, value in PARTS[given.part].items() if key != "cache"}
        config = options.pop("config", {})
        if given.small:
            options |= {**SMALL, "steps": 2}
            config = {**config, **SMALL_CONFIG, "num_hidden_layers": 1}
        print(json.dumps(time_step(**options, config=config)))
        return
    end = time.monotonic() + 60 * given.minutes
    with given.output.open("w") as file, tempfile.TemporaryDirectory() as folder:
        for name in PARTS:
            left = end - time.monotonic()
            if left < 5:
                break
            line = json.dumps(run_part(name, given.small, folder, left))
            print(line, flush=True)
            print(line, file=file, flush=True)


if __name__ == "__main__":
    main()
