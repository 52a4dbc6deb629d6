"""Measures vocabulary training: time, memory, and pieces a word on text held out.

    python -m benchmarks.vocab_training --input_file='wiki/*.jsonl.xz' --vocab_file=vocab.txt

Every 20th document is held out. --vocab_file measures a ready vocabulary on the same held-out text.
"""

import collections
import itertools
import resource
import time
from collections.abc import Iterator

from absl import app, flags

from benchmarks.timing import print_table
from bert_tf.corpus import corpus
from bert_tf.text import vocab_training
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece

INPUT_FILE = flags.DEFINE_string("input_file", None, "Text, as in build_vocab.", required=True)
VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 30522, "Rows of the vocabulary.")
WORKERS = flags.DEFINE_integer("num_workers", 2, "Processes that count words.")
VOCAB_FILE = flags.DEFINE_string("vocab_file", "", "A ready vocabulary to measure, too.")
HOLD_OUT = 20  # every 20th document


def read_kept(part: corpus.CorpusPart) -> Iterator[list[str]]:
    """Yields the documents to train on."""
    for index, document in enumerate(corpus.read_documents(part)):
        if index % HOLD_OUT:
            yield document


def read_held_out(part: corpus.CorpusPart) -> Iterator[list[str]]:
    """Yields the other documents."""
    yield from itertools.islice(corpus.read_documents(part), 0, None, HOLD_OUT)


def quality(vocab: Vocab, words: collections.Counter[str]) -> list[str]:
    """Returns cells: rows, pieces a word, share of words that are [UNK]."""
    tokenizer = WordPiece(vocab, do_lower_case=True)
    pieces = unknown = 0
    for word, count in words.items():
        ids = tokenizer.encode_uncached(word)
        pieces += count * len(ids)
        unknown += count * (ids == [vocab.unk_id])
    total = words.total()
    return [f"{len(vocab)}", f"{pieces / total:.5f}", f"{unknown / total:.4%}"]


def main(_: list[str]) -> None:
    parts = corpus.list_parts(INPUT_FILE.value)
    start = time.perf_counter()
    words = vocab_training.count_words_of_parts(parts, read_kept, True, WORKERS.value)
    counted = time.perf_counter() - start
    tokens = vocab_training.train_vocab(words, VOCAB_SIZE.value)
    seconds = time.perf_counter() - start
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    memory = [resource.getrusage(kind).ru_maxrss / 1e6 for kind in kinds]
    print(f"{words.total():,} words, {len(words):,} distinct: counted in {counted:.1f} s")
    print(f"in all {seconds:.1f} s, {memory[0]:.2f} GB, largest worker {memory[1]:.2f} GB")
    held_out = vocab_training.count_words_of_parts(parts, read_held_out, True, WORKERS.value)
    vocabs = {"trained": Vocab(tuple(tokens))}
    if VOCAB_FILE.value:
        vocabs[VOCAB_FILE.value] = Vocab.read(VOCAB_FILE.value)
    rows = ([name, *quality(vocab, held_out)] for name, vocab in vocabs.items())
    print_table(["vocabulary", "rows", "pieces a word", "[UNK]"], rows)


if __name__ == "__main__":
    app.run(main)
