"""Embeds documents and writes an index to search them with `python -m bert_tf.search`.

    python -m bert_tf.build_index --init_checkpoint=hf://sentence-transformers/all-MiniLM-L6-v2 \\
        --input_file='notes/*.txt' --output_dir=notes.index

Documents are rows of JSONL, CSV or TSV files (a BEIR corpus.jsonl is one), or passages of text
files: see `search/documents.py`. With --add, the documents are added to an existing index, which
records its model; --init_checkpoint gives its path if it has moved. --replace is like --add, but
documents of the index with the same ids are replaced. The index is written atomically; a build that
is stopped leaves nothing at its path.

A model of late interaction makes a vector of each token: --output_dir then names a file, for
`bert_tf.search` and `TokenIndex`.

Without --input_file, an existing index is changed: --delete=FILE deletes the documents whose ids
are the lines of FILE, --compact frees the space of deleted documents, and --language records the
language for its search by words. Searches that are running keep the index as they opened it.
"""

import contextlib
import dataclasses
import itertools
import time
import typing
from collections.abc import Collection, Iterable, Iterator

from absl import flags, logging

from bert_tf.config import config_flags
from bert_tf.config.given_flags import check_given, check_needs, check_unused
from bert_tf.search.index_flags import define_index_flags, index_options
from bert_tf.search.passages import PassageEmbedder, PassageRule, document_of
from bert_tf.system.files import check_writable, new_folder_path, read_lines, real_path
from bert_tf.system.model_names import absolute_path
from bert_tf.system.progress import Progress
from bert_tf.text.text_counts import Remedy, counting_texts

if typing.TYPE_CHECKING:
    from bert_tf.search.documents import Document
    from bert_tf.search.embedding import SearchEmbedder
    from bert_tf.search.manifest import Manifest
    from bert_tf.search.segments import Batch
    from bert_tf.search.token_vectors import TokenIndex

define_index_flags()
ADD = flags.DEFINE_bool("add", False, "Add to the existing index.")
REPLACE = flags.DEFINE_bool("replace", False, "Like --add, but replace documents of the same ids.")
PASSAGES = flags.DEFINE_integer(
    "passages", 0, "Split documents into passages of this many tokens; 0: no split.", 0
)
OVERLAP = flags.DEFINE_integer(
    "passage_overlap", 0, "Tokens that a passage shares with the one before.", 0
)
LATE = flags.DEFINE_bool(
    "late_chunking",
    False,
    "Compute a document in one pass, and a passage as the mean of its tokens.",
)
POOL_FACTOR = flags.DEFINE_float(
    "pool_factor",
    1.0,
    "Late interaction: keep one vector for this many tokens of a document; 1: all.",
    1.0,
)
PROTECTED = flags.DEFINE_integer(
    "protected_tokens", 1, "First tokens of a document that --pool_factor does not pool.", 0
)
DELETE = flags.DEFINE_string("delete", "", "File of ids, one a line, to delete from the index.")
COMPACT = flags.DEFINE_bool("compact", False, "Free the space of deleted documents.")
FAISS = flags.DEFINE_enum(
    "faiss",
    "",
    ["", "flat", "ivf_pq", "hnsw"],
    "Also write a FAISS index of this kind. Without --input_file: for the existing index.",
)
FLAGS = flags.FLAGS
# Of indexes with one vector for each text or passage.
SETTINGS = (
    "rescore",
    "dimensions",
    "similarity",
    "pooling",
    "passages",
    "passage_overlap",
    "late_chunking",
)
FIXED_FLAGS = ("dtype", "pool_factor", "protected_tokens", *SETTINGS)  # by an index to add to
INPUT_FLAGS = (
    *FIXED_FLAGS,
    "init_checkpoint",
    "max_seq_length",
    "batch_size",
    "add",
    "replace",
    "keep_texts",
)
# Those without effect on token vectors.
VECTOR_FLAGS = (*SETTINGS, "language", "compact", "faiss")
REPLACED = "%s: replaced %d documents, added %d."
CHUNK_BATCHES = 32  # Texts of similar length share a batch, within this many batches.


