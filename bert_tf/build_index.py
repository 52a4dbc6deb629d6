"""Embeds documents and writes an index to search them with `python -m bert_tf.search`.

    python -m bert_tf.build_index --init_checkpoint=hf://sentence-transformers/all-MiniLM-L6-v2 \\
        --input_file='notes/*.txt' --output_dir=notes.index

Documents are rows of JSONL, CSV or TSV files (a BEIR corpus.jsonl is one), or passages of text
files: see `search/documents.py`. With --add, the documents are added to an existing index, which
records its model; --init_checkpoint gives its path if it has moved. --language without
--input_file records the language of an existing index for its search by words. The index is written
atomically; a build that is stopped leaves nothing at its path.
"""

import itertools
import pathlib
import time
import typing
from collections.abc import Iterable, Iterator

from absl import flags, logging

from bert_tf.config import config_flags
from bert_tf.config.given_flags import check_given, check_needs
from bert_tf.search.index_flags import define_index_flags
from bert_tf.system.files import new_folder_path
from bert_tf.system.model_names import absolute_path
from bert_tf.system.progress import Progress
from bert_tf.text.text_counts import Remedy, counting_texts

if typing.TYPE_CHECKING:
    from bert_tf.search.documents import Document
    from bert_tf.search.manifest import Manifest
    from bert_tf.search.segments import Batch

define_index_flags()
ADD = flags.DEFINE_bool("add", False, "Add to the existing index.")
FAISS = flags.DEFINE_enum(
    "faiss",
    "",
    ["", "flat", "ivf_pq", "hnsw"],
    "Also write a FAISS index of this kind. Without --input_file: for the existing index.",
)
FLAGS = flags.FLAGS
INPUT_FLAGS = (
    "init_checkpoint",
    "dtype",
    "similarity",
    "pooling",
    "max_seq_length",
    "batch_size",
    "add",
    "keep_texts",
)
CHUNK_BATCHES = 32  # Texts of similar length share a batch, within this many batches.


def main(_: list[str]) -> None:
    check_given("output_dir", advice="give the directory of the index")
    folder = FLAGS.output_dir
    is_language_alone = FLAGS["language"].present and not FLAGS.input_file
    if not FLAGS.input_file and not FAISS.value and not is_language_alone:
        raise ValueError("Give documents as --input_file.")
    if FLAGS.input_file:
        if not (FLAGS.init_checkpoint or ADD.value):
            raise ValueError("Give the model that embeds the documents as --init_checkpoint.")
        for name in ("dtype", "similarity", "pooling", "language"):
            if ADD.value and FLAGS[name].present:
                raise ValueError(f"--{name} is fixed by the index with --add; leave it out.")
        if not ADD.value:
            new_folder_path(folder, "give --add, or another --output_dir")
        write(FLAGS.init_checkpoint, folder)
    else:
        check_needs(dict.fromkeys(INPUT_FLAGS, "input_file"))
    if is_language_alone:
        from bert_tf.search.index import record_language

        record_language(folder, FLAGS.language)
        logging.info("%s: words are those of --language=%s.", folder, FLAGS.language)
    if FAISS.value:
        from bert_tf.search.faiss_index import build_faiss
        from bert_tf.search.index import Index

        try:
            logging.info("Wrote %s", build_faiss(Index(folder), FAISS.value))
        except (ValueError, OSError, MemoryError, RuntimeError) as error:
            if not FLAGS.input_file:
                raise
            raise ValueError(
                f"{folder} is written, but not its FAISS index: {error} To add it, give "
                "--output_dir and --faiss alone."
            ) from error


