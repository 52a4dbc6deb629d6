"""The same short run on one device, several, several workers, and moved between them: its losses.

    python -m benchmarks.strategies --input_file=corpus.txt --folder=/tmp/strategies

float32. Without dropout every way must give the losses of one device. With dropout a mask belongs
to a micro-batch, whichever device computes it: ways with the same number of micro-batches must
agree. The table has the largest relative difference of a step's loss.
"""

import pathlib
import shutil
import subprocess
import sys

from absl import app, flags

from bert_tf.training.metrics_log import read_metrics

INPUT = flags.DEFINE_string("input_file", "", "Text to train on.")
FOLDER = flags.DEFINE_string("folder", "", "Where the runs go.")
STEPS = flags.DEFINE_integer("steps", 12, "Steps of a run; each move comes after a third.")

RUN = {
    "do_train": True, "vocab_size": 200, "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "intermediate_size": 64, "max_seq_length": 32,
    "max_predictions_per_seq": 5, "train_batch_size": 8, "num_warmup_steps": 4,
    "learning_rate": 1e-3, "log_steps": 1, "keep_checkpoint_max": 9, "jit_compile": False,
    "num_workers": 1,
}  # fmt: skip

# Each way: the parts of the run in turn, as (workers, devices, micro-batches a device).
WAYS = {
    "two devices": [(1, 2, 1)],
    "two devices, two micro-batches each": [(1, 2, 2)],
    "two workers": [(2, 1, 1)],
    "four workers": [(4, 1, 1)],
    "one device, two devices, one": [(1, 1, 1), (1, 2, 1), (1, 1, 1)],
    "one worker, two workers, one": [(1, 1, 1), (2, 1, 1), (1, 1, 1)],
}
WITH_DROPOUT = {  # Four micro-batches in all.
    "two devices, two micro-batches each": [(1, 2, 2)],
    "two workers, two micro-batches each": [(2, 1, 2)],
    "four workers": [(4, 1, 1)],
    "one device, two workers, one": [(1, 1, 4), (2, 1, 2), (1, 1, 4)],
}


def run(folder: pathlib.Path, parts: list[tuple[int, int, int]], dropout: float) -> list[float]:
    """Does a run in parts; returns the loss of every step."""
    steps = STEPS.value
    for index, (workers, devices, micro_batches) in enumerate(parts):
        begin = steps * index // len(parts)
        for path in folder.glob("model.ckpt-*.index"):  # Go on from here.
            if int(path.stem.split("-")[1]) > begin:
                path.unlink()
        given = {
            **RUN, "input_file": INPUT.value, "output_dir": folder, "num_train_steps": steps,
            "cache_dir": folder.parent / "cache", "save_checkpoints_steps": max(1, steps // 3),
            "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout,
            "gradient_accumulation_steps": micro_batches,
        }  # fmt: skip
        if devices > 1:
            given |= {"distribution": "mirrored", "num_devices": devices}
        launcher = ["bert_tf.launch", f"--local_workers={workers}", "--"] if workers > 1 else []
        words = [f"--{name}={value}" for name, value in given.items()]
        command = [sys.executable, "-m", *launcher, "bert_tf.run_pretraining", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return [line["loss"] for line in read_metrics(folder / "metrics.jsonl")]


def main(_: list[str]) -> None:
    folder = pathlib.Path(FOLDER.value)
    shutil.rmtree(folder, ignore_errors=True)
    print("| | dropout | largest relative difference |\n|---|---:|---:|", flush=True)
    for dropout, ways in ((0.0, WAYS), (0.1, WITH_DROPOUT)):
        alone = [(1, 1, 4 if dropout else 1)]
        expected = run(folder / f"one-{dropout}", alone, dropout)
        for index, (name, parts) in enumerate(ways.items()):
            losses = run(folder / f"{dropout}-{index}", parts, dropout)
            worst = max(abs(a / b - 1.0) for a, b in zip(losses, expected, strict=True))
            print(f"| {name} | {dropout} | {worst:.1e} |", flush=True)


if __name__ == "__main__":
    app.run(main)