def main(_: list[str]) -> None:
    check_given("output_dir", advice="give the directory of the index")
    folder = FLAGS.output_dir
    has_tokens = builds_tokens(folder)
    is_language_alone = bool(FLAGS["language"].present) and not (FLAGS.input_file or has_tokens)
    changes = (FAISS.value, DELETE.value, COMPACT.value, is_language_alone)
    if not FLAGS.input_file and not any(changes):
        raise ValueError("Give documents as --input_file.")
    if FLAGS.input_file:
        check_input_flags(folder)
        if has_tokens:
            check_writable(folder, "output_dir")
            write_tokens(FLAGS.init_checkpoint, folder)
        else:
            write(FLAGS.init_checkpoint, folder)
    else:
        check_needs(dict.fromkeys(INPUT_FLAGS, "input_file"))
        change(folder, has_tokens, is_language_alone)
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


def builds_tokens(output: str) -> bool:
    """Returns whether late interaction builds a file; ValueError for a flag without effect."""
    from bert_tf.checkpoints.hub import record_of
    from bert_tf.checkpoints.late_interaction import is_late_interaction
    from bert_tf.search.token_vectors import DTYPES

    model = FLAGS.init_checkpoint
    has_tokens = real_path(output).is_file()
    if model and not has_tokens:
        has_tokens = is_late_interaction(record_of(model))
    if not has_tokens:
        check_unused(("pool_factor", "protected_tokens"), "only late interaction pools tokens")
        return False
    check_unused(VECTOR_FLAGS, "files of token vectors (late interaction) have no such setting")
    if FLAGS["dtype"].present and FLAGS.dtype not in DTYPES:
        raise ValueError(f"--dtype={FLAGS.dtype}: token vectors are {' or '.join(DTYPES)}.")
    return True


def check_input_flags(folder: str) -> None:
    """Raises ValueError if flags of a build or an addition contradict each other."""
    is_change = ADD.value or REPLACE.value
    if ADD.value and REPLACE.value:
        raise ValueError("--add refuses documents that --replace replaces; give one of the two.")
    for name in ("delete", "compact"):
        if FLAGS[name].value:
            raise ValueError(f"--{name} changes an index without --input_file; run it alone.")
    if not (FLAGS.init_checkpoint or is_change):
        raise ValueError("Give the model that embeds the documents as --init_checkpoint.")
    for name in (*FIXED_FLAGS, "language"):
        if is_change and FLAGS[name].present:
            flag = "add" if ADD.value else "replace"
            raise ValueError(f"--{name} is fixed by the index with --{flag}; leave it out.")
    check_needs(dict.fromkeys(("passage_overlap", "late_chunking"), "passages"))
    if not is_change:
        from bert_tf.search.manifest import check_copies

        PassageRule(PASSAGES.value, OVERLAP.value, LATE.value).check()
        check_copies(FLAGS.dtype, FLAGS.rescore)
        new_folder_path(folder, "give another --output_dir, or for an index --add or --replace")


def change(folder: str, has_tokens: bool, has_language: bool) -> None:
    """Deletes documents, frees their space, and records a language, as the flags say."""
    from bert_tf.search.index import compact_index, delete_from_index, record_language
    from bert_tf.search.token_changes import delete_tokens

    if DELETE.value:
        lines = read_lines(DELETE.value, is_bounded=True)
        ids = [line for line in (line.removesuffix("\r") for line in lines) if line]
        if has_tokens:
            remaining = len(delete_tokens(folder, ids))
        else:
            remaining = delete_from_index(folder, ids).count
        logging.info("%s: deleted %d documents, %d remain.", folder, len(set(ids)), remaining)
    if COMPACT.value:
        manifest = compact_index(folder)
        logging.info("%s: %d documents, %.1f MB.", folder, manifest.count, manifest.size / 1e6)
    if has_language:
        record_language(folder, FLAGS.language)
        logging.info("%s: words are those of --language=%s.", folder, FLAGS.language)


