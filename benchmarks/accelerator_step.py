"""Times training steps on this machine's GPU beside PyTorch's, in one command.

    python -m benchmarks.accelerator_step

BERT-Base and Large, 128 and 512 pieces, bfloat16 products, float32 weights; forward, backward,
clipping to norm 1, AdamW; dropout 0.1; 20 predictions per 128 positions; no padding. bert_tf with
XLA beside transformers' BertForPreTraining with autocast and torch.compile. The two take turns, a
process of its own each time; a line is the median of all their steps. The share of the peak is that
of the GPU's data sheet. Without a GPU, `--tiny` shows that the command works.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

V = 30522
SIZES = {"base": (12, 768, 12, 3072), "large": (24, 1024, 16, 4096), "tiny": (2, 128, 2, 512)}
BATCHES = {("base", 128): 256, ("base", 512): 48, ("large", 128): 96, ("large", 512): 16}
WARM_UP = 3

Step = Callable[[], Any]  # does a step and waits for it


def make_batch(batch: int, length: int) -> dict[str, np.ndarray]:
    """Draws a batch without padding, under the names of bert_tf."""
    from benchmarks import training_step

    return training_step.make_batch(batch, length, predictions_of(length))


def predictions_of(length: int) -> int:
    return 20 * length // 128


def model_config(size: str) -> Any:
    from bert_tf.config import ModelConfig

    layers, width, heads, inside = SIZES[size]
    return ModelConfig(
        vocab_size=V,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inside,
    )


def bert_tf_step(size: str, batch: int, length: int) -> tuple[Step, Callable[[], int]]:
    """Returns a step of bert_tf and what tells the most bytes of the GPU that were in use."""
    import keras
    import tensorflow as tf

    from bert_tf.config import OptimizerConfig
    from bert_tf.modeling.models import BertPretrainer, pretraining_losses
    from bert_tf.optimization.optimizers import build_optimizer

    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = BertPretrainer(model_config(size))
    variables = model.trainable_variables
    optimizer = build_optimizer(OptimizerConfig(optimizer="adamw"))
    optimizer.build(variables)
    inputs = {name: tf.constant(value) for name, value in make_batch(batch, length).items()}

    @tf.function(jit_compile=True)
    def step(seed: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True, dropout_seed=seed)
            loss = sum(part.mean() for part in pretraining_losses(inputs, outputs).values())
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        optimizer.apply_summed(gradients, variables)
        return loss

    def memory() -> int:
        if not gpus:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])

    seeds = iter(range(1 << 30))
    return lambda: float(step(tf.constant(next(seeds)))), memory


def torch_step(size: str, batch: int, length: int) -> tuple[Step, Callable[[], int]]:
    """As `bert_tf_step`, of PyTorch."""
    import torch
    import transformers

    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers, width, heads, inside = SIZES[size]
    config = transformers.BertConfig(
        vocab_size=V,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inside,
    )
    model = transformers.BertForPreTraining(config).to(device).train()
    forward = torch.compile(model) if device == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    values = {k: torch.tensor(v).long().to(device) for k, v in make_batch(batch, length).items()}
    labels = torch.full((batch, length), -100, device=device)  # -100: no prediction here.
    labels.scatter_(1, values["masked_lm_positions"], values["masked_lm_ids"])
    inputs = {
        "input_ids": values["input_word_ids"],
        "attention_mask": values["input_mask"],
        "token_type_ids": values["input_type_ids"],
        "labels": labels,
        "next_sentence_label": values["next_sentence_labels"],
    }

    def step() -> float:
        with torch.autocast(device, torch.bfloat16):
            loss = forward(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def memory() -> int:
        if device == "cpu":
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return torch.cuda.max_memory_allocated()

    return step, memory


CONTESTANTS = {"bert_tf": bert_tf_step, "torch": torch_step}


def work(name: str, size: str, batch: int, length: int, steps: int) -> None:
    """Times steps in this process; prints one line of JSON."""
    step, memory = CONTESTANTS[name](size, batch, length)
    for _ in range(WARM_UP):
        step()
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "bytes": memory()}))


def ask(name: str, case: tuple[str, int, int], steps: int) -> dict[str, Any] | None:
    """Runs a contestant; None, and its last line, if it fails (no memory, not installed)."""
    size, length, batch = case
    words = [f"--worker={name}", f"--size={size}", f"--length={length}", f"--batch={batch}"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.accelerator_step", *words, f"--steps={steps}"],
        capture_output=True,
        text=True,
        cwd=pathlib.Path(__file__).resolve().parents[1],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        print(f"{name} {case}: left out: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        return None
    return json.loads(lines[-1])


def report(case: tuple[str, int, int], rounds: int, steps: int) -> None:
    """Prints a line of the table for each contestant."""
    from bert_tf.training.flops import peak_flops, training_flops

    size, length, batch = case
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTESTANTS}
    for _ in range(rounds):
        for name in CONTESTANTS:
            if answer := ask(name, case, steps):
                answers[name].append(answer)
    flops = training_flops(model_config(size), length, predictions_of(length))
    peak, _ = peak_flops("mixed_bfloat16")
    medians = {}
    for name, found in answers.items():
        if not found:
            continue
        medians[name] = statistics.median(s for answer in found for s in answer["seconds"])
        rate, memory = batch / medians[name], max(answer["bytes"] for answer in found)
        share = f"{rate * flops / peak:.0%}" if peak else "?"
        ratio = f"{medians[name] / medians['bert_tf']:.2f}" if "bert_tf" in medians else ""
        cells = (size, length, batch, name, f"{rate:.1f}", share, f"{memory / 1e9:.1f}", ratio)
        print("|", " | ".join(map(str, cells)), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2, help="Processes of each, in turn.")
    parser.add_argument("--steps", type=int, default=20, help="Timed steps of a process.")
    parser.add_argument("--tiny", action="store_true", help="Two small layers alone.")
    parser.add_argument("--worker", default="", help="Used by this program itself, as the rest.")
    parser.add_argument("--size", default="base")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    flags = parser.parse_args()
    if flags.worker:
        work(flags.worker, flags.size, flags.batch, flags.length, flags.steps)
        return
    cases = [("tiny", 128, 4)] if flags.tiny else [(*key, n) for key, n in BATCHES.items()]
    print("| | length | batch | | sequences/s | of peak | GB | step / bert_tf's |")
    print("|---|---:|---:|---|---:|---:|---:|---:|", flush=True)
    for case in cases:
        report(case, flags.rounds, flags.steps)


if __name__ == "__main__":
    main()
