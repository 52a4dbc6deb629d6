"""Embeds many documents in shards, on one machine or on many; an interrupted run can resume.

    python -m bert_tf.embed_texts --init_checkpoint=hf://sentence-transformers/all-MiniLM-L6-v2 \\
        --input_file='corpus/*.jsonl.gz' --output_dir=vectors --index_dir=corpus.index

Documents are those of `bert_tf.build_index`. The same command resumes a killed run, with any
--runner; all runners write the same files. With --index_dir or --qdrant the vectors are then
written to an index.
"""

import hashlib
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags, logging

from bert_tf.config import DataConfig, config_flags
from bert_tf.config.given_flags import check_given, check_needs
from bert_tf.search import bulk
from bert_tf.search.index_flags import define_index_flags, index_options
from bert_tf.search.runners import RUNNERS, run
from bert_tf.system.checksums import file_crc
from bert_tf.system.files import exclusive, new_folder_path, read_json, real_path, write_json
from bert_tf.system.progress import Progress

define_index_flags()
config_flags.define_flags(DataConfig, only=("num_workers",))
RUNNER = flags.DEFINE_enum(
    "runner", "local", RUNNERS, "Processes of this machine, Apache Beam, or Spark. Same files."
)
BEAM = flags.DEFINE_string(
    "beam_options", "", "Beam's options; empty: num_workers processes on this machine."
)
SPARK = flags.DEFINE_string(
    "spark_options",
    "",
    "Spark's configuration, for example 'spark.master=spark://host:7077 spark.executor.memory=4g'; "
    "empty: num_workers concurrent tasks on this machine.",
)
SHARD = flags.DEFINE_integer("shard_size", 8192, "Documents in a shard.", 1, 1 << 17)
INDEX = flags.DEFINE_string("index_dir", "", "Index to write after embedding.")
QDRANT = flags.DEFINE_string("qdrant", "", "Qdrant to write to: URL of a server, or a folder.")
COLLECTION = flags.DEFINE_string(
    "collection",
    "documents",
    "Name to search in Qdrant, an alias of the written collection.",
)
FLAGS = flags.FLAGS
# The flags of which each flag needs one.
NEEDS = {
    "dtype": "index_dir",
    "rescore": "index_dir",
    "dimensions": "index_dir",
    "language": "index_dir",
    "similarity": "index_dir qdrant",
    "keep_texts": "index_dir qdrant",
    "collection": "qdrant",
    "beam_options": "runner=beam",
    "spark_options": "runner=spark",
}


def main(_: list[str]) -> None:
    check_given("init_checkpoint", "output_dir", "input_file")
    check_needs(NEEDS)
    if "://" not in QDRANT.value and ":" in QDRANT.value:
        raise ValueError(f"--qdrant={QDRANT.value}: give the URL of a server with http://.")

    from bert_tf.search.embedding import stated_similarity
    from bert_tf.search.qdrant import open_qdrant, write_qdrant

    if QDRANT.value:
        open_qdrant(QDRANT.value, COLLECTION.value).close()  # Fail now instead of after embedding.
    job, similarity = bulk.make_job(
        FLAGS.input_file,
        FLAGS.init_checkpoint,
        FLAGS.output_dir,
        pooling=FLAGS.pooling,
        max_seq_length=FLAGS.max_seq_length,
        batch_size=FLAGS.batch_size,
        shard_size=SHARD.value,
    )
    if INDEX.value or QDRANT.value:
        similarity = FLAGS.similarity or stated_similarity(similarity)
    if INDEX.value:
        check_index(job)
    folder = pathlib.Path(job.folder)
    with exclusive(folder / ".lock", f"writing {folder}"):
        job.open()
        counts = read(job)
        # Checked again under the lock: another process may have written the index before.
        has_index = INDEX.value and check_index(job)
        embed(job, counts)
        if INDEX.value and not has_index:
            write_index(job, list(counts), similarity)
        if QDRANT.value:
            # Each job has its own collection; the old one is searched until the new is complete.
            version = f"{file_crc(folder / 'job.json')}-{similarity}"
            embedded = bulk.batches(job, list(counts), FLAGS.keep_texts)
            count = write_qdrant(QDRANT.value, COLLECTION.value, version, embedded, similarity)
            logging.info("%s: %d points in %s.", QDRANT.value, count, COLLECTION.value)


