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
import pathlib
import sys
import tempfile
from collections.abc import Iterator

from absl import app, flags

from benchmarks.timing import measure, print_table
from bert_tf.corpus.corpus import list_parts, read_documents

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
    with path.open("w", encoding="utf8") as file:
        parts = list_parts(INPUT_FILE.value)
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


def rows(megabytes: float, with_original: bool) -> Iterator[list[str]]:
    """Yields the lines of the table for one size of text."""
    with tempfile.TemporaryDirectory() as folder:
        text, records = pathlib.Path(folder, "text.txt"), pathlib.Path(folder, "out", "records")
        write_text(text, megabytes)
        given = [f"--input_file={text}", f"--vocab_file={VOCAB_FILE.value}"]
        ours = [sys.executable, "-m", "bert_tf.create_pretraining_data", *given]
        ours += [f"--output_file={records}", f"--num_workers={WORKERS.value}", "--num_shards=16"]
        runs = {f"bert_tf, {WORKERS.value} processes": measure(ours)}
        manifest = json.loads(next(records.parent.glob("*-of-00016.manifest.json")).read_bytes())
        if with_original:
            original = [sys.executable, "-c", RUN_ORIGINAL, ORIGINAL.value, *given]
            original += ["--dupe_factor=1", f"--output_file={records.parent / 'original'}"]
            runs["google-research/bert"] = measure(original)
    tokens = manifest["corpus"]["tokens"]
    for program, used in runs.items():
        times = [f"{used.seconds:.1f}", f"{used.processor_seconds:.1f}"]
        rate, peak = f"{tokens / used.seconds:,.0f}", f"{used.peak_mb:.0f}"
        yield [program, f"{megabytes:g}", f"{tokens:,}", *times, rate, peak]


def main(_: list[str]) -> None:
    sizes = sorted(map(float, MEGABYTES.value))
    lines = (row for s in sizes for row in rows(s, bool(ORIGINAL.value) and s == sizes[0]))
    print_table(["program", "MB", "tokens", "s", "processor s", "tokens/s", "peak MB"], lines)


if __name__ == "__main__":
    app.run(main)
