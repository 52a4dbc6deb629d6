"""Kills workers at chosen and random moments: when do the others end, and does the restart go on?

    python -m benchmarks.lost_workers --input_file=corpus.txt --folder=/tmp/lost --workers=2

Every trial starts a small pre-training run, kills one worker with SIGKILL, waits for the others,
starts all again and compares the metrics and the evaluation with those of a run that nobody
disturbed, byte for byte. The table has a line a trial.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

from absl import app, flags

from bert_tf.hosts import tf_config
from bert_tf.launch import free_ports

INPUT = flags.DEFINE_string("input_file", "", "Text to train on.")
FOLDER = flags.DEFINE_string("folder", "", "Where the runs go.")
WORKERS = flags.DEFINE_integer("workers", 2, "Workers of a run.", lower_bound=2)
TRIALS = flags.DEFINE_integer("trials", 10, "Runs with a kill.")
SEED = flags.DEFINE_integer("seed", 0, "Of the moments and the victims.")

# What worker 0 printed last or, "saved", wrote. After "are there" TensorFlow loads and connects.
MOMENTS = ("are there", "are there", "Peak of", "step 1/", "saved", "step 8/", "evaluation at")
STEPS = 40
RUN = {
    "do_train": True, "do_eval": True, "vocab_size": 200, "hidden_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
    "max_seq_length": 32, "max_predictions_per_seq": 5, "train_batch_size": 8,
    "eval_batch_size": 8, "max_eval_steps": 2, "eval_steps": 10, "save_checkpoints_steps": 5,
    "num_train_steps": STEPS, "num_warmup_steps": 5, "log_steps": 1, "jit_compile": False,
    "num_workers": 1, "distribution": "multi_worker",
}  # fmt: skip


class Run:
    """The processes of one start of a run."""

    def __init__(self, output_dir: pathlib.Path) -> None:
        self.output_dir = output_dir
        output_dir.mkdir(parents=True, exist_ok=True)
        self.logs = [output_dir.with_suffix(f".{index}.log") for index in range(WORKERS.value)]
        given = {**RUN, "input_file": INPUT.value, "output_dir": output_dir}
        given["cache_dir"] = output_dir.parent / "cache"
        words = [f"--{name}={value}" for name, value in given.items()]
        hosts = [f"localhost:{port}" for port in free_ports(WORKERS.value)]
        self.processes = []
        for index, log in enumerate(self.logs):
            with log.open("wb") as file:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "bert_tf.run_pretraining", *words],
                        env={**os.environ, "TF_CONFIG": tf_config(hosts, index)},
                        stdout=file,
                        stderr=subprocess.STDOUT,
                    )
                )

    def wait(self, seconds: float) -> list[int | None]:
        """Returns the exit statuses; None where a process had to be killed after the time."""
        end = time.monotonic() + seconds
        while any(p.poll() is None for p in self.processes) and time.monotonic() < end:
            time.sleep(0.05)
        statuses = [process.poll() for process in self.processes]
        for process in self.processes:
            process.kill()
            process.wait()
        return statuses

    def reaches(self, moment: str) -> None:
        """Waits until worker 0 has printed the text, or saved, or the run is over."""
        while all(process.poll() is None for process in self.processes):
            printed = self.logs[0].read_text(encoding="utf8")
            is_saved = moment == "saved" and any(self.output_dir.glob("model.ckpt-15*"))
            if moment in printed or is_saved:
                return
            time.sleep(0.01)


def result(output_dir: pathlib.Path) -> list[bytes]:
    names = ("metrics.jsonl", "eval_metrics.jsonl", "eval_results.txt")
    return [(output_dir / name).read_bytes() for name in names]


def trial(output_dir: pathlib.Path, moment: str, wait: float, victim: int) -> str:
    """Kills one worker and starts all again; returns the line of the table."""
    run = Run(output_dir)
    run.reaches(moment)
    time.sleep(wait)
    line = run.logs[0].read_text(encoding="utf8").splitlines()[-1:] or ["(nothing printed)"]
    run.processes[victim].kill()
    begin = time.monotonic()
    statuses = run.wait(120)
    seconds = time.monotonic() - begin
    others = [index for index in range(WORKERS.value) if index != victim]
    said = [run.logs[index].read_text(encoding="utf8").splitlines()[-1:] for index in others]
    is_clear = all(f"ERROR: Worker {victim} of" in (text or [""])[0] for text in said)
    again = Run(output_dir).wait(1500)
    is_equal = again == [0] * WORKERS.value and result(output_dir) == REFERENCE
    print(json.dumps({"statuses": statuses, "again": again, "said": said}), file=sys.stderr)
    cells = (f"{moment} + {wait:.1f} s", line[0][9:60], victim, f"{seconds:.1f}")
    cells += (statuses[others[0]], "yes" if is_clear else "NO", "yes" if is_equal else "NO")
    return "| " + " | ".join(map(str, cells)) + " |"


REFERENCE: list[bytes] = []


def main(_: list[str]) -> None:
    folder = pathlib.Path(FOLDER.value) / f"workers-{WORKERS.value}"
    shutil.rmtree(folder, ignore_errors=True)
    draw = random.Random(SEED.value)
    statuses = Run(folder / "undisturbed").wait(1500)
    if any(statuses):
        sys.exit(f"The undisturbed run ended with {statuses}; see {folder}.")
    REFERENCE.extend(result(folder / "undisturbed"))
    print("| moment | worker 0 last said | killed | s to the end | status | names it | equal |")
    print("|---|---|---:|---:|---:|---|---|", flush=True)
    for index in range(TRIALS.value):
        moment = MOMENTS[index % len(MOMENTS)]
        wait = draw.uniform(0, 15.0 if moment == "are there" else 1.0)
        output_dir = folder / f"trial-{index}"
        print(trial(output_dir, moment, wait, draw.randrange(WORKERS.value)), flush=True)


if __name__ == "__main__":
    app.run(main)
