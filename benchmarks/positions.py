"""Trains one small model with each position scheme at one length and judges it at longer ones.

    python -m benchmarks.positions --input_file='books/*.txt' --output_dir=/tmp/positions \\
        --plot=docs/positions.png

Data, steps, seeds, rate are the same; only the position_type differs. Each run is that of
`run_pretraining`, its evaluations too: masked pieces of the held-out documents in rows of 128, 256,
512 and 1,024 pieces. A learned table has no rows beyond those that it was trained with. A second
call goes on where the first was stopped. The rates are those of forward and backward passes of the
same networks, under XLA, taken in turn.
"""

import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import tensorflow as tf
from absl import app, flags

from benchmarks.timing import in_turn, print_table
from benchmarks.training_step import make_batch
from bert_tf.config import TABLE_POSITIONS
from bert_tf.pretraining.masked_words.model import BertPretrainer

INPUT = flags.DEFINE_string("input_file", None, "Text; see run_pretraining.", required=True)
OUTPUT = flags.DEFINE_string("output_dir", "/tmp/positions", "Folder of the runs.")
STEPS = flags.DEFINE_integer("num_train_steps", 1500, "Steps of each run.")
BLOCK = flags.DEFINE_string("block_type", "pre_norm", "Form of the layers.")
PLOT = flags.DEFINE_string("plot", "", "Picture to draw.")

SCHEMES = (
    "learned",
    "sinusoidal",
    "rotary",
    "alibi",
    "relative",
    "learned_relative",
    "disentangled",
    "transformer_xl",
)
TRAINED, LENGTHS = 128, (128, 256, 512, 1024)
PREDICTED = 0.15
SHAPE = (
    "--vocab_size=8192 --hidden_size=192 --num_hidden_layers=4 --num_attention_heads=3 "
    "--intermediate_size=384 "
    "--model_options=gated_feed_forward=true,biases=output,hidden_act=gelu_exact "
    f"--pairs=none --hidden_dropout_prob=0 --attention_probs_dropout_prob=0 "
    f"--max_position_embeddings={TRAINED} --eval_fraction=0.1"
).split()
RECIPE = (
    "--do_train --train_batch_size=32 --optimizer=adamw --learning_rate=2e-3 "
    "--optimizer_options=adam_beta_2=0.98 "
    "--num_warmup_steps=150 --save_checkpoints_steps=500 --log_steps=50"
).split()


def run(scheme: str, length: int, *options: str) -> None:
    """Runs `run_pretraining` on rows of a length, in the folder of the scheme."""
    sizes = [
        f"--max_seq_length={length}",
        f"--max_predictions_per_seq={round(PREDICTED * length) + 1}",
        f"--input_file={INPUT.value}",
        f"--output_dir={folder_of(scheme)}",
        f"--model_options=position_type={scheme},block_type={BLOCK.value}",
    ]
    program = [sys.executable, "-m", "bert_tf.run_pretraining"]
    subprocess.run([*program, *SHAPE, *sizes, *options], check=True)


def folder_of(scheme: str) -> pathlib.Path:
    return pathlib.Path(OUTPUT.value, scheme)


def judge(scheme: str, length: int) -> dict[str, float]:
    """Returns the results of the evaluation in rows of a length, which is made if there is none."""
    path = folder_of(scheme) / f"judged-{length}.json"
    if not path.exists():
        batch = max(1, 64 * TRAINED // length)
        run(scheme, length, "--do_eval", f"--eval_batch_size={batch}", "--max_eval_steps=40")
        lines = (folder_of(scheme) / "eval_results.txt").read_text().splitlines()
        values = dict(line.split(" = ") for line in lines)
        path.write_text(json.dumps({name: float(value) for name, value in values.items()}))
    return json.loads(path.read_text())


def rates() -> dict[str, float]:
    """Returns pieces a second, forward and backward, of each scheme."""
    calls = {scheme: make_pass(folder_of(scheme)) for scheme in SCHEMES}
    return {name: 32 * TRAINED / seconds for name, (seconds, _) in in_turn(calls, 5).items()}


def make_pass(folder: pathlib.Path) -> Callable[[], Any]:
    """Returns a call that computes a run's model and its gradients on a batch."""
    model = BertPretrainer.from_pretrained(folder)
    values = make_batch(32, TRAINED, 20)
    batch = {name: tf.constant(value) for name, value in values.items()}
    batch["input_word_ids"] %= model.config.vocab_size
    batch["masked_lm_ids"] %= model.config.vocab_size

    @tf.function(jit_compile=True)
    def compute() -> Any:
        with tf.GradientTape() as tape:
            losses = model.objective_losses(batch, model(batch, training=True)).values()
            loss = sum(part.mean() for part in losses)
        return tape.gradient(loss, [v.value for v in model.trainable_variables])[-1]

    return lambda: compute().numpy()


def main(_: list[str]) -> None:
    losses: dict[str, list[float]] = {}
    for scheme in SCHEMES:
        run(scheme, TRAINED, *RECIPE, f"--num_train_steps={STEPS.value}")
        lengths = LENGTHS[:1] if scheme in TABLE_POSITIONS else LENGTHS
        losses[scheme] = [judge(scheme, length)["masked_lm_loss"] for length in lengths]
    rows, measured = [], rates()
    for scheme, values in losses.items():
        cells = [f"{value:.3f}" for value in values] + ["-"] * (len(LENGTHS) - len(values))
        rows.append([scheme, *cells, f"{measured[scheme]:,.0f}"])
    print_table(["positions", *map(str, LENGTHS), "pieces/s"], rows)
    if PLOT.value:
        figure, axes = plt.subplots(figsize=(6, 4))
        for scheme, values in losses.items():
            axes.plot(LENGTHS[: len(values)], values, "o-", label=scheme)
        axes.set_xscale("log", base=2)
        axes.set_xticks(LENGTHS, map(str, LENGTHS))
        axes.set(xlabel="pieces in a row", ylabel="MLM loss, held out (nats)")
        axes.set_title(f"Trained with rows of {TRAINED}")
        axes.legend()
        axes.grid(alpha=0.3)
        figure.tight_layout()
        figure.savefig(PLOT.value, dpi=120)


if __name__ == "__main__":
    app.run(main)
