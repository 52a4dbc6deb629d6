"""Embeds corpora too large for one machine in a day: in shards, each written once and checked.

    an input file -> shards of texts          (all ids differ)     a shard of texts -> its vectors
         `read_file`                           `check_ids`              `embed_shard`

Both steps are pure functions of `Job`. Their output is written atomically, with its checksum, and a
step whose output is complete is skipped. Any process, engine or machine can therefore run a step,
any number of times and concurrently: the files are equal.

    job.json               the settings that determine every byte; a different job is refused
    texts-00003-00001.jsonl    `_id` and `text`: shard 1 of input file 3
    ids-00003.npy          uint64, the sorted digests of the file's ids
    read-00003.json        done marker of reading: documents per shard, input file, checksums
    vectors-00003-00001.npy    float32 [n, D], in the order of the texts
    made-00003-00001.json      done marker of embedding: model, checksums of texts and vectors
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import os
import pathlib
import threading
import typing
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.search.documents import Document
from bert_tf.search.documents import read_file as read_documents
from bert_tf.search.fingerprint import fingerprint
from bert_tf.system.bounded_arrays import map_array
from bert_tf.system.checksums import drop, file_crc, file_crcs, is_whole, write_checksum
from bert_tf.system.files import atomic_write, read_json, write_json
from bert_tf.system.model_names import absolute_path
from bert_tf.tasks.base.examples.tables import list_tables
from bert_tf.text.text_counts import Remedy, TextCounts, counting_texts

if typing.TYPE_CHECKING:
    from bert_tf.search.embedding import SearchEmbedder
    from bert_tf.search.segments import Batch

DIGESTS_AT_ONCE = 1 << 27  # 1 GiB, and the same again while they are sorted
LOADING = threading.Lock()
JOB_FILE = "job.json"
LOCATIONS = ("folder", "base", "source")  # Paths, which do not affect the output.


@dataclasses.dataclass(frozen=True)
class Job:
    """The settings of a bulk embedding job; every worker gets the same ones.

    Attributes:
      folder: where all results go; absolute, and visible to all workers.
      base: the folder that relative names of input files start from.
      source: the model; an absolute path or a hub name.
      inputs: name, size and modification time (ns) of each input file.
      model: fingerprint of the model.
      pooling: pooling requested for the model; "": the model's default.
      max_seq_length: tokens a text is cut to.
      batch_size: texts per batch.
      shard_size: documents in a shard. The texts of a shard are batched by length, so this and
        `batch_size` affect the last bits of a vector.
    """

    folder: str
    base: str
    source: str
    inputs: tuple[tuple[str, int, int], ...]
    model: str
    pooling: str
    max_seq_length: int
    batch_size: int
    shard_size: int

    def path(self, kind: str, name: str, ending: str) -> pathlib.Path:
        return pathlib.Path(self.folder, f"{kind}-{name}.{ending}")

    def vectors(self, name: str) -> pathlib.Path:
        return self.path("vectors", name, "npy")

    def texts(self, name: str) -> pathlib.Path:
        return self.path("texts", name, "jsonl")

    def shards(self) -> dict[str, int]:
        """Returns the document count of each shard in input order; all files must be read."""
        counts: dict[str, int] = {}
        for number in range(len(self.inputs)):
            file_counts = read_json(read_marker(self, number))["documents"]
            for shard, count in enumerate(file_counts):
                counts[shard_name(number, shard)] = count
        return counts

    def open(self) -> None:
        """Creates the folder, or checks that it belongs to this job."""
        values = dataclasses.asdict(self)
        for name in LOCATIONS:
            del values[name]
        path = pathlib.Path(self.folder, JOB_FILE)
        if not path.exists():
            if any(not entry.name.startswith(".") for entry in path.parent.glob("*")):
                raise ValueError(
                    f"{self.folder} contains files that this program did not write; name an empty "
                    "--output_dir."
                )
            write_json(path, values)
            return
        recorded = read_json(path)
        # As JSON stores them: tuples are read back as lists.
        current = json.loads(json.dumps(values))
        for name in current:
            if recorded.get(name) != current[name]:
                change = difference(recorded.get(name), current[name])
                raise ValueError(
                    f"{self.folder} was started with a different `{name}`: {change}. The vectors "
                    "would not be comparable; give the original value, or another --output_dir."
                )
        for temporary in path.parent.glob(".*.tmp"):  # left by processes that were killed
            temporary.unlink(missing_ok=True)


def difference(recorded: object, current: object) -> str:
    """Describes the first difference between two values of a job."""
    if isinstance(recorded, list) and isinstance(current, list):
        for pair in itertools.zip_longest(recorded, current):
            if pair[0] != pair[1]:
                recorded, current = pair
                break
    return f"{recorded!r} at the start, {current!r} now"


def make_job(
    input_file: str,
    model: str,
    folder: str | os.PathLike,
    *,
    pooling: str = "",
    max_seq_length: int = 0,
    batch_size: int = 32,
    shard_size: int = 8192,
) -> tuple[Job, str]:
    """Returns a job, and the similarity that its model uses to compare vectors.

    Raises:
      ValueError: if a file is missing, or the model cannot be read or cannot embed texts this long.
    """
    from bert_tf.checkpoints.checkpoint import embedding_of
    from bert_tf.checkpoints.formats import read_checkpoint

    names = list_tables(input_file, "--input_file")
    inputs = []
    for name in names:
        if name.startswith("tfds:"):
            raise ValueError(f"embed_texts reads files, not {name}; build_index reads datasets.")
        status = pathlib.Path(name).stat()
        inputs.append((name, status.st_size, status.st_mtime_ns))
    checkpoint = read_checkpoint(model)
    checkpoint.check()
    embedding = embedding_of(checkpoint, pooling, max_seq_length)
    if embedding.tokens:
        raise ValueError(f"{model} embeds tokens (late interaction); give it to build_index.")
    embedding.check(checkpoint.config.hidden_size, model)
    if embedding.max_seq_length > checkpoint.config.longest_row:
        raise ValueError(
            f"--max_seq_length={embedding.max_seq_length}, but {model} has "
            f"{checkpoint.config.longest_row} positions; give that or less."
        )
    if checkpoint.vocab is None:
        raise ValueError(f"{model} has no vocabulary; put its vocab.txt next to the weights.")
    folder = absolute_path(folder)
    model_digest = fingerprint(checkpoint, embedding)
    job = Job(
        folder=folder,
        base=str(pathlib.Path.cwd()),
        source=absolute_path(model),
        # Generated ids contain the relative names of inputs, so these are kept as given.
        inputs=tuple(inputs),
        model=model_digest,
        pooling=pooling,
        max_seq_length=embedding.max_seq_length,
        batch_size=batch_size,
        shard_size=shard_size,
    )
    return job, embedding.similarity


# Reading ----------------------------------------------------------------------------------------


def read_file(job: Job, number: int) -> list[int]:
    """Splits the input file `job.inputs[number]` into shards, unless they are complete."""
    marker = read_marker(job, number)
    # A list, as it is read back from JSON.
    source = list(job.inputs[number])
    values = read_record(marker)
    if values.get("source") == source:
        recorded_counts: list[int] = values["documents"]
        paths = _files_of_input(job, number, len(recorded_counts))
        crcs = values["crc32c"]
        # A list, not a generator: every damaged file is deleted, not only the first.
        if all([is_unchanged(path, crc) for path, crc in zip(paths, crcs, strict=True)]):
            return recorded_counts
    digests = _write_texts(job, number)
    ids = _ids_path(job, number)
    # Sorted, so that `check_ids` reads ranges of many files without loading them whole.
    # The empty array is for a file without documents.
    with atomic_write(ids, "wb") as output:
        np.save(output, np.sort(np.concatenate([np.zeros([0], np.uint64), *digests])))
    counts = list(map(len, digests))
    paths = _files_of_input(job, number, len(counts))
    # The marker comes last: it exists only if every file that it names is complete.
    write_record(marker, {"documents": counts, "source": source, "crc32c": file_crcs(paths)})
    return counts


def _write_texts(job: Job, number: int) -> list[np.ndarray]:
    """Writes the text shards of an input file; returns the digests of each shard's ids."""
    name, *recorded = job.inputs[number]
    file = pathlib.Path(job.base, name)
    status = file.stat()
    if [status.st_size, status.st_mtime_ns] != recorded:
        raise ValueError(
            f"{file} has changed since the job started: its size or modification time differs. "
            "Restore the original file, or start again in another --output_dir."
        )
    documents = (document for _, document in read_documents(str(file), name))
    digests: list[np.ndarray] = []
    while shard := list(itertools.islice(documents, job.shard_size)):
        path = job.texts(shard_name(number, len(digests)))
        with atomic_write(path) as output:
            for document in shard:
                row = {"_id": document.id, "text": document.text}
                output.write(json.dumps(row, ensure_ascii=False) + "\n")
        digests.append(np.array([digest(document.id) for document in shard], np.uint64))
    return digests


