"""Measures tokenizers side by side on one text, from Python strings to lists of ids, on all cores.

    python -m benchmarks.tokenizer --vocab_file=vocab.txt --input_file=articles.jsonl.xz

Each tokenizer takes its turn in each round; the numbers are medians. `encode_batch` of Hugging
Face's tokenizers runs on all cores by itself; what runs in the graph is called by as many threads
as there are cores, a batch each; plain Python runs on one core. Its cache is either empty ("cold")
or filled by the same text ("warm"). The others keep no cache.

"cores" is processor time by time: where it is much below the number of cores for Hugging Face,
something else was running; "pieces a core second" is then the fairer comparison.

FastBertTokenizer and Hugging Face give other pieces for some texts (see docs/tokenizer.md): for
how many is printed.
"""

import concurrent.futures
import functools
import itertools
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator

import tensorflow as tf
import tensorflow_text as tf_text
import tokenizers
from absl import app, flags

from benchmarks.timing import in_turn, print_table
from bert_tf.corpus.corpus import list_parts, read_documents
from bert_tf.text.graph_tokenization import make_graph_tokenizer
from bert_tf.text.tokenization import AnyVocab, Tokenizer, make_tokenizer, read_vocab
from bert_tf.text.vocab import UNK, Vocab

VOCAB_FILE = flags.DEFINE_string(
    "vocab_file", None, "Vocabulary: WordPiece's, uncased, or byte-level BPE's.", required=True
)
INPUT_FILE = flags.DEFINE_string("input_file", None, "Text, as in build_vocab.", required=True)
MEGABYTES = flags.DEFINE_float("megabytes", 10.0, "Text to tokenize.")
ROUNDS = flags.DEFINE_integer("rounds", 5, "Turns of each tokenizer; medians are printed.")
BATCH_SIZES = (32, 256, 2048)

# A function that turns some batches of strings into the ids of each string.
Encode = Callable[[list[list[str]]], list[list[int]]]
COLD, PEER = "Python, cold", "Hugging Face encode_batch_fast"


def read_texts() -> Iterator[str]:
    """Yields the first sentences of the corpus, about as many megabytes as asked for."""
    size = 0.0
    documents = itertools.chain.from_iterable(map(read_documents, list_parts(INPUT_FILE.value)))
    for sentence in itertools.chain.from_iterable(documents):
        yield sentence
        size += len(sentence.encode()) / 1e6
        if size >= MEGABYTES.value:
            return


def in_python(vocab: AnyVocab, tokenizer: Tokenizer | None = None) -> Encode:
    """Encodes with this tokenizer, or with a new one, whose cache is empty, in each call."""

    def encode(batches: list[list[str]]) -> list[list[int]]:
        used = tokenizer or make_tokenizer(vocab, True)
        return [used.encode(text) for batch in batches for text in batch]

    return encode


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

    return encode


def hugging_face(vocab: AnyVocab) -> tokenizers.Tokenizer:
    """Makes the tokenizer as BertTokenizerFast builds it, or reads it as RobertaTokenizerFast."""
    if not isinstance(vocab, Vocab):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, vocab.file_name)
            vocab.write(path)
            return tokenizers.Tokenizer.from_file(str(path))
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(dict(vocab.ids), unk_token=UNK, max_input_chars_per_word=100)
    )
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return tokenizer


def by_hugging_face(encode_batch: Callable[..., list]) -> Encode:
    return lambda batches: [
        row.ids for batch in batches for row in encode_batch(batch, add_special_tokens=False)
    ]


def list_tokenizers(vocab: AnyVocab) -> dict[str, Encode]:
    graph, peer = make_graph_tokenizer(vocab, True), hugging_face(vocab)
    encoders = {
        COLD: in_python(vocab),
        "Python, warm": in_python(vocab, make_tokenizer(vocab, True)),
        "in the graph": in_graph(graph.tokenize),
        "in the graph, with offsets": in_graph(lambda s: graph.tokenize_with_offsets(s)[0]),
        "Hugging Face encode_batch": by_hugging_face(peer.encode_batch),
        PEER: by_hugging_face(peer.encode_batch_fast),
    }
    if isinstance(vocab, Vocab):
        fast = tf_text.FastBertTokenizer(
            list(vocab.tokens),
            token_out_type=tf.int32,
            unknown_token=UNK,
            lower_case_nfd_strip_accents=True,
        )
        encoders["tensorflow-text FastBertTokenizer"] = in_graph(fast.tokenize)
    return encoders


def rows(encoders: dict[str, Encode], texts: list[str], batch_size: int) -> Iterator[list[str]]:
    """Yields the lines of the table of one batch size."""
    batches = [texts[i : i + batch_size] for i in range(0, len(texts), batch_size)]
    want = encoders[COLD](batches)
    calls = {name: functools.partial(encode, batches) for name, encode in encoders.items()}
    taken = in_turn(calls, ROUNDS.value)
    for name, (seconds, processor_seconds) in taken.items():
        num_pieces, cores = sum(map(len, want)), processor_seconds / seconds
        differing = sum(a != b for a, b in zip(encoders[name](batches), want, strict=True))
        cells = [f"{num_pieces / seconds:,.0f}", f"{taken[PEER][0] / seconds:.2f}", f"{cores:.2f}"]
        cells += [f"{num_pieces / processor_seconds:,.0f}", f"{differing}"]
        yield [name, f"{batch_size}", *cells]


def main(_: list[str]) -> None:
    texts = list(read_texts())
    print(f"{len(texts):,} strings, {sum(len(text.encode()) for text in texts) / 1e6:.1f} MB,")
    print(f"{len(os.sched_getaffinity(0))} cores, tokenizers {tokenizers.__version__}")
    encoders = list_tokenizers(read_vocab(VOCAB_FILE.value))
    lines = (row for size in BATCH_SIZES for row in rows(encoders, texts, size))
    heads = ["", "batch", "pieces/s", f"times {PEER}", "cores", "pieces a core second"]
    print_table([*heads, "texts that differ"], lines)


if __name__ == "__main__":
    app.run(main)
