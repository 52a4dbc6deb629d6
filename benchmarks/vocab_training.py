"""Measures vocabulary training: time, memory, and pieces a word on text held out.

    python benchmarks/vocab_training.py --input_file='wiki/*.jsonl.xz' [--peer] [--vocab_file=...]

Every 20th document is held out. --peer trains with tensorflow-text's learner, too, on the same
word counts; --vocab_file measures a ready vocabulary on the same held-out text.
"""

import argparse
import collections
import itertools
import resource
import time
from collections.abc import Iterator

from bert_tf.data import corpus
from bert_tf.text import vocab_training
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece

HOLD_OUT = 20


def read_kept(part: corpus.CorpusPart) -> Iterator[list[str]]:
    """Yields the documents to train on."""
    for index, document in enumerate(corpus.read_documents(part)):
        if index % HOLD_OUT:
            yield document


def read_held_out(part: corpus.CorpusPart) -> Iterator[list[str]]:
    """Yields the other documents."""
    yield from itertools.islice(corpus.read_documents(part), 0, None, HOLD_OUT)


def print_quality(
    name: str, tokens: list[str], words: collections.Counter[str], lower: bool, seconds: float
) -> None:
    """Prints pieces per word and the share of words that are [UNK]."""
    tokenizer = WordPiece(Vocab(tuple(tokens)), lower)
    unk_id = tokenizer.vocab.unk_id
    pieces = unknown = 0
    for word, count in words.items():
        ids = tokenizer.encode_uncached(word)
        pieces += count * len(ids)
        unknown += count * (ids == [unk_id])
    total = words.total()
    print(
        f"{name:26}{len(tokens):7} rows {seconds:8.1f} s {pieces / total:10.5f} pieces a word "
        f"{unknown / total:10.4%} [UNK]",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--vocab_size", type=int, default=30522)
    parser.add_argument("--cased", action="store_true")
    parser.add_argument("--num_workers", type=int, default=0)
    parser.add_argument("--vocab_file", default="")
    parser.add_argument("--peer", action="store_true")
    args = parser.parse_args()
    lower, count_parts = not args.cased, vocab_training.count_words_of_parts
    parts = corpus.list_parts(args.input_file)
    start = time.perf_counter()
    words = count_parts(parts, read_kept, lower, args.num_workers)
    counted = time.perf_counter() - start
    tokens = vocab_training.train_vocab(words, args.vocab_size)
    seconds = time.perf_counter() - start
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    memory = [resource.getrusage(kind).ru_maxrss / 1e6 for kind in kinds]
    print(f"{words.total():,} words, {len(words):,} distinct, counted in {counted:.1f} s")
    print(f"peak memory: {memory[0]:.2f} GB, largest worker {memory[1]:.2f} GB")
    held_out = count_parts(parts, read_held_out, lower, args.num_workers)
    print_quality("bert_tf, counting included", tokens, held_out, lower, seconds)
    if args.vocab_file:
        print_quality("file", list(Vocab.read(args.vocab_file).tokens), held_out, lower, 0.0)
    if args.peer:
        from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as peer

        head = vocab_training._head_rows(args.vocab_size)
        start = time.perf_counter()
        learned = peer.learn(list(words.items()), args.vocab_size, head)
        seconds = time.perf_counter() - start
        print_quality("tensorflow-text, learning", learned, held_out, lower, seconds)


if __name__ == "__main__":
    main()
