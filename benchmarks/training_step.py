"""Times one pre-training step beside keras-hub's and Model Garden's, and a plain matrix product.

  python -m benchmarks.training_step --garden_python=/path/to/garden/bin/python

4 layers x 512 (8 heads, 2,048 inside), batch 32 x 128, 20 predictions, vocabulary 30,522, dropout
0.1: forward, backward, clipping, update. In float32 under XLA; in bfloat16 without, which is faster
on a CPU, and with bert_tf's parts compiled. Every contestant is a process of its own that makes one
step when asked; they are asked in turn, so that a change of the machine's load or clock meets them
alike. Medians over the rounds. Peers that are not installed are left out.

keras-hub's BertMaskedLM trains no next-sentence head and clips no gradients: it does less.
"""

import argparse
import functools
import itertools
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.timing import print_table

B, T, P, V = 32, 128, 20, 30522
D, F, L, N = 512, 2048, 4, 8
MATRIX = 2048  # the plain product is [2048, 2048] x [2048, 2048]


def step_flops() -> float:
    """Counts the products of forward and backward: three times the forward's."""
    layer = 2 * B * T * (4 * D * D + 2 * D * F) + 4 * B * T * T * D
    heads = 2 * B * P * D * (D + V) + 2 * B * D * D
    return 3.0 * (L * layer + heads)


def make_batch(batch: int = B, length: int = T, predictions: int = P) -> dict[str, np.ndarray]:
    """Draws a batch of examples without padding, of so many positions and predictions."""
    draw = np.random.default_rng(0)
    shape, predicted = (batch, length), (batch, predictions)
    is_second = np.arange(length)[None] > length // 2
    return {
        "input_word_ids": draw.integers(0, V, shape).astype(np.int32),
        "input_mask": np.ones(shape, np.int32),
        "input_type_ids": np.repeat(is_second, batch, 0).astype(np.int32),
        "masked_lm_positions": np.sort(draw.integers(0, length, predicted), 1).astype(np.int32),
        "masked_lm_ids": draw.integers(0, V, predicted).astype(np.int32),
        "masked_lm_weights": np.ones(predicted, np.float32),
        "next_sentence_labels": draw.integers(0, 2, batch).astype(np.int32),
        "next_sentence_weights": np.ones(batch, np.float32),
    }


def model_config() -> Any:
    from bert_tf.config import ModelConfig

    return ModelConfig(
        hidden_size=D, num_hidden_layers=L, num_attention_heads=N, intermediate_size=F
    )