def _ids_path(job: Job, number: int) -> pathlib.Path:
    return job.path("ids", f"{number:05}", "npy")


def _files_of_input(job: Job, number: int, num_shards: int) -> list[pathlib.Path]:
    """Returns the files that `read_file` writes: the ids, then the shards of texts."""
    shards = [job.texts(shard_name(number, shard)) for shard in range(num_shards)]
    return [_ids_path(job, number), *shards]


def read_marker(job: Job, number: int) -> pathlib.Path:
    """Returns the done marker of an input file, written after all its shards."""
    return job.path("read", f"{number:05}", "json")


def is_unchanged(path: pathlib.Path, crc: str) -> bool:
    """Returns whether a file has the recorded checksum; a damaged file is deleted."""
    if not path.is_file():
        return False
    if file_crc(path) == crc:
        return True
    drop(path)
    return False


def shard_name(file: int, shard: int) -> str:
    return f"{file:05}-{shard:05}"


def digest(name: str) -> int:
    """Returns a 64-bit hash of an id."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf8"), digest_size=8).digest())


def check_ids(job: Job, names: Sequence[str], at_once: int = DIGESTS_AT_ONCE) -> None:
    """Raises ValueError for an id that two documents share; the memory does not grow with the job.

    All input files must be read; `names` are those of the shards, and `at_once` is the number of
    digests in memory.
    """
    files = [_ids_path(job, number) for number in range(len(job.inputs))]
    repeated = _repeated_digests(files, at_once)
    if not repeated:
        return
    wanted = np.array(sorted(repeated), np.uint64)
    # The sorted ids show which files can be skipped: texts are much slower to read.
    has_repeated = [contains_any(map_array(file), wanted) for file in files]
    seen: dict[str, str] = {}  # Different ids may share a digest, so the ids are compared in full.
    for name in names:
        number = int(name.split("-")[0])
        if not has_repeated[number]:
            continue
        source = job.inputs[number][0]
        for document in read_texts(job, name):
            if digest(document.id) not in repeated:
                continue
            if document.id in seen:
                raise ValueError(
                    f"The document id {document.id!r} occurs twice, in {seen[document.id]} and in "
                    f"{source}; ids must be unique."
                )
            seen[document.id] = source


def _repeated_digests(files: Sequence[pathlib.Path], at_once: int) -> set[int]:
    """Returns the digests that occur more than once in files of sorted digests.

    The range of digests is cut into parts of about `at_once` digests, read one after the other.
    """
    total = sum(len(map_array(file)) for file in files)
    count = -(-total // at_once)
    # Hashes are spread evenly, so equal ranges hold about equally many ids.
    limits = [np.uint64(i * (1 << 64) // count) for i in range(1, count)]
    repeated: set[int] = set()
    digests = None
    for part in range(count):
        digests = None  # Free the part before, so that memory holds one.
        slices = []
        for file in files:
            file_digests = map_array(file)
            first = 0
            last = len(file_digests)
            if part:
                first = int(np.searchsorted(file_digests, limits[part - 1]))
            if part + 1 < count:
                last = int(np.searchsorted(file_digests, limits[part]))
            slices.append(np.array(file_digests[first:last]))
        digests = np.concatenate(slices)
        del slices
        # Equal digests become neighbours.
        digests.sort()
        repeated.update(digests[1:][digests[1:] == digests[:-1]].tolist())
    return repeated


def contains_any(digests: np.ndarray, wanted: np.ndarray) -> bool:
    """Returns whether an ascending array contains any of the wanted numbers."""
    first = np.searchsorted(digests, wanted, "left")
    last = np.searchsorted(digests, wanted, "right")
    return bool((last > first).any())


def read_texts(job: Job, name: str) -> list[Document]:
    """Returns the documents of a shard."""
    with job.texts(name).open(encoding="utf8", newline="\n") as file:
        rows = map(json.loads, file)
        return [Document(row["_id"], row["text"]) for row in rows]


# Embedding --------------------------------------------------------------------------------------


def embed_shard(job: Job, name: str, embedder: "SearchEmbedder | None" = None) -> int:
    """Writes the vectors of a shard of texts, unless they are already complete.

    Without `embedder` the model of the job is loaded, once per process.

    Returns:
      How many documents were embedded; 0 if the vectors were already complete.
    """
    path = job.vectors(name)
    texts = job.texts(name)
    marker = job.path("made", name, "json")
    number, shard = map(int, name.split("-"))
    # The first checksum is that of the ids.
    texts_crc = read_json(read_marker(job, number))["crc32c"][1 + shard]
    origin = {"model": job.model, "texts": texts_crc}
    values = read_record(marker)
    is_known = all(values.get(key) == value for key, value in origin.items())
    if is_known and is_unchanged(path, values["vectors"]):
        return 0
    # Checked only now, because most shards of a resumed job need no texts.
    if not is_unchanged(texts, texts_crc):
        raise OSError(f"{texts} is corrupt; run the same command again.")
    embedder = embedder or load_embedder(job)
    documents = read_texts(job, name)
    with counting_texts("") as text_counts:
        vectors, _ = embedder.documents([document.text for document in documents])
    for document, is_finite in zip(documents, np.isfinite(vectors).all(axis=1), strict=True):
        if not is_finite:
            raise ValueError(
                f"The vector of document {document.id!r} contains numbers that are not finite."
            )
    with atomic_write(path, "wb") as file:
        np.save(file, vectors)
    # Recorded in a file, because not every runner returns results.
    record = {
        **origin,
        "vectors": file_crc(path),
        "text_counts": vars(text_counts),
        "num_positions": embedder.model.config.longest_row,
    }
    write_record(marker, record)
    return len(vectors)


def log_text_counts(job: Job, names: Sequence[str]) -> None:
    """Logs one line about the documents of all shards that are cut, empty or unknown."""
    total = TextCounts()
    num_positions = 0
    for name in names:
        marker = job.path("made", name, "json")
        if marker.exists():
            record = read_json(marker)
            total.merge(record.get("text_counts", {}))
            num_positions = int(record.get("num_positions", num_positions))
    total.log("embed_texts", Remedy("--max_seq_length={}", num_positions))


def read_record(path: pathlib.Path) -> dict[str, typing.Any]:
    """Reads a file of `write_record`; {} if it is missing or damaged."""
    return read_json(path) if is_whole(path) else {}


def write_record(path: pathlib.Path, values: dict[str, typing.Any]) -> None:
    """Writes a JSON file and its checksum."""
    write_json(path, values)
    write_checksum(path)


def load_embedder(job: Job) -> "SearchEmbedder":
    """Returns the model of a job, which the threads of a process share."""
    with LOADING:
        return _load_embedder(job)


@functools.lru_cache(maxsize=1)
def _load_embedder(job: Job) -> "SearchEmbedder":
    """Loads the model of a job; raises ValueError if it has changed since the start."""
    from bert_tf.search.embedding import SearchEmbedder

    embedder = SearchEmbedder(job.source, job.pooling, job.max_seq_length, job.batch_size)
    if job.model != embedder.fingerprint:
        raise ValueError(
            f"{job.source} has changed since the job started: its fingerprint is "
            f"{embedder.fingerprint}, expected {job.model}. Restore the original model."
        )
    return embedder


def batches(job: Job, names: Sequence[str], keep_texts: bool = True) -> Iterator["Batch"]:
    """Yields the shards in input order, for `build_index`."""
    from bert_tf.search.segments import Batch

    for name in names:
        documents = read_texts(job, name)
        texts = [document.text for document in documents] if keep_texts else None
        vectors = map_array(job.vectors(name))
        yield Batch([document.id for document in documents], vectors, texts)
