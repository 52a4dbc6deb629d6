"""Measures tokenizers side by side on one text, from Python strings to lists of ids, on all cores.

    python -m benchmarks.tokenizer --vocab_file=vocab.txt --input_file=articles.jsonl.xz

Each tokenizer takes its turn in each round; the numbers are medians. `encode_batch` of Hugging
Face's tokenizers runs on all cores by itself; what runs in the graph is called by as many threads
as there are cores, a batch each; plain Python runs on one core. Its cache is either empty
("cold"), filled by other text of the same size, or filled by the same text ("warm"). The others
keep no cache.

"cores" is processor time by time: where it is much below the number of cores for Hugging Face,
something else was running.

FastBertTokenizer and Hugging Face give other pieces for some texts (see docs/tokenizer.md): for
how many is printed.
"""

import concurrent.futures
import functools
import gc
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator

import tensorflow as tf
import tensorflow_text as tf_text
import tokenizers
from absl import app, flags

from bert_tf.data import corpus
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocab import UNK, Vocab
from bert_tf.text.wordpiece import WordPiece

VOCAB_FILE = flags.DEFINE_string("vocab_file", None, "Vocabulary.", required=True)
INPUT_FILE = flags.DEFINE_string("input_file", None, "Text, as in build_vocab.", required=True)
LOWER = flags.DEFINE_bool("do_lower_case", True, "Lower-case the text and strip accents.")
MEGABYTES = flags.DEFINE_float("megabytes", 10.0, "Text to tokenize.")
BATCH_SIZES = flags.DEFINE_multi_integer("batch_size", [32, 2048], "Strings a call; may repeat.")
ROUNDS = flags.DEFINE_integer("rounds", 5, "Turns of each tokenizer; medians are printed.")

# A function that turns some batches of strings into the ids of each string.
Encode = Callable[[list[list[str]]], list[list[int]]]
HUGGING_FACE = "Hugging Face encode_batch_fast"


def read_texts(path: str, megabytes: float) -> Iterator[str]:
    """Yields the first sentences of a corpus, about as many megabytes as asked for."""
    size = 0.0
    for part in corpus.list_parts(path):
        for sentence in itertools.chain.from_iterable(corpus.read_documents(part)):
            yield sentence
            size += len(sentence.encode()) / 1e6
            if size >= megabytes:
                return


def in_python(encode: Callable[[str], list[int]]) -> Encode:
    return lambda batches: [encode(text) for batch in batches for text in batch]


def with_cache_of(texts: list[str], vocab: Vocab, lower: bool) -> Encode:
    tokenizer = WordPiece(vocab, lower)
    for text in texts:
        tokenizer.encode(text)
    return in_python(tokenizer.encode)


def in_graph(tokenize: Callable[[tf.Tensor], tf.RaggedTensor]) -> Encode:
    """Calls an in-graph tokenizer in as many threads as there are cores."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def tokenize_flat(strings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        ids = tokenize(strings).merge_dims(1, -1)
        return ids.values, ids.row_splits

    def encode_batch(batch: list[str]) -> list[list[int]]:
        flat, splits = (part.numpy().tolist() for part in tokenize_flat(tf.constant(batch)))
        return [flat[start:end] for start, end in itertools.pairwise(splits)]

    def encode(batches: list[list[str]]) -> list[list[int]]:
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return list(itertools.chain.from_iterable(pool.map(encode_batch, batches)))

    encode([["warm", "up"]])  # traces
    return encode


def hugging_face(vocab: Vocab, lower: bool, method: str) -> Encode:
    """Returns the encoder of a tokenizer built as BertTokenizerFast builds it."""
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(dict(vocab.ids), unk_token=UNK, max_input_chars_per_word=100)
    )
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    encode_batch = functools.partial(getattr(tokenizer, method), add_special_tokens=False)
    return lambda batches: [row.ids for batch in batches for row in encode_batch(batch)]


def list_tokenizers(
    vocab: Vocab, lower: bool, texts: list[str], other_texts: list[str]
) -> dict[str, Callable[[], Encode]]:
    """Returns under each name what prepares the tokenizer for a round; that is not timed."""
    graph = BertTokenizer(vocab, lower)
    fast = tf_text.FastBertTokenizer(
        list(vocab.tokens),
        token_out_type=tf.int32,
        unknown_token=UNK,
        lower_case_nfd_strip_accents=lower,
    )
    in_graphs = {
        "in the graph": in_graph(graph.tokenize),
        "in the graph, with offsets": in_graph(lambda s: graph.tokenize_with_offsets(s)[0]),
        "tensorflow-text FastBertTokenizer": in_graph(fast.tokenize),
    }
    peers = {
        "Hugging Face encode_batch": hugging_face(vocab, lower, "encode_batch"),
        HUGGING_FACE: hugging_face(vocab, lower, "encode_batch_fast"),
    }
    return {
        "Python, no cache": lambda: in_python(WordPiece(vocab, lower).encode_uncached),
        "Python, cold": lambda: with_cache_of([], vocab, lower),
        "Python, cache of other text": lambda: with_cache_of(other_texts, vocab, lower),
        "Python, warm": lambda: with_cache_of(texts, vocab, lower),
        **{name: lambda e=encode: e for name, encode in (in_graphs | peers).items()},
    }


def compare(
    candidates: dict[str, Callable[[], Encode]], texts: list[str], batch_size: int, rounds: int
) -> None:
    """Prints the table of one batch size."""
    batches = [texts[i : i + batch_size] for i in range(0, len(texts), batch_size)]
    want = candidates["Python, no cache"]()(batches)
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    cores: dict[str, list[float]] = {name: [] for name in candidates}
    differing = {}
    for _ in range(rounds):
        for name, prepare in candidates.items():
            encode = prepare()
            gc.collect()
            start, processor_start = time.perf_counter(), time.process_time()
            got = encode(batches)
            seconds[name].append(time.perf_counter() - start)
            cores[name].append((time.process_time() - processor_start) / seconds[name][-1])
            differing[name] = sum(a != b for a, b in zip(got, want, strict=True))
            del got
    pieces = sum(map(len, want))
    of_peer = statistics.median(seconds[HUGGING_FACE])
    print(f"\n{'batches of ' + str(batch_size):36} pieces/s   of HF  cores  texts that differ")
    for name, times in seconds.items():
        median = statistics.median(times)
        rates = f"{pieces / median:9,.0f} {of_peer / median:6.2f}x"
        print(f"{name:36}{rates} {statistics.median(cores[name]):6.2f} {differing[name]:8}")


def main(_: list[str]) -> None:
    vocab, lower = Vocab.read(VOCAB_FILE.value), LOWER.value
    texts = list(read_texts(INPUT_FILE.value, 2 * MEGABYTES.value))
    size = sum(1 for _ in read_texts(INPUT_FILE.value, MEGABYTES.value))
    texts, other_texts = texts[:size], texts[size:]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    cores = len(os.sched_getaffinity(0))
    print(
        f"{len(texts):,} strings, {megabytes:.1f} MB, {cores} cores, tokenizers "
        f"{tokenizers.__version__}; medians of {ROUNDS.value}, the ratio to {HUGGING_FACE}"
    )
    candidates = list_tokenizers(vocab, lower, texts, other_texts)
    for batch_size in BATCH_SIZES.value:
        compare(candidates, texts, batch_size, ROUNDS.value)


if __name__ == "__main__":
    app.run(main)
