"""Measures raw text to examples: pieces a second and memory, beside google-research/bert's program.

    python -m benchmarks.create_pretraining_data --input_file='text/*' --vocab_file=vocab.txt \\
        --megabytes=10,200 --num_workers=2 --original_dir=CHECKOUT_OF_GOOGLE_RESEARCH_BERT

The first megabytes of the input (where it has fewer, again and again with words swapped) are
written as one sentence a line, and each program is run on them as a user runs it: time of the whole
process, start included, processor time of all its processes (what counts on a busy machine), and
the memory of the largest. "tokens" are pieces of the corpus, not of the examples. The original is
run on the smallest size only, with --dupe_factor=1 like ours, under TensorFlow's compat.v1.
"""

import itertools
import json
import multiprocessing
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from bert_tf.data.corpus import list_parts, read_documents

INPUT_FILE = flags.DEFINE_string("input_file", None, "Text, as in create_pretraining_data.")
VOCAB_FILE = flags.DEFINE_string("vocab_file", None, "Vocabulary.")
MEGABYTES = flags.DEFINE_list("megabytes", ["10"], "Sizes of text to try.")
WORKERS = flags.DEFINE_integer("num_workers", 2, "Processes.")
ORIGINAL = flags.DEFINE_string("original_dir", "", "Checkout of google-research/bert, or none.")
flags.mark_flags_as_required(["input_file", "vocab_file"])

RUN_ORIGINAL = """
import runpy, sys
import tensorflow.compat.v1 as tf
sys.modules["tensorflow"] = tf
sys.path.insert(0, sys.argv[1])
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0] + "/create_pretraining_data.py", run_name="__main__")
"""


def write_text(path: pathlib.Path, megabytes: float) -> None:
    """Writes the first documents of the input as one sentence a line.

    If there are too few, all follow again, with the words of each sentence in another order.
    """
    left = megabytes * 1e6
    parts = list_parts(INPUT_FILE.value)
    with path.open("w", encoding="utf8") as file:
        for copy, part in ((copy, part) for copy in itertools.count() for part in parts):
            for document in read_documents(part):
                text = "\n".join(changed(sentence, copy) for sentence in document) + "\n\n"
                file.write(text)
                left -= len(text.encode("utf8"))
                if left <= 0:
                    return


def changed(sentence: str, copy: int) -> str:
    """Returns the sentence, or in a copy of the text: with every seventh word swapped."""
    words = sentence.split(" ")
    if copy:
        words[copy % 7 :: 7] = words[copy % 7 :: 7][::-1]
    return " ".join(words)


def measure(command: list[str]) -> tuple[float, float, float]:
    """Returns seconds, processor seconds and megabytes of the largest process of a command."""
    # In a process of its own: the peak of finished children is never reset.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(run, (command,))


def run(command: list[str]) -> tuple[float, float, float]:
    """Runs a command; see `measure`."""
    start = time.perf_counter()
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{command} failed:\n{result.stdout}{result.stderr}")
    seconds = time.perf_counter() - start
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def main(_: list[str]) -> None:
    heads = f"{'seconds':>10}{'CPU s':>8}{'tokens/s':>12}{'peak MB':>10}"
    print(f"{'program':<28}{'MB':>6}{'tokens':>14}{heads}")
    sizes = sorted(map(float, MEGABYTES.value))
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            text, records = pathlib.Path(folder, "text.txt"), pathlib.Path(folder, "out", "records")
            write_text(text, size)
            flag_list = [f"--input_file={text}", f"--vocab_file={VOCAB_FILE.value}"]
            ours = [sys.executable, "-m", "bert_tf.create_pretraining_data", *flag_list]
            ours += [f"--output_file={records}", "--num_shards=16"]
            used = measure([*ours, f"--num_workers={WORKERS.value}"])
            manifest_file = records.with_name(f"{records.name}-00000-of-00016.manifest.json")
            manifest = json.loads(manifest_file.read_text(encoding="utf8"))
            tokens = manifest["corpus"]["tokens"]
            report(f"bert_tf, {WORKERS.value} processes", size, tokens, *used)
            if ORIGINAL.value and size == sizes[0]:
                original = [sys.executable, "-c", RUN_ORIGINAL, ORIGINAL.value, *flag_list]
                original += ["--dupe_factor=1", f"--output_file={records.parent / 'original'}"]
                original_used = measure(original)
                report("google-research/bert", size, tokens, *original_used)
                print(f"bert_tf is {original_used[0] / used[0]:.1f} times as fast.")


def report(
    program: str, size: float, tokens: int, seconds: float, processor: float, peak: float
) -> None:
    """Prints one row."""
    times = f"{seconds:>10.1f}{processor:>8.1f}{tokens / seconds:>12,.0f}"
    print(f"{program:<28}{size:>6.0f}{tokens:>14,}{times}{peak:>10.0f}")


if __name__ == "__main__":
    app.run(main)