def write(model: str, folder: str) -> None:
    """Embeds the documents, and writes an index or adds them to an existing index."""
    from bert_tf.search.index import Index

    rule = PassageRule(PASSAGES.value, OVERLAP.value, LATE.value)
    length = FLAGS.max_seq_length
    is_change = ADD.value or REPLACE.value
    existing: set[str] = set()
    if is_change:
        # Only the ids are needed here; `add_to_index` compares the checksums.
        index = Index(folder, checks_files=False)
        before = index.manifest
        rule = PassageRule(before.passages, before.passage_overlap, before.late_chunking)
        length = length_of_added(before.max_seq_length, folder)
        existing.update(index.ids)
        if rule.tokens:
            existing.update(map(document_of, index.ids))
    # Documents are read twice, so that a fault in them is found before TensorFlow is loaded.
    count = count_documents(folder, existing)

    from bert_tf.search.embedding import SearchEmbedder, embedder_of_index

    if is_change:
        embedder = embedder_of_index(folder, model, length, FLAGS.batch_size)
    else:
        embedder = SearchEmbedder(model, FLAGS.pooling, length, FLAGS.batch_size)
    start = time.monotonic()
    embedded = batches(PassageEmbedder(embedder, rule), count)
    with counting_texts("") as text_counts:
        manifest = write_batches(folder, embedded, embedder, rule, count)
    log_written(folder, count, start, manifest.count, manifest.size)
    text_counts.log("build_index", Remedy("--max_seq_length={}", embedder.model.config.longest_row))


def write_tokens(model: str, path: str) -> None:
    """Embeds the documents by late interaction, and writes a file of their token vectors."""
    from bert_tf.search.manifest import check_same_texts
    from bert_tf.search.token_changes import changing
    from bert_tf.search.token_vectors import DTYPES, TokenIndex, TokenOrigin

    origin = TokenOrigin("", "", FLAGS.max_seq_length, POOL_FACTOR.value, PROTECTED.value)
    dtype = FLAGS.dtype if FLAGS["dtype"].present else DTYPES[0]
    opened: contextlib.AbstractContextManager[TokenIndex]
    opened = contextlib.nullcontext(TokenIndex.of([], dtype, origin=origin))
    if ADD.value or REPLACE.value:
        opened = changing(path)
    with opened as before:
        if len(before):
            check_same_texts(bool(before.texts), FLAGS.keep_texts)
        rows = {name: row for row, name in enumerate(before.ids)}
        count = count_documents(path, rows)
        start = time.monotonic()
        added = embed_tokens(model, path, before, count)
        replaced = [rows[name] for name in added.ids if name in rows]
        if REPLACE.value:
            logging.info(REPLACED, path, len(replaced), count - len(replaced))
        index = TokenIndex.joined([before.without(replaced), added])
        index.save(real_path(path))
    log_written(path, count, start, len(index), real_path(path).stat().st_size)


def embed_tokens(model: str, path: str, before: "TokenIndex", count: int) -> "TokenIndex":
    """Returns the token vectors of the `count` documents, made as those of another index."""
    from bert_tf.search.embedding import embedder_of_tokens
    from bert_tf.search.token_vectors import TokenIndex

    origin = before.origin
    if len(before) and not origin.model:
        raise ValueError(f"{path} does not record its model; build it with build_index.")
    length = length_of_added(origin.max_seq_length, path)
    embedder, fingerprint = embedder_of_tokens(path, origin, model, length)
    origin = dataclasses.replace(
        origin,
        source=origin.source or absolute_path(model),
        model=fingerprint,
        max_seq_length=embedder.max_seq_length,
    )
    parts = []
    with counting_texts("") as text_counts:
        for chunk in chunks(count):
            texts = [document.text for document in chunk]
            vectors = embedder.encode_documents(
                texts, origin.pool_factor, origin.protected_tokens, batch_size=FLAGS.batch_size
            )
            ids = [document.id for document in chunk]
            kept = texts if FLAGS.keep_texts else ()
            parts.append(TokenIndex.of(vectors, before.vectors.dtype.name, ids, kept, origin))
    text_counts.log("build_index", Remedy("--max_seq_length={}", embedder.config.longest_row))
    return TokenIndex.joined(parts)


