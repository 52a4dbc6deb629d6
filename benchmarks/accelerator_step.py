"""Times steps on one GPU: of BERT-Base, by part, in each form of attention, and its SavedModel.

  python -m benchmarks.accelerator_step --minutes=8 --output=gpu.jsonl

The parts come in the order of their worth; each is a process of its own, and its line is written as
soon as it is measured, so that the command can be cut off. A part that would not end in time is
left out. `share` is that of the data sheet's peak; `first_s` is the first step, compiled; `cpu_ms`
and `difference` compare a SavedModel on the CPU. With --small the shapes fit a CPU: only the
command itself is tried.
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
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.training_step import V, make_batch, pack_halves, whole_step

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
    "base, 128, packed rows": {**BASE, "kind": "packed rows"},
    "base, 128, classifier": {**BASE, "batch": 128, "kind": "classifier"},
    "base, 128, SavedModel": {**BASE, "batch": 32, "kind": "SavedModel"},
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
    kind: str = "",
) -> dict[str, Any]:
    """Returns the times of a step, its rate and share of the peak, and three losses."""
    import keras

    from bert_tf import BertClassifier
    from bert_tf.config import ModelConfig
    from bert_tf.pretraining.masked_words.model import BertPretrainer
    from bert_tf.training.flops import peak_flops, training_flops

    keras.utils.set_random_seed(1)
    keras.mixed_precision.set_global_policy(precision)
    arrays = make_batch(batch, length, predictions)
    losses_of = None
    if kind == "classifier":
        model = BertClassifier(ModelConfig(**config), num_labels=2)
        predictions = 0

        def losses_of(tensors: Any, outputs: Any) -> dict[str, Any]:
            labels = tensors["next_sentence_labels"]
            return {"classes": model.task_loss(tensors, labels, outputs, None)}

    else:
        model = BertPretrainer(ModelConfig(**config))
    if kind == "packed rows":
        arrays = pack_halves(arrays)
        length //= 2
    step = whole_step(model, arrays, attention=attention, losses_of=losses_of)
    median, first, losses = time_calls(step, steps)
    rate = batch * training_flops(model.config, length, predictions) / median
    peak, _ = peak_flops(precision)
    return {
        "ms": round(1e3 * median, 2),
        "tokens_s": round(batch * length / median),
        "share": round(rate / peak, 3) if peak else None,
        "first_s": round(first, 1),
        "losses": losses[:3],
    }


def time_calls(call: Callable[[], Any], count: int) -> tuple[float, float, list[Any]]:
    """Returns the median seconds of calls, those of the first, and what they returned."""
    seconds, results = [], []
    for _ in range(count + 1):
        start = time.perf_counter()
        results.append(call())
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:]), seconds[0], results


def time_saved_model(
    length: int, batch: int, predictions: int, config: dict[str, Any], steps: int = 30
) -> dict[str, Any]:
    """Returns the times of the ids model of a classifier, and how its answers on the CPU differ."""
    import tensorflow as tf

    from bert_tf import BertClassifier, BertPreprocessor
    from bert_tf.config import ModelConfig

    arrays = make_batch(batch, length, predictions)
    inputs = {name: tf.constant(arrays[name]) for name in arrays if name.startswith("input_")}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "vocab.txt")
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(V - 5))]
        path.write_text("\n".join(tokens), encoding="utf8")
        preprocessor = BertPreprocessor(str(path), do_lower_case=True, max_seq_length=length)
        model = BertClassifier(ModelConfig(**config), num_labels=2, preprocessor=preprocessor)
        exported = model.export(pathlib.Path(folder, "model"), max_seq_length=length)[-1]
        found = []
        for device in (None, "CPU:0"):
            with tf.device(device):
                answer = tf.saved_model.load(str(exported)).signatures["serving_default"]
                found.append(
                    time_calls(lambda run=answer: run(**inputs)["probabilities"].numpy(), steps)
                )
    (median, first, answers), (on_cpu, _, expected) = found
    return {
        "ms": round(1e3 * median, 2),
        "tokens_s": round(batch * length / median),
        "first_s": round(first, 1),
        "cpu_ms": round(1e3 * on_cpu, 2),
        "difference": float(np.max(np.abs(answers[0] - expected[0]))),
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
        measured = time_step
        if options.get("kind") == "SavedModel":
            del options["kind"]
            measured = time_saved_model
        print(json.dumps(measured(**options, config=config)))
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
