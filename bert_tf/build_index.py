"""Embeds documents and writes an index to search them with `python -m bert_tf.search`.

    python -m bert_tf.build_index --init_checkpoint=all-MiniLM-L6-v2 \\
        --input_file='notes/*.txt' --output_dir=notes.index

Documents are rows of JSONL, CSV or TSV files (a BEIR corpus.jsonl is one), or passages of text
files: see `search/documents.py`. With --add, the documents are added to an existing index of the
same model. The index appears whole or not at all; a build that is stopped leaves nothing at its
path.
"""

import itertools
import pathlib
import time
import typing
from collections.abc import Iterable, Iterator

from absl import flags, logging

from bert_tf import config_flags
from bert_tf.checkpoints.hub import absolute_path
from bert_tf.config import TrainingConfig

if typing.TYPE_CHECKING:
    from bert_tf.search.documents import Document
    from bert_tf.search.index import Batch

config_flags.define_flags(TrainingConfig, only=("init_checkpoint", "output_dir"))
INPUT = flags.DEFINE_string("input_file", "", "Comma-separated files and globs of documents.")
DTYPE = flags.DEFINE_enum(
    "dtype",
    "float32",
    ["float32", "float16", "int8"],
    "Format of the vectors; int8 takes a quarter of the memory and rescores the best exactly.",
)
SIMILARITY = flags.DEFINE_enum(
    "similarity", "", ["", "cosine", "dot"], "How vectors are compared; empty: the model's choice."
)
POOLING = flags.DEFINE_enum(
    "pooling",
    "",
    ["", "cls", "mean", "max"],
    "Pooling; empty: that of the model's folder, else mean.",
)
LENGTH = flags.DEFINE_integer(
    "max_seq_length", 0, "Pieces per text; 0: the value in the model's folder, else 256.", 0
)
BATCH = flags.DEFINE_integer("batch_size", 32, "Texts per batch.", 1)
ADD = flags.DEFINE_bool("add", False, "Add to the existing index.")
TEXTS = flags.DEFINE_bool(
    "keep_texts", True, "Store the texts, so that they can be shown and reranked."
)
FAISS = flags.DEFINE_enum(
    "faiss",
    "",
    ["", "flat", "ivf_pq", "hnsw"],
    "Also write a FAISS index of this kind. Without --input_file: for the existing index.",
)
SECONDS_BETWEEN_LINES = 10.0
CHUNK_BATCHES = 32  # texts of like length are embedded together, over this many batches


def main(_: list[str]) -> None:
    training = config_flags.from_flags(TrainingConfig)
    folder = training.output_dir
    if not folder:
        raise ValueError("Give the directory of the index as --output_dir.")
    if not INPUT.value and not FAISS.value:
        raise ValueError("Give documents as --input_file.")
    if INPUT.value:
        if not training.init_checkpoint:
            raise ValueError("Give the model that embeds the documents as --init_checkpoint.")
        path = pathlib.Path(folder)
        for name in ("dtype", "similarity", "pooling"):
            if ADD.value and flags.FLAGS[name].present:
                raise ValueError(f"--{name} is fixed by the index with --add; leave it out.")
        if not ADD.value and path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ValueError(f"{folder} exists already; give --add, or another --output_dir.")
        write(training.init_checkpoint, folder)
    if FAISS.value:
        from bert_tf.search.faiss_index import build_faiss
        from bert_tf.search.index import Index

        logging.info("Wrote %s", build_faiss(Index(folder), FAISS.value))


def write(model: str, folder: str) -> None:
    """Embeds the documents and writes them, or adds them to what is there."""
    from bert_tf.search.documents import read_documents
    from bert_tf.search.embedding import SearchEmbedder, stated_similarity
    from bert_tf.search.index import Index, Manifest, add_to_index, build_index

    documents = read_documents(INPUT.value)
    first = next(documents, None)
    if first is None:
        raise ValueError(
            f"--input_file={INPUT.value} holds no documents; give JSONL, CSV, TSV or text files."
        )
    pooling = Manifest.read(pathlib.Path(folder)).pooling if ADD.value else POOLING.value
    embedder = SearchEmbedder(model, pooling, LENGTH.value, BATCH.value)
    start, before = time.monotonic(), 0
    made = batches(embedder.documents, itertools.chain([first], documents))
    if ADD.value:
        before = len(Index(folder, embedder.fingerprint, checks_files=False))
        manifest = add_to_index(folder, made, model=embedder.fingerprint)
    else:
        manifest = build_index(
            folder,
            made,
            model=embedder.fingerprint,
            source=absolute_path(model),
            dtype=DTYPE.value,
            similarity=SIMILARITY.value or stated_similarity(embedder.model.embedding.similarity),
            pooling=POOLING.value,
        )
    count, seconds = sum(manifest.segments) - before, time.monotonic() - start
    size = sum(size for size, _ in manifest.files.values()) / 1e6
    logging.info(
        "%s: %d documents in %.0f s (%.1f/s), %d in all, %.1f MB.",
        *(folder, count, seconds, count / seconds, sum(manifest.segments), size),
    )


def batches(embed: typing.Any, documents: Iterable["Document"]) -> Iterator["Batch"]:
    """Yields embedded documents; logs their number every few seconds."""
    from bert_tf.search.index import Batch

    start = last = time.monotonic()
    done = 0
    documents = iter(documents)
    while chunk := list(itertools.islice(documents, CHUNK_BATCHES * BATCH.value)):
        ids, texts = [document.id for document in chunk], [document.text for document in chunk]
        yield Batch(ids, embed(texts), texts if TEXTS.value else None)
        done, now = done + len(chunk), time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            logging.info("%d documents, %.1f a second.", done, done / (now - start))


if __name__ == "__main__":
    config_flags.run(main)
