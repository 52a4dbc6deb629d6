"""Writes an encoder's features of tokens, or embeddings of texts, as JSON lines.

    python -m bert_tf.extract_features --input_file=input.txt --output_file=features.jsonl \\
        --init_checkpoint=uncased_L-12_H-768_A-12.zip --layers=-1,-2,-3,-4
    python -m bert_tf.extract_features --input_file=input.txt --output_file=embeddings.jsonl \\
        --init_checkpoint=all-MiniLM-L6-v2 --pooling=own

A line of the input is a text, or `a ||| b` for a pair of texts. The first command writes lines in
google-research/bert's format: each token with its vectors, rounded to 6 digits. The second writes
one vector per text, in full float32 precision; in Python that is `bert_tf.BertEmbedder.encode`.

Differs from the original: texts of similar length share a batch, which is padded to its longest
text and not to max_seq_length; casing and configuration come from the checkpoint; an existing
output file is not overwritten.
"""

import functools
import json
import pathlib
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from absl import flags, logging

from bert_tf.config import DataConfig, ModelConfig, TrainingConfig, config_flags
from bert_tf.config.given_flags import check_given, check_needs, check_new_file
from bert_tf.config.pooled_layers import POOLINGS
from bert_tf.corpus.corpus_format import open_decompressed
from bert_tf.corpus.text_lines import read_whole_lines
from bert_tf.system.files import atomic_write
from bert_tf.system.progress import Progress
from bert_tf.tasks.base.examples.tables import is_table
from bert_tf.text.packing import PackedText
from bert_tf.text.text_counts import Remedy, counting_texts
from bert_tf.text.tokenization import AnyVocab
from bert_tf.text.typed_tokens import log_typed_tokens

if typing.TYPE_CHECKING:
    from bert_tf.tasks.embedding.text_encoder import PromptedEmbedder, TextEncoder

FLAGS = flags.FLAGS
_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")
# Texts are sorted by length, and results are kept in memory, over this many full batches.
CHUNK_BATCHES = 4
DECIMALS = 6
ToLine = Callable[[int, PackedText, np.ndarray], str]


def define_program_flags() -> None:
    config_flags.define_flags(ModelConfig, only=("do_lower_case",))
    config_flags.define_flags(DataConfig, only=("vocab_file", "max_seq_length"))
    config_flags.define_flags(
        TrainingConfig,
        only=("init_checkpoint", "bert_config_file", "allow_unexpected", "precision"),
    )
    flags.DEFINE_string("input_file", "", "One text per line, or `a ||| b`; also .gz, .xz or .bz2.")
    flags.DEFINE_string(
        "output_file", "", "File to write, with one JSON object per line of the input."
    )
    flags.DEFINE_string("layers", "-1,-2,-3,-4", "Layers to write; -1 is the last, 0 the first.")
    flags.DEFINE_integer("batch_size", 32, "Texts per batch.", lower_bound=1)
    flags.DEFINE_enum(
        "pooling",
        "",
        ("", "own", *POOLINGS),
        "Write one embedding per text, the last layer pooled over its tokens; own: as defined by a "
        "sentence-transformers folder or a run of run_retriever. Empty: features of every token.",
    )
    flags.DEFINE_bool("normalize", False, "Scale each embedding to length 1.")


def main(_: list[str]) -> None:
    check_flags()

    import keras
    import tensorflow as tf

    from bert_tf.network.pooling import pooling_of
    from bert_tf.tasks.embedding.text_encoder import (
        PromptedEmbedder,
        TextEncoder,
        layers_of,
        pooled,
        read_encoder,
    )
    from bert_tf.training.precision import choose_precision

    training = config_flags.from_flags(TrainingConfig)
    policy = choose_precision(training, tf.distribute.get_strategy()).precision
    keras.mixed_precision.set_global_policy(policy)
    checkpoint = read_encoder(
        FLAGS.init_checkpoint,
        FLAGS.bert_config_file,
        FLAGS.vocab_file,
        FLAGS.allow_unexpected,
        config_flags.given(ModelConfig),
    )
    sizes = {"max_seq_length": FLAGS.max_seq_length, "batch_size": FLAGS.batch_size}
    to_line: ToLine = embedding_line
    if FLAGS.pooling == "own":
        if not FLAGS["max_seq_length"].present:  # Use the length of the model.
            del sizes["max_seq_length"]
        model: TextEncoder | PromptedEmbedder = PromptedEmbedder(checkpoint, **sizes)
    elif FLAGS.pooling:
        if checkpoint.embedding is not None:
            logging.info("%s defines its pooling; use it by --pooling=own.", FLAGS.init_checkpoint)
        pooling = pooling_of(FLAGS.pooling, checkpoint.config.pooled_token)
        select = pooled(pooling, FLAGS.normalize)
        model = TextEncoder.from_checkpoint(checkpoint, select, **sizes)
    else:
        layers = parse_layers(FLAGS.layers, checkpoint.config.num_hidden_layers)
        model = TextEncoder.from_checkpoint(checkpoint, layers_of(layers), **sizes)
        to_line = functools.partial(features_line, layers=layers, vocab=model.tokenizer.vocab)
    write_lines(model, to_line, checkpoint.config.longest_row)


