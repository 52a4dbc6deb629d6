"""Measures vocabulary training: time, memory, and pieces a word on text held out.

    python -m benchmarks.vocab_training --input_file='wiki/*.jsonl.xz' [--peer] [--vocab_file=...]

Every 20th document is held out. --peer trains with tensorflow-text's learner, too, on the same
word counts; --vocab_file measures a ready vocabulary on the same held-out text.
"""

import collections
import resource
import time

from absl import app, flags

from benchmarks.held_out import read_held_out, read_kept
from bert_tf.data import corpus
from bert_tf.text import vocab_training
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece

INPUT_FILE = flags.DEFINE_string("input_file", None, "Text, as in build_vocab.", required=True)
VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 30522, "Rows of the vocabulary.")
LOWER = flags.DEFINE_bool("do_lower_case", True, "Lower-case the text and strip accents.")
WORKERS = flags.DEFINE_integer("num_workers", 2, "Processes that count words.")
VOCAB_FILE = flags.DEFINE_string("vocab_file", "", "A ready vocabulary to measure, too.")
PEER = flags.DEFINE_bool("peer", False, "Train with tensorflow-text's learner, too.")


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


def main(_: list[str]) -> None:
    lower, count_parts = LOWER.value, vocab_training.count_words_of_parts
    parts = corpus.list_parts(INPUT_FILE.value)
    start = time.perf_counter()
    words = count_parts(parts, read_kept, lower, WORKERS.value)
    counted = time.perf_counter() - start
    tokens = vocab_training.train_vocab(words, VOCAB_SIZE.value)
    seconds = time.perf_counter() - start
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    memory = [resource.getrusage(kind).ru_maxrss / 1e6 for kind in kinds]
    print(f"{words.total():,} words, {len(words):,} distinct, counted in {counted:.1f} s")
    print(f"peak memory: {memory[0]:.2f} GB, largest worker {memory[1]:.2f} GB")
    held_out = count_parts(parts, read_held_out, lower, WORKERS.value)
    print_quality("bert_tf, counting included", tokens, held_out, lower, seconds)
    if VOCAB_FILE.value:
        print_quality("file", list(Vocab.read(VOCAB_FILE.value).tokens), held_out, lower, 0.0)
    if PEER.value:
        from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as peer

        head = vocab_training._head_rows(VOCAB_SIZE.value)
        start = time.perf_counter()
        learned = peer.learn(list(words.items()), VOCAB_SIZE.value, head)
        seconds = time.perf_counter() - start
        print_quality("tensorflow-text, learning", learned, held_out, lower, seconds)


if __name__ == "__main__":
    app.run(main)