def log_written(path: str, count: int, start: float, total: int, size: int) -> None:
    """Logs how fast `count` documents were embedded, and the size of the index."""
    seconds = time.monotonic() - start
    logging.info(
        "%s: %d documents in %.0f s (%.1f/s), %d in all, %.1f MB.",
        path,
        count,
        seconds,
        count / seconds,
        total,
        size / 1e6,
    )


def write_batches(
    folder: str,
    embedded: Iterable["Batch"],
    embedder: "SearchEmbedder",
    rule: PassageRule,
    count: int,
) -> "Manifest":
    """Writes embedded documents as the flags say; returns the manifest of the index."""
    from bert_tf.search.embedding import stated_similarity
    from bert_tf.search.index import add_to_index, build_index, replace_in_index

    if ADD.value:
        return add_to_index(folder, embedded, model=embedder.fingerprint)
    if REPLACE.value:
        manifest, replaced = replace_in_index(folder, embedded, model=embedder.fingerprint)
        logging.info(REPLACED, folder, replaced, count - replaced)
        return manifest
    embedding = embedder.model.embedding
    manifest = build_index(
        folder,
        embedded,
        **index_options(),
        model=embedder.fingerprint,
        source=absolute_path(FLAGS.init_checkpoint),
        similarity=FLAGS.similarity or stated_similarity(embedding.similarity),
        pooling=FLAGS.pooling,
        max_seq_length=embedding.max_seq_length,
        passages=rule,
    )
    if manifest.recall is not None:
        logging.info(
            "%s vectors of %d numbers find %.4f of the ten nearest documents that float32 vectors "
            "of %d find; documents are the queries.",
            manifest.dtype,
            manifest.dimension,
            manifest.recall,
            manifest.model_dimension,
        )
    return manifest


def length_of_added(recorded: int, folder: str) -> int:
    """Returns the tokens that texts are cut to, as in the index; 0: the model's default."""
    if recorded and FLAGS.max_seq_length not in (0, recorded):
        raise ValueError(
            f"--max_seq_length={FLAGS.max_seq_length}, but the texts of {folder} were cut to "
            f"{recorded} tokens; leave it out."
        )
    return recorded or FLAGS.max_seq_length


def count_documents(folder: str, existing: Collection[str]) -> int:
    """Counts the documents, and finds faults in them before they are embedded.

    `existing` are the ids of documents that the index has.
    """
    from bert_tf.search.documents import read_documents
    from bert_tf.search.faiss_index import check_faiss

    count = 0
    for document in read_documents(FLAGS.input_file):
        if ADD.value and document.id in existing:
            raise ValueError(f"{folder} already has a document {document.id!r}; leave it out.")
        count += 1
    if not count:
        raise ValueError(
            f"--input_file={FLAGS.input_file} has no documents; give JSONL, CSV, TSV or text files."
        )
    if FAISS.value:
        check_faiss(FAISS.value, len(existing) + count)
    return count


def chunks(count: int) -> Iterator[list["Document"]]:
    """Yields the `count` documents in chunks, and shows the progress after each."""
    from bert_tf.search.documents import read_documents

    progress = Progress("embedding", total=count, unit="texts")
    documents = read_documents(FLAGS.input_file)
    while chunk := list(itertools.islice(documents, CHUNK_BATCHES * FLAGS.batch_size)):
        yield chunk
        progress.add(len(chunk))


def batches(embedder: PassageEmbedder, count: int) -> Iterator["Batch"]:
    """Yields the passages of `count` documents, embedded."""
    from bert_tf.search.segments import Batch

    for chunk in chunks(count):
        passages, vectors, keys = embedder.embed(chunk)
        ids = [passage.id for passage in passages]
        texts = [passage.text for passage in passages] if FLAGS.keep_texts else None
        yield Batch(ids, vectors, texts, keys)


if __name__ == "__main__":
    config_flags.run(main, kept="Only a finished index is kept.")