def write_lines(model: "TextEncoder | PromptedEmbedder", to_line: ToLine, positions: int) -> None:
    """Writes the output of a model for each line of the input."""
    log_typed_tokens(read_texts(FLAGS.input_file), model.tokenizer.vocab)
    rows = (model.pack(*texts) for texts in read_texts(FLAGS.input_file))
    # Counted in advance, for the remaining time in the log.
    with open_decompressed(FLAGS.input_file) as texts:
        num_texts = sum(1 for _ in texts)
    target = pathlib.Path(FLAGS.output_file).expanduser()
    with atomic_write(target) as file:
        with counting_texts(FLAGS.input_file, remedy=Remedy("--max_seq_length={}", positions)):
            for line in json_lines(model, rows, num_texts, to_line):
                file.write(line + "\n")
    size = target.stat().st_size
    logging.info("Wrote %s, %.1f MB.", FLAGS.output_file, size / 1e6)


def check_flags() -> None:
    """Raises ValueError for errors that can be found before a model is read."""
    check_given("input_file", "output_file", "init_checkpoint")
    if not pathlib.Path(FLAGS.input_file).is_file():
        raise ValueError(
            f"--input_file {FLAGS.input_file} is not a file; give a file with one text per line."
        )
    if is_table(FLAGS.input_file):
        raise ValueError(
            f"--input_file={FLAGS.input_file} is a table, expected a text on each line: write the "
            "column of texts alone into a .txt. bert_tf.embed_texts reads tables with the columns "
            "id and text."
        )
    check_new_file("output_file")
    if FLAGS.pooling and FLAGS["layers"].present:
        raise ValueError("--pooling uses the last layer; leave --layers or --pooling out.")
    parse_layers(FLAGS.layers, sys.maxsize)  # Checks the form; the number of layers is unknown yet.
    if FLAGS.normalize and FLAGS.pooling == "own":
        raise ValueError("--pooling=own normalizes only if the model does; leave --normalize out.")
    check_needs({"normalize": "pooling"})


def parse_layers(text: str, num_layers: int) -> list[int]:
    """Returns the numbers in a list such as `-1,-2`."""
    try:
        layers = list(map(int, text.split(",")))
    except ValueError:
        raise ValueError(f"--layers is {text!r}; expected numbers like -1,-2,-3,-4.") from None
    wrong = [layer for layer in layers if not -num_layers <= layer < num_layers]
    if wrong:
        raise ValueError(
            f"--layers: received {wrong}, but the model has {num_layers} layers; expected "
            f"{-num_layers} .. {num_layers - 1}."
        )
    return layers


def read_texts(path: str) -> Iterator[tuple[str, str]]:
    """Yields both texts of each line; the second is empty if there is only one."""
    with open_decompressed(path) as file:
        for _, line in read_whole_lines(file, path, 0, sys.maxsize):
            yield split_pair(line)


def split_pair(line: str) -> tuple[str, str]:
    """Splits a line at its last ` ||| `, as google-research/bert does.

    Example: split_pair("a ||| b") == ("a", "b"); split_pair("a") == ("a", "").
    """
    line = line.strip()
    match = _PAIR.match(line)
    return (match[1], match[2]) if match else (line, "")


def json_lines(
    model: "TextEncoder | PromptedEmbedder",
    rows: Iterable[PackedText],
    num_rows: int,
    to_line: ToLine,
) -> Iterator[str]:
    """Yields one line per text, in order; only a few texts are in memory at once."""
    index = 0
    # Tokens are counted, so that long texts do not need more memory.
    chunks = _chunks(rows, CHUNK_BATCHES * model.batch_size * model.max_seq_length)
    progress = Progress("features", total=num_rows, unit="texts")
    for chunk in chunks:
        for row, values in zip(chunk, model.run(chunk), strict=True):
            yield to_line(index, row, values)
            index += 1
        progress.add(len(chunk))


def _chunks(rows: Iterable[PackedText], max_tokens: int) -> Iterator[list[PackedText]]:
    chunk: list[PackedText] = []
    num_tokens = 0
    for row in rows:
        chunk.append(row)
        num_tokens += len(row.ids)
        if num_tokens >= max_tokens:
            yield chunk
            chunk = []
            num_tokens = 0
    if chunk:
        yield chunk


def features_line(
    index: int, row: PackedText, values: np.ndarray, *, layers: Sequence[int], vocab: AnyVocab
) -> str:
    """Returns a line in google-research/bert's format; `values` are float32 [T, layers, D]."""
    # A float32 times a million is exact in float64, so this rounds as the original's round().
    rounded = np.round(values[: len(row.ids)].astype(np.float64), DECIMALS).tolist()
    features = []
    for token_id, vectors in zip(row.ids, rounded, strict=True):
        token_layers = []
        for layer, numbers in zip(layers, vectors, strict=True):
            token_layers.append({"index": layer, "values": numbers})
        features.append({"token": vocab.tokens[token_id], "layers": token_layers})
    return json.dumps({"linex_index": index, "features": features})


def embedding_line(index: int, _: PackedText, values: np.ndarray) -> str:
    """Returns the line for an embedding, float32 [D]."""
    # The shortest decimals that reproduce each float32; Python would print those of a float64.
    numbers = list(map(float, values.astype(str)))
    return json.dumps({"linex_index": index, "embedding": numbers})


if __name__ == "__main__":
    define_program_flags()
    config_flags.run(main)
