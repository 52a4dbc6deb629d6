"""Trains the same small model in float32, bfloat16 and float16, and compares the ends.

    python -m benchmarks.precision_runs --input_file=wiki.jsonl --folder=/tmp/precision

The three runs have the same text, seed, order, masks and first weights; they come one after the
other. The table gives each one's loss over the last tenth of training and on held-out documents,
with its distance from float32's, and the seconds of training. A run that was cut off goes on when
the command is given again. What stands after `--` goes to each run:

    python -m benchmarks.precision_runs --input_file=wiki.jsonl -- --num_train_steps=20000
"""

import pathlib
import subprocess
import sys
import time

from absl import app, flags

from bert_tf.config import PRECISIONS
from bert_tf.training.metrics_log import read_metrics

INPUT = flags.DEFINE_string("input_file", None, "Text to train on.", required=True)
FOLDER = flags.DEFINE_string("folder", "/tmp/precision_runs", "Where the runs are kept.")
STEPS = flags.DEFINE_integer("num_train_steps", 2000, "Optimizer steps of a run.", lower_bound=20)
EVALUATION = "eval_metrics.jsonl"
RUN_FLAGS = """
    --do_train --do_eval --vocab_size=8192 --hidden_size=128 --num_hidden_layers=2
    --num_attention_heads=2 --intermediate_size=512 --hidden_dropout_prob=0
    --attention_probs_dropout_prob=0 --max_seq_length=64 --max_predictions_per_seq=10
    --train_batch_size=32 --eval_batch_size=64 --max_eval_steps=20 --optimizer=adamw
    --learning_rate=2e-3 --gradient_accumulation_steps=1 --save_checkpoints_steps=200
    --log_steps=20
""".split()


def train(precision: str, others: list[str]) -> float:
    """Runs one precision, or what is left of it; returns the seconds that took."""
    start = time.monotonic()
    subprocess.run(
        [
            *(sys.executable, "-m", "bert_tf.run_pretraining", *RUN_FLAGS),
            f"--input_file={INPUT.value}",
            f"--output_dir={FOLDER.value}/{precision}",
            f"--precision={precision}",
            f"--num_train_steps={STEPS.value}",
            f"--num_warmup_steps={STEPS.value // 10}",
            *others,
        ],
        check=True,
    )
    return time.monotonic() - start


def ends(precision: str) -> tuple[int, float, float]:
    """Returns the last step, the mean loss of the last tenth of the steps, and the held-out one."""
    folder = pathlib.Path(FOLDER.value, precision)
    lines = read_metrics(folder / "metrics.jsonl")
    last = lines[-1]["step"]
    losses = [line["loss"] for line in lines if line["step"] > 0.9 * last]
    return last, sum(losses) / len(losses), read_metrics(folder / EVALUATION)[-1]["loss"]


def main(arguments: list[str]) -> None:
    seconds = {precision: train(precision, arguments[1:]) for precision in PRECISIONS}
    _, *baseline = ends("float32")
    print(f"{'precision':16}{'steps':>8}{'train loss':>20}{'held-out loss':>20}{'seconds':>10}")
    for precision in PRECISIONS:
        steps, *losses = ends(precision)
        cells = [
            f"{loss:.4f} ({loss / expected - 1:+.2%})"
            for loss, expected in zip(losses, baseline, strict=True)
        ]
        print(f"{precision:16}{steps:8}{cells[0]:>20}{cells[1]:>20}{seconds[precision]:10.0f}")


if __name__ == "__main__":
    app.run(main)
