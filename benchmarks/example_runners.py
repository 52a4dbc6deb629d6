"""Measures the runners of create_pretraining_data side by side, and compares what they write.

    python -m benchmarks.example_runners --input_file='wikipedia/*.xz' --vocab_file=vocab.txt

The first megabytes of the input are written as JSONL. Each runner makes examples of them as a user
would, in turn, --rounds times: seconds of the whole program, processor seconds of all its
processes, and the largest process, as the manifest says. Needs bert_tf[beam].
"""

import hashlib
import json
import multiprocessing
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from bert_tf.data.corpus import list_parts, read_documents

INPUT_FILE = flags.DEFINE_string("input_file", None, "Text, as in create_pretraining_data.")
VOCAB_FILE = flags.DEFINE_string("vocab_file", None, "Vocabulary.")
MEGABYTES = flags.DEFINE_float("megabytes", 50, "Size of the text.")
WORKERS = flags.DEFINE_integer("num_workers", 2, "Processes.")
ROUNDS = flags.DEFINE_integer("rounds", 2, "How often each runner runs.")
flags.mark_flags_as_required(["input_file", "vocab_file"])
SHARDS = 16


def runners(num_workers: int) -> dict[str, list[str]]:
    """Returns the flags of each runner."""
    return {
        f"local, {num_workers} processes": [],
        f"beam, {num_workers} processes": ["--runner=beam"],
        "local, one process": ["--num_workers=1"],
        "beam, in memory": ["--runner=beam", "--beam_options=--runner=FnApiRunner"],
    }


def write_text(path: pathlib.Path) -> None:
    """Writes the first documents of the input."""
    left = MEGABYTES.value * 1e6
    with path.open("w", encoding="utf8") as file:
        for part in list_parts(INPUT_FILE.value):
            for document in read_documents(part):
                line = json.dumps({"text": "\n".join(document)}, ensure_ascii=False) + "\n"
                left -= file.write(line)
                if left <= 0:
                    return


def measure(command: list[str]) -> tuple[float, float]:
    """Returns seconds and processor seconds of a command."""
    # In a process of its own: the time of finished children is never reset.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(run, (command,))


def run(command: list[str]) -> tuple[float, float]:
    """Runs a command; see `measure`."""
    start = time.perf_counter()
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{command} failed:\n{result.stdout}{result.stderr}")
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def make(text: pathlib.Path, folder: pathlib.Path, options: list[str]) -> tuple[float, ...]:
    """Makes the examples; returns seconds, processor seconds and megabytes of memory."""
    command = [sys.executable, "-m", "bert_tf.create_pretraining_data", f"--input_file={text}"]
    command += [f"--vocab_file={VOCAB_FILE.value}", f"--output_file={folder}/x"]
    command += [f"--num_shards={SHARDS}", f"--num_workers={WORKERS.value}", *options]
    times = measure(command)
    manifest = json.loads((folder / f"x-00000-of-{SHARDS:05d}.manifest.json").read_text("utf8"))
    return *times, manifest["run"]["peak_memory_mb"]


def content(folder: pathlib.Path) -> str:
    """Returns a hash of all example files."""
    files = sorted(path for path in folder.iterdir() if path.suffix != ".json")
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:12]


def main(_: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        text = pathlib.Path(name, "text.jsonl")
        write_text(text)
        measured: dict[str, list[tuple[float, ...]]] = {}
        hashes = {}
        for number in range(ROUNDS.value):
            for index, (runner, options) in enumerate(runners(WORKERS.value).items()):
                folder = pathlib.Path(name, f"{number}-{index}")
                measured.setdefault(runner, []).append(make(text, folder, options))
                hashes[runner] = content(folder)
        print(f"{'runner':<22}{'seconds':>9}{'CPU s':>8}{'MB/CPU s':>10}{'peak MB':>9}  files")
        for runner, rows in measured.items():
            seconds, processor, memory = map(statistics.median, zip(*rows, strict=True))
            rate = MEGABYTES.value / processor
            numbers = f"{seconds:>9.1f}{processor:>8.1f}{rate:>10.2f}{memory:>9.0f}"
            print(f"{runner:<22}{numbers}  {hashes[runner]}")


if __name__ == "__main__":
    app.run(main)