def pack_halves(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the first halves of the texts of a batch, two in each row of attention."""
    count, length = batch["input_mask"].shape
    half = length // 2
    places = np.arange(count * length, dtype=np.int32).reshape(count, length)
    return {
        **batch,
        "input_mask": np.repeat([[1] * half + [0] * (length - half)], count, 0).astype(np.int32),
        "masked_lm_positions": batch["masked_lm_positions"] // 2,
        "packed_positions": places[:, :half].reshape(count // 2, 2 * half),
        "packed_starts": half * np.arange(count, dtype=np.int32),
    }


def whole_step(
    model: Any,
    batch: dict[str, np.ndarray],
    in_parts: bool = False,
    attention: str = "plain",
    losses_of: Callable[..., Any] | None = None,
) -> Callable[[], Any]:
    """Returns a training step of bert_tf on one batch, compiled by XLA, or its parts.

    `attention` is a form of `bert_tf/network/attention_form.py`; `losses_of` returns the losses of
    a batch and outputs by name, of pre-training if None.
    """
    import tensorflow as tf

    from bert_tf.config import OptimizerConfig
    from bert_tf.network.attention_form import attention_form
    from bert_tf.network.xla_region import compile_xla_regions
    from bert_tf.training.optimizers import build_optimizer

    variables = model.trainable_variables
    optimizer = build_optimizer(OptimizerConfig())
    optimizer.build(variables)
    optimizer.jit_compile = in_parts
    tensors = {name: tf.constant(value) for name, value in batch.items()}
    losses_of = losses_of or model.objective_losses

    @tf.function(jit_compile=not in_parts)
    def step(seed: tf.Tensor) -> tf.Tensor:
        with compile_xla_regions(in_parts), attention_form(attention):
            with tf.GradientTape() as tape:
                outputs = model(tensors, training=True, dropout_seed=seed)
                loss = sum(part.mean() for part in losses_of(tensors, outputs).values())
            # The backward pass has regions as well.
            gradients = tape.gradient(loss, [variable.value for variable in variables])
        optimizer.apply_summed([tf.convert_to_tensor(g) for g in gradients], variables)
        return loss

    seeds = itertools.count()
    return lambda: float(step(tf.constant(next(seeds))))


def bert_tf_step() -> Callable[[], Any]:
    from bert_tf.pretraining.masked_words.model import BertPretrainer

    return whole_step(BertPretrainer(model_config()), make_batch())


def bert_tf_bfloat16_step() -> Callable[[], Any]:
    import keras

    from bert_tf.pretraining.masked_words.model import BertPretrainer

    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    return whole_step(BertPretrainer(model_config()), make_batch(), in_parts=True)


def keras_hub_bfloat16_step() -> Callable[[], Any]:
    return keras_hub_step("mixed_bfloat16", jit_compile=False)


def keras_hub_step(policy: str = "float32", jit_compile: bool = True) -> Callable[[], Any]:
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    import keras_hub

    keras.mixed_precision.set_global_policy(policy)
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=V, num_layers=L, num_heads=N, hidden_dim=D, intermediate_dim=F, dropout=0.1
    )
    model = keras_hub.models.BertMaskedLM(backbone=backbone, preprocessor=None)
    model.compile(
        optimizer=keras.optimizers.AdamW(1e-4),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    batch = make_batch()
    inputs = {
        "token_ids": batch["input_word_ids"],
        "padding_mask": batch["input_mask"],
        "segment_ids": batch["input_type_ids"],
        "mask_positions": batch["masked_lm_positions"],
    }
    labels, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
    return lambda: float(np.ravel(model.train_on_batch(inputs, labels, weights))[0])


def garden_step() -> Callable[[], Any]:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf
    from official.nlp import optimization
    from official.nlp.modeling import layers, models, networks

    encoder = networks.BertEncoderV2(
        vocab_size=V, hidden_size=D, num_layers=L, num_attention_heads=N, inner_dim=F
    )
    head = layers.ClassificationHead(inner_dim=D, num_classes=2, name="next_sentence")
    model = models.BertPretrainerV2(encoder, classification_heads=[head])
    optimizer = optimization.create_optimizer(1e-4, 100000, 10000)
    batch = {name: tf.constant(value) for name, value in make_batch().items()}
    model(batch)
    variables = model.trainable_variables
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits

    @tf.function(jit_compile=True)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            outputs = model(batch, training=True)
            masked = cross_entropy(batch["masked_lm_ids"], outputs["mlm_logits"])
            weights = batch["masked_lm_weights"]
            loss = tf.reduce_sum(masked * weights) / tf.reduce_sum(weights)
            following = cross_entropy(batch["next_sentence_labels"], outputs["next_sentence"])
            loss += tf.reduce_mean(following)
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    return lambda: float(step())


def numpy_product() -> Callable[[], Any]:
    matrix = np.random.default_rng(0).random((MATRIX, MATRIX), np.float32)
    return lambda: matrix @ matrix


def tensorflow_product(dtype: str = "float32") -> Callable[[], Any]:
    import tensorflow as tf

    matrix = tf.cast(tf.random.uniform((MATRIX, MATRIX)), dtype)
    return lambda: tf.matmul(matrix, matrix).numpy()


STEPS = {
    "bert_tf": bert_tf_step,
    "keras_hub": keras_hub_step,
    "garden": garden_step,
    "bert_tf, bfloat16": bert_tf_bfloat16_step,
    "keras_hub, bfloat16": keras_hub_bfloat16_step,
}
PRODUCTS = {
    "numpy": numpy_product,
    "tensorflow": tensorflow_product,
    "tensorflow, bfloat16": functools.partial(tensorflow_product, "bfloat16"),
}


def work(make_step: Callable[[], Callable[[], Any]]) -> None:
    """Runs one contestant: warms up, then makes a step for every line read."""
    reply, sys.stdout = sys.stdout, sys.stderr
    step = make_step()
    for _ in range(2):
        step()
    print("ready", file=reply, flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        step()
        print(time.perf_counter() - start, file=reply, flush=True)


class Contestant:
    """A process that makes a step on request; `seconds` collects the times."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name, self.seconds = name, list[float]()
        self.process = subprocess.Popen(
            [*command, f"--worker={name}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[1])},
        )
        self.is_ready = self.process.stdout.readline() == "ready\n"

    def run(self) -> None:
        """Makes one step and keeps its time."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.seconds.append(float(self.process.stdout.readline()))

    def close(self) -> str:
        """Ends the process and returns the last line of its errors."""
        lines = self.process.communicate()[1].strip().splitlines()
        return lines[-1] if lines else ""


def compete(commands: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """Starts the contestants and returns the median seconds of each that works."""
    contestants = []
    for name, command in commands.items():
        contestant = Contestant(name, command)
        if contestant.is_ready:
            contestants.append(contestant)
        else:
            print(f"{name}: left out: {contestant.close()}")
    for _ in range(rounds):
        for contestant in contestants:
            contestant.run()
    for contestant in contestants:
        contestant.close()
    return {c.name: statistics.median(c.seconds) for c in contestants}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11, help="Steps of each contestant.")
    parser.add_argument("--garden_python", default="", help="Python that has tf-models-official.")
    parser.add_argument("--worker", default="", help="Used by this program itself.")
    flags = parser.parse_args()
    if flags.worker:
        work({**STEPS, **PRODUCTS}[flags.worker])
        return
    commands = {name: [sys.executable, __file__] for name in (*STEPS, *PRODUCTS)}
    commands["garden"] = [flags.garden_python or sys.executable, __file__]
    medians = compete(commands, flags.rounds)
    rates = {name: 2 * MATRIX**3 / medians[name] / 1e9 for name in PRODUCTS if name in medians}
    print(
        f"plain product of {MATRIX} x {MATRIX}:", {k: f"{v:.0f} GFLOP/s" for k, v in rates.items()}
    )
    rows = []
    for name in STEPS:
        if name not in medians:
            continue
        rate = step_flops() / medians[name] / 1e9
        is_half = "bfloat16" in name
        best = max(rate for product, rate in rates.items() if ("bfloat16" in product) == is_half)
        row = [name, f"{medians[name]:.3f}", f"{rate:.0f}", f"{rate / best:.0%}"]
        rows.append([*row, f"{medians[name] / medians['bert_tf']:.2f}x"])
    print_table(["", "s/step", "GFLOP/s", "of the best plain product", "bert_tf is"], rows)


if __name__ == "__main__":
    main()
