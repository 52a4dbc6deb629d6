"""Kills create_pretraining_data at random moments, starts it again, and compares what it wrote.

    python -m benchmarks.killed_examples --input_file='wikipedia/*.xz' --vocab_file=vocab.txt

Each round: the program is started and killed with -9 (the main process alone: its workers must
follow) --kills times, then left to its end. "mixed" takes another runner at each start. What is
written must be, byte for byte, what a run without a kill writes. Beam needs bert_tf[beam].
"""

import hashlib
import itertools
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from absl import app, flags

INPUT_FILE = flags.DEFINE_string("input_file", None, "Text, as in create_pretraining_data.")
VOCAB_FILE = flags.DEFINE_string("vocab_file", None, "Vocabulary.")
ROUNDS = flags.DEFINE_integer("rounds", 2, "Rounds of each kind.")
KILLS = flags.DEFINE_integer("kills", 3, "Kills a round.")
KINDS = flags.DEFINE_list("kinds", ["local", "beam", "mixed"], "Which rounds.")
flags.mark_flags_as_required(["input_file", "vocab_file"])
SHARDS = 24


def start(folder: pathlib.Path, runner: str) -> subprocess.Popen:
    """Starts the program."""
    command = [sys.executable, "-m", "bert_tf.create_pretraining_data", f"--runner={runner}"]
    command += [f"--input_file={INPUT_FILE.value}", f"--vocab_file={VOCAB_FILE.value}"]
    command += [f"--output_file={folder}/x", f"--num_shards={SHARDS}", "--num_workers=2"]
    command += ["--masking=static", "--dupe_factor=2", "--deduplicate=near"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def finish(folder: pathlib.Path, runner: str) -> None:
    """Runs the program to its end."""
    if status := start(folder, runner).wait():
        raise RuntimeError(f"{runner}: exit status {status}")


def finished(folder: pathlib.Path) -> tuple[int, int]:
    """Returns how many parts of the input and how many shards are done."""
    done = (len(list(folder.glob(f".x*.work/{name}"))) for name in ("*/*.tokens", "shard*.json"))
    return next(done), next(done)


def content(folder: pathlib.Path) -> list[str]:
    """Returns a hash of each example file."""
    files = sorted(path for path in folder.iterdir() if path.suffix != ".json")
    return [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]


def main(_: list[str]) -> None:
    generator = random.Random(1)
    orders = {"local": ["local"], "beam": ["beam"], "mixed": ["beam", "local"]}
    with tempfile.TemporaryDirectory() as name:
        finish(pathlib.Path(name, "whole"), "local")
        expected = content(pathlib.Path(name, "whole"))
        for kind, number in itertools.product(KINDS.value, range(ROUNDS.value)):
            folder = pathlib.Path(name, f"{kind} {number}")
            turns = itertools.cycle(orders[kind])
            done = []
            for moment in sorted(generator.sample(range(SHARDS), KILLS.value)):
                process = start(folder, next(turns))
                while process.poll() is None and sum(finished(folder)) < moment:
                    time.sleep(0.001)
                time.sleep(generator.uniform(0, 0.3))
                process.kill()
                process.wait()
                done.append("{} parts {} shards".format(*finished(folder)))
            finish(folder, next(turns))
            verdict = "equal" if content(folder) == expected else "DIFFERENT"
            print(f"{kind:<6} killed after {'; '.join(done)}; at the end {verdict}", flush=True)


if __name__ == "__main__":
    app.run(main)