def write(model: str, folder: str) -> None:
    """Embeds the documents, and writes an index or adds them to an existing index."""
    from bert_tf.search.documents import read_documents
    from bert_tf.search.embedding import SearchEmbedder, embedder_of_index, stated_similarity
    from bert_tf.search.index import add_to_index, build_index
    from bert_tf.search.manifest import Manifest

    # Documents are read twice, so that a fault in them is found before the model is loaded.
    if ADD.value:
        length = length_of_added(Manifest.read(pathlib.Path(folder)), folder)
        count = count_documents(folder)
        embedder = embedder_of_index(folder, model, length, FLAGS.batch_size)
    else:
        count = count_documents(folder)
        embedder = SearchEmbedder(model, FLAGS.pooling, FLAGS.max_seq_length, FLAGS.batch_size)
    start = time.monotonic()
    embedded = batches(embedder.documents, read_documents(FLAGS.input_file), count)
    embedding = embedder.model.embedding
    with counting_texts("") as text_counts:
        if ADD.value:
            manifest = add_to_index(folder, embedded, model=embedder.fingerprint)
        else:
            manifest = build_index(
                folder,
                embedded,
                model=embedder.fingerprint,
                source=absolute_path(model),
                dtype=FLAGS.dtype,
                similarity=FLAGS.similarity or stated_similarity(embedding.similarity),
                pooling=FLAGS.pooling,
                max_seq_length=embedding.max_seq_length,
                language=FLAGS.language,
            )
    seconds = time.monotonic() - start
    size = sum(size for size, _ in manifest.files.values()) / 1e6
    logging.info(
        "%s: %d documents in %.0f s (%.1f/s), %d in all, %.1f MB.",
        folder,
        count,
        seconds,
        count / seconds,
        sum(manifest.segments),
        size,
    )
    if manifest.dtype == "int8":
        log_int8_recall(folder)
    positions = embedder.model.config.longest_row
    text_counts.log("build_index", Remedy("--max_seq_length={}", positions))


def log_int8_recall(folder: str) -> None:
    """Logs the share of the nearest documents that a search of the int8 vectors finds."""
    from bert_tf.search.index import RECALL_K, RECALL_QUERIES, Index

    index = Index(folder, checks_files=False)
    logging.info(
        "int8 finds %.4f of the %d nearest documents that exact search finds (%d documents as "
        "queries).",
        index.int8_recall(),
        min(RECALL_K, len(index)),
        min(RECALL_QUERIES, len(index)),
    )


def length_of_added(manifest: "Manifest", folder: str) -> int:
    """Returns the tokens that texts are cut to, as in the index; 0: the model's default."""
    recorded = manifest.max_seq_length
    if recorded and FLAGS.max_seq_length not in (0, recorded):
        raise ValueError(
            f"--max_seq_length={FLAGS.max_seq_length}, but the texts of {folder} were cut to "
            f"{recorded} tokens; leave it out."
        )
    return recorded or FLAGS.max_seq_length


def count_documents(folder: str) -> int:
    """Counts the documents, and finds faults in them before they are embedded."""
    from bert_tf.search.documents import read_documents
    from bert_tf.search.faiss_index import check_faiss
    from bert_tf.search.index import Index

    # Only the ids are needed here; `add_to_index` compares the checksums.
    existing = set(Index(folder, checks_files=False).ids) if ADD.value else set()
    count = 0
    for document in read_documents(FLAGS.input_file):
        if document.id in existing:
            raise ValueError(f"{folder} already has a document {document.id!r}; leave it out.")
        count += 1
    if not count:
        raise ValueError(
            f"--input_file={FLAGS.input_file} has no documents; give JSONL, CSV, TSV or text files."
        )
    if FAISS.value:
        check_faiss(FAISS.value, len(existing) + count)
    return count


def batches(embed: typing.Any, documents: Iterable["Document"], count: int) -> Iterator["Batch"]:
    """Yields `count` documents, embedded."""
    from bert_tf.search.segments import Batch

    progress = Progress("embedding", total=count, unit="texts")
    documents = iter(documents)
    while chunk := list(itertools.islice(documents, CHUNK_BATCHES * FLAGS.batch_size)):
        ids = [document.id for document in chunk]
        texts = [document.text for document in chunk]
        yield Batch(ids, embed(texts), texts if FLAGS.keep_texts else None)
        progress.add(len(chunk))


if __name__ == "__main__":
    config_flags.run(main, kept="Only a finished index is kept.")
