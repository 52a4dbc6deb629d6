"""Compares the orders in which tokens are predicted: equal time, held-out loss by each.

    python -m benchmarks.prediction_orders --output_dir=/tmp/orders --steps=800

The model is the quickstart's, on the text that came with Python. `masked_lm` trains for --steps;
an objective whose step takes longer trains for fewer. Every model is then evaluated by every
measure. A second call continues where the first was stopped.
"""

import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app, flags

from benchmarks.timing import in_turn, measure, print_table
from bert_tf.config import MaskingConfig, ModelConfig
from bert_tf.corpus.mask_draws import MaskDraws
from bert_tf.corpus.masking import mask_batch
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.text.kinds import read_vocabulary_in

OUTPUT = flags.DEFINE_string("output_dir", "/tmp/orders", "Folder of the runs.")
STEPS = flags.DEFINE_integer("steps", 800, "Steps of masked_lm.", lower_bound=20)

OBJECTIVES = {
    "masked_lm": [],
    "causal share 1/16": ["--masking_options=causal_share=0.0625"],
    "causal share 1/2": ["--masking_options=causal_share=0.5"],
    "permuted_lm": ["--objective=permuted_lm"],
    "masked_permuted_lm": ["--objective=masked_permuted_lm"],
}
# The flags and the result of each measure.
MEASURES = {
    "masked": ([], "masked_lm_loss"),
    "left to right": (["--masking_options=causal_share=1"], "causal_nats"),
    "permuted": (["--objective=permuted_lm"], "masked_lm_loss"),
}
BATCH, LENGTH = 64, 64  # Of the quickstart.


def folder_of(*names: str) -> pathlib.Path:
    return pathlib.Path(OUTPUT.value, "-".join(names).replace(" ", "_").replace("/", "_"))


def command(folder: pathlib.Path, *options: str) -> list[str]:
    """Returns the command of a run of the quickstart's model."""
    program = [sys.executable, "-m", "bert_tf.run_pretraining"]
    return [
        *program,
        "--flagfile=configs/quickstart.flags",
        "--precision=mixed_bfloat16",
        "--eval_steps=0",
        "--show_masks=",
        f"--cache_dir={OUTPUT.value}/cache",
        f"--output_dir={folder}",
        *options,
    ]


def training(steps: int) -> list[str]:
    """Returns the flags of a schedule of this many steps."""
    return [
        f"--train_for={steps}",
        f"--num_warmup_steps={max(1, steps // 20)}",
        f"--cooldown={steps // 2}",
        "--do_eval=false",
    ]


def step_costs(folder: pathlib.Path) -> dict[str, float]:
    """Returns the time of forward and backward pass of each objective beside `masked_lm`.

    They are compiled by XLA and timed in turn, on random tokens.
    """
    vocab = read_vocabulary_in(folder)
    config = ModelConfig.read(folder / "bert_config.json")
    draw = np.random.default_rng(0)
    rows = {
        "input_word_ids": draw.integers(10, len(vocab), (BATCH, LENGTH)).astype(np.int32),
        "input_mask": np.ones((BATCH, LENGTH), np.int32),
        "input_type_ids": np.zeros((BATCH, LENGTH), np.int32),
    }
    numbers = tf.range(BATCH, dtype=tf.int64)
    masking = MaskingConfig(masked_lm_prob=0.25, max_predictions_per_seq=16)
    calls = {}
    for name, options in OBJECTIVES.items():
        objective = "masked_lm"
        if options and options[0].startswith("--objective="):
            objective = options[0].removeprefix("--objective=")
        model = BertPretrainer(
            config,
            use_next_sentence=False,
            use_pooler=False,
            objective=objective,
        )
        mask = model.objectives[0].mask_batch or mask_batch
        tensors = {key: tf.constant(values) for key, values in rows.items()}
        batch = mask(tensors, MaskDraws(numbers, numbers * 0, vocab, masking, seed=1))
        calls[name] = make_pass(model, batch)
    taken = in_turn(calls, 7)
    base = taken["masked_lm"][0]
    return {name: seconds / base for name, (seconds, _) in taken.items()}


def make_pass(model: BertPretrainer, batch: dict[str, tf.Tensor]) -> Callable[[], Any]:
    """Returns a call that computes the loss of a batch and its gradients."""

    @tf.function(jit_compile=True)
    def compute() -> Any:
        with tf.GradientTape() as tape:
            outputs = model(batch, training=True)
            loss = sum(part.mean() for part in model.objective_losses(batch, outputs).values())
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        return sum(tf.reduce_sum(gradient) for gradient in gradients)

    return lambda: compute().numpy()


def train(name: str, steps: int) -> pathlib.Path:
    folder = folder_of(name)
    if not (folder / "done").exists():
        measure(command(folder, *training(steps), *OBJECTIVES[name]), folder_of(name, "log"))
        (folder / "done").touch()
    return folder


def evaluate(name: str, measured: str) -> float:
    """Returns the held-out loss of a trained model by a measure."""
    folder = folder_of(name, "by", measured)
    results = folder / "eval_results.txt"
    if not results.exists():
        options, _ = MEASURES[measured]
        start = ["--do_train=false", f"--init_checkpoint={folder_of(name)}"]
        measure(command(folder, *start, "--train_for=1", *options))
    values = dict(line.split(" = ") for line in results.read_text().splitlines())
    return float(values[MEASURES[measured][1]])


def main(_: list[str]) -> None:
    pathlib.Path(OUTPUT.value).mkdir(parents=True, exist_ok=True)
    costs = step_costs(train("masked_lm", STEPS.value))

    def row(name: str) -> list[str]:
        cost = costs[name]
        steps = round(STEPS.value / cost)
        train(name, steps)
        losses = [f"{evaluate(name, measured):.3f}" for measured in MEASURES]
        return [name, f"{cost:.2f}", f"{steps}", *losses]

    heads = ["objective", "cost of a step", "steps", *MEASURES]
    print_table(heads, map(row, OBJECTIVES))


if __name__ == "__main__":
    app.run(main)
