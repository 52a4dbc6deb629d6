"""Measures byte-level BPE side by side on one text: Python, graph, Hugging Face's tokenizers.

    python -m benchmarks.byte_bpe_speed --vocab_file=vocab.json --input_file=articles.jsonl.xz

As `benchmarks.tokenizer`: each takes its turn in each round, the numbers are medians, and the graph
is called by as many threads as there are cores. Plain Python also runs in as many processes as
there are cores, as data making does: each is sent its strings and answers with how many pieces they
have. "Cold" remembers no word at the start of a round.

"cores" is processor time by time, the children's of plain Python not counted: where it is much
below the number of cores, something else was running; "pieces a core second" is then the fairer
comparison.
"""

import concurrent.futures
import functools
import multiprocessing
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator

import tokenizers
from absl import app

from benchmarks.timing import in_turn, print_table
from benchmarks.tokenizer import ROUNDS, VOCAB_FILE, in_graph, read_texts
from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.byte_bpe import ByteBpe
from bert_tf.text.byte_bpe_graph import ByteBpeTokenizer

BATCH_SIZES = (256, 2048)
PEER = "Hugging Face encode_batch_fast"

# A function that turns batches of strings into the ids of each string.
Encode = Callable[[list[list[str]]], list[list[int]]]
_worker: list[ByteBpe] = []  # of a process of the pool


def start_worker(vocab: BpeVocab) -> None:
    _worker.append(ByteBpe(vocab))


def count_pieces(texts: list[str], is_cold: bool) -> int:
    """Encodes in a process of the pool."""
    tokenizer = ByteBpe(_worker[0].vocab) if is_cold else _worker[0]
    return sum(len(tokenizer.encode(text)) for text in texts)


def in_python(tokenizer: ByteBpe, is_cold: bool) -> Encode:
    def encode(batches: list[list[str]]) -> list[list[int]]:
        used = ByteBpe(tokenizer.vocab) if is_cold else tokenizer
        return [used.encode(text) for batch in batches for text in batch]

    return encode


def hugging_face(vocab: BpeVocab, method: str) -> Encode:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, vocab.file_name)
        vocab.write(path)
        peer = tokenizers.Tokenizer.from_file(str(path))
    encode_batch = functools.partial(getattr(peer, method), add_special_tokens=False)
    return lambda batches: [row.ids for batch in batches for row in encode_batch(batch)]


def rows(
    encoders: dict[str, Encode],
    in_processes: dict[str, Callable[[list[list[str]]], object]],
    texts: list[str],
    batch_size: int,
) -> Iterator[list[str]]:
    """Yields the lines of the table of one batch size."""
    batches = [texts[i : i + batch_size] for i in range(0, len(texts), batch_size)]
    want = encoders[PEER](batches)
    num_pieces = sum(map(len, want))
    calls = {
        name: functools.partial(encode, batches)
        for name, encode in {**encoders, **in_processes}.items()
    }
    taken = in_turn(calls, ROUNDS.value)
    for name, (seconds, processor_seconds) in taken.items():
        cells = [name, f"{batch_size}", f"{num_pieces / seconds:,.0f}"]
        cells.append(f"{taken[PEER][0] / seconds:.2f}")
        if name in encoders:
            differing = sum(a != b for a, b in zip(encoders[name](batches), want, strict=True))
            cells.append(f"{processor_seconds / seconds:.2f}")
            cells += [f"{num_pieces / processor_seconds:,.0f}", f"{differing}"]
        yield [*cells, *[""] * (7 - len(cells))]


def main(_: list[str]) -> None:
    texts, num_cores = list(read_texts()), len(os.sched_getaffinity(0))
    print(f"{len(texts):,} strings, {sum(len(text.encode()) for text in texts) / 1e6:.1f} MB,")
    print(f"{num_cores} cores, tokenizers {tokenizers.__version__}")
    vocab = BpeVocab.read(VOCAB_FILE.value)
    graph, tokenizer = ByteBpeTokenizer(vocab), ByteBpe(vocab)
    encoders = {
        "Python, cold": in_python(tokenizer, is_cold=True),
        "Python, warm": in_python(tokenizer, is_cold=False),
        "in the graph": in_graph(graph.tokenize),
        "in the graph, with offsets": in_graph(lambda s: graph.tokenize_with_offsets(s)[0]),
        "Hugging Face encode_batch": hugging_face(vocab, "encode_batch"),
        PEER: hugging_face(vocab, "encode_batch_fast"),
    }
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(num_cores, context, start_worker, (vocab,)) as pool:

        def count(is_cold: bool, batches: list[list[str]]) -> list[int]:
            strings = [text for batch in batches for text in batch]
            shares = [strings[i::num_cores] for i in range(num_cores)]
            return list(pool.map(functools.partial(count_pieces, is_cold=is_cold), shares))

        in_processes = {
            f"Python, {num_cores} processes, {name}": functools.partial(count, name == "cold")
            for name in ("cold", "warm")
        }
        heads = ["", "batch", "pieces/s", f"times {PEER}", "cores", "pieces a core second"]
        lines = (row for size in BATCH_SIZES for row in rows(encoders, in_processes, texts, size))
        print_table([*heads, "texts that differ"], lines)


if __name__ == "__main__":
    app.run(main)