def run_step(step: Any, job: bulk.Job, keys: Sequence[Any]) -> Iterator[Any]:
    options = {"beam": BEAM.value, "spark": SPARK.value}.get(RUNNER.value, "")
    return run(RUNNER.value, step, job, keys, FLAGS.num_workers, options)


def read(job: bulk.Job) -> dict[str, int]:
    """Reads the remaining input files; returns the number of documents in each shard."""
    start = time.monotonic()
    for _ in run_step(bulk.read_file, job, range(len(job.inputs))):
        pass
    counts = job.shards()
    total = sum(counts.values())
    if not total:
        raise ValueError(f"--input_file={FLAGS.input_file} has no documents.")
    bulk.check_ids(job, list(counts))
    logging.info(
        "%d documents of %d files in %d shards, read in %.0f s.",
        total,
        len(job.inputs),
        len(counts),
        time.monotonic() - start,
    )
    return counts


def embed(job: bulk.Job, counts: dict[str, int]) -> None:
    """Embeds the shards without vectors."""
    # Damaged vectors are embedded again as well, but only reading them would show that.
    todo = sum(count for name, count in counts.items() if not job.vectors(name).exists())
    logging.info("%d documents to embed.", todo)
    start = time.monotonic()
    progress = Progress("embedding", total=todo, unit="texts")
    # Beam returns no counts, and Spark returns all at the end.
    for count in run_step(bulk.embed_shard, job, list(counts)):
        progress.add(int(count))
    # Counted on the disk, because Beam returns no results.
    if lost := [name for name in counts if not job.vectors(name).exists()]:
        raise OSError(f"{job.vectors(lost[0])} is missing; run the same command again.")
    bulk.log_text_counts(job, list(counts))
    seconds = time.monotonic() - start
    logging.info("%s: %d texts in %.0f s (%.1f/s).", job.folder, todo, seconds, todo / seconds)


def check_index(job: bulk.Job) -> bool:
    """Returns whether this job has already written the index, with the same flags.

    Raises:
      ValueError: if the folder has other files.
    """
    from bert_tf.search.manifest import Manifest

    folder = index_folder()
    if folder == real_path(job.folder):
        raise ValueError(f"--index_dir and --output_dir are both {folder}; name another index.")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        new_folder_path(folder)
        return False
    if (folder / "manifest.json").exists() and index_record(job).exists():
        manifest = Manifest.read(folder)
        record = {"rescore": "", "dimensions": 0, **read_json(index_record(job))}
        # A killed build recorded no vectors yet; documents may have been added later.
        crcs = record.pop("vectors", [])
        is_same = manifest.vector_crcs()[: len(crcs)] == crcs
        if is_same and manifest.model == job.model and record == index_values():
            logging.info("%s: the index already exists.", folder)
            return True
    raise ValueError(
        f"{folder} already exists, and is not an index of these documents with these flags; name "
        "another folder, or remove it."
    )


def index_folder() -> pathlib.Path:
    """Returns the path of --index_dir, with ~ expanded and links followed."""
    return real_path(INDEX.value)


def index_values() -> dict[str, Any]:
    """Returns the settings of an index besides its documents."""
    return {
        **index_options(),
        "index": str(index_folder()),
        "similarity": FLAGS.similarity,
        "keep_texts": FLAGS.keep_texts,
    }


def index_record(job: bulk.Job) -> pathlib.Path:
    """Returns the record of the index that a job writes; it is written before the index."""
    digest = hashlib.sha256(str(index_folder()).encode()).hexdigest()
    return pathlib.Path(job.folder, f".index-{digest[:12]}.json")


def write_index(job: bulk.Job, names: list[str], similarity: str) -> None:
    """Writes the shards into an index."""
    from bert_tf.search.index import build_index

    folder = index_folder()
    # First without checksums, so that an index that appears before a kill is recognized.
    write_json(index_record(job), index_values())
    manifest = build_index(
        folder,
        bulk.batches(job, names, FLAGS.keep_texts),
        **index_options(),
        model=job.model,
        source=job.source,
        similarity=similarity,
        pooling=job.pooling,
        max_seq_length=job.max_seq_length,
    )
    write_json(index_record(job), {**index_values(), "vectors": manifest.vector_crcs()})
    size = manifest.size / 1e6
    logging.info("%s: an index of %d documents, %.1f MB.", folder, manifest.count, size)


if __name__ == "__main__":
    config_flags.run(main)
