"""Measures the tokenizers side by side on one text: plain Python, in the graph, tensorflow-text's.

    python -m benchmarks.tokenizer --vocab_file=vocab.txt --input_file=articles.jsonl.xz

FastBertTokenizer is faster by design and gives other pieces (see bert_tf/text/tokenizer.py); how
many of the texts differ is printed. "cold" and "warm": the Python cache empty, and filled by a
first pass over the same text.
"""

import itertools
import time
from collections.abc import Callable

import tensorflow as tf
import tensorflow_text as tf_text
from absl import app, flags

from bert_tf.data import corpus
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocab import UNK, Vocab
from bert_tf.text.wordpiece import WordPiece

VOCAB_FILE = flags.DEFINE_string("vocab_file", None, "Vocabulary.", required=True)
INPUT_FILE = flags.DEFINE_string("input_file", None, "Text, as in build_vocab.", required=True)
LOWER = flags.DEFINE_bool("do_lower_case", True, "Lower-case the text and strip accents.")
MEGABYTES = flags.DEFINE_float("megabytes", 10.0, "Text to tokenize.")
BATCH_SIZE = flags.DEFINE_integer("batch_size", 256, "Strings a call of the graph.")


def read_texts(path: str, megabytes: float) -> list[str]:
    """Returns the first sentences of a corpus, about as many megabytes as asked for."""
    texts, size = [], 0.0
    for part in corpus.list_parts(path):
        for sentence in itertools.chain.from_iterable(corpus.read_documents(part)):
            texts.append(sentence)
            size += len(sentence.encode()) / 1e6
            if size >= megabytes:
                return texts
    return texts


def measure(name: str, texts: list[str], encode: Callable[[], list[list[int]]]) -> list[list[int]]:
    """Runs once and prints the rates."""
    start = time.perf_counter()
    ids = encode()
    seconds = time.perf_counter() - start
    pieces = sum(map(len, ids))
    rates = f"{len(texts) / seconds:12,.0f} strings/s {pieces / seconds:14,.0f} pieces/s"
    print(f"{name:42}{rates}")
    return ids


def in_batches(tokenize: Callable, texts: list[str], batch: int) -> list[list[int]]:
    """Runs an in-graph tokenizer as an input pipeline would, one batch after the other."""
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(batch)
    dataset = dataset.map(lambda strings: tokenize(strings).merge_dims(1, -1))
    return [row for ragged in dataset for row in ragged.to_list()]


def main(_: list[str]) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    vocab, lower = Vocab.read(VOCAB_FILE.value), LOWER.value
    texts = read_texts(INPUT_FILE.value, MEGABYTES.value)
    print(f"{len(texts):,} strings, {sum(len(t.encode()) for t in texts) / 1e6:.1f} MB, one core")

    python = WordPiece(vocab, lower)
    encode = python.encode_uncached
    want = measure("Python, no cache", texts, lambda: list(map(encode, texts)))
    for state in ("cold", "warm"):
        got = measure(f"Python, {state}", texts, lambda: list(map(python.encode, texts)))
        print(f"  equal: {got == want}")
    graph = BertTokenizer(vocab, lower)
    fast = tf_text.FastBertTokenizer(
        list(vocab.tokens),
        token_out_type=tf.int32,
        unknown_token=UNK,
        lower_case_nfd_strip_accents=lower,
    )
    with_offsets = tf.function(lambda strings: graph.tokenize_with_offsets(strings)[0])
    for name, tokenize in (
        ("in the graph", graph.tokenize),
        ("in the graph, with offsets", with_offsets),
        ("tensorflow-text FastBertTokenizer", fast.tokenize),
    ):
        in_batches(tokenize, texts[: BATCH_SIZE.value], BATCH_SIZE.value)  # traces
        run = in_batches
        got = measure(name, texts, lambda: run(tokenize, texts, BATCH_SIZE.value))  # noqa: B023
        print(f"  texts that differ: {sum(a != b for a, b in zip(got, want, strict=True))}")


if __name__ == "__main__":
    app.run(main)
