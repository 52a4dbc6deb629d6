"""Embeds more documents than one machine does in a day: by shards, each made once and checked.

    an input file -> shards of texts          (all ids differ)     a shard of texts -> its vectors
         `read_file`                           `check_ids`              `embed_shard`

Both steps are pure functions of what `Job` says, and what they make is atomic and sealed with its
checksum. A step that finds its result whole passes it over. So it does not matter which process,
engine or machine does a step, how often, or whether two do the same at once: the files are equal.

    job.json               what decides on every byte that follows; another job is refused
    texts-00003-00001.jsonl    `_id` and `text`: shard 1 of input file 3
    ids-00003.npy          uint64, the sorted digests of the file's ids
    read-00003.json        documents in each of its shards, the input file, checksums; written last
    vectors-00003-00001.npy    float32 [n, D], in the order of the texts
    made-00003-00001.json      the model and the checksums of texts and vectors; written last
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import os
import pathlib
import typing
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.checkpoints.hub import absolute_path
from bert_tf.corpus.checksums import drop, file_crc, file_crcs, is_whole, write_checksum
from bert_tf.examples.tables import list_tables
from bert_tf.files import atomic_write, read_json, write_json
from bert_tf.search.documents import Document
from bert_tf.search.documents import read_file as read_documents

if typing.TYPE_CHECKING:
    from bert_tf.search.embedding import SearchEmbedder
    from bert_tf.search.index import Batch

DIGESTS_AT_ONCE = 1 << 27  # 1 GiB, and as much while they are sorted
PLACES = ("folder", "base", "source")  # where things lie: what is made does not depend on it


@dataclasses.dataclass(frozen=True)
class Job:
    """What is to be made of what; workers get it as it is.

    Attributes:
      folder: of all results; absolute, and seen by all workers.
      base: what relative names of input files begin at.
      source: the model; absolute, or a hub's name.
      inputs: name, size and time of change (ns) of each file.
      model: fingerprint of the model.
      pooling: that the model was given; "": its own.
      max_seq_length: pieces a text is cut to.
      batch_size: texts computed at once.
      shard_size: documents in a shard. The texts of a shard are put in batches by their lengths, so
        this and `batch_size` decide on the last bits of a vector.
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
        """Returns the documents in each shard, in the order of the input, once all is read."""
        counts: dict[str, int] = {}
        for number in range(len(self.inputs)):
            read = read_json(receipt_of(self, number))["documents"]
            counts |= {shard_name(number, shard): count for shard, count in enumerate(read)}
        return counts

    def open(self) -> None:
        """Makes the folder, or finds that it is of this job.

        Raises:
          ValueError: if it is another job's, or something else lies in it.
        """
        values = {k: v for k, v in dataclasses.asdict(self).items() if k not in PLACES}
        path = pathlib.Path(self.folder, "job.json")
        if not path.exists():
            if any(not one.name.startswith(".") for one in path.parent.glob("*")):
                raise ValueError(f"{self.folder} is not empty and no work of this program.")
            write_json(path, values)
            return
        before, now = read_json(path), json.loads(json.dumps(values))
        for name in now:
            if before.get(name) != now[name]:
                what = difference(before.get(name), now[name])
                raise ValueError(
                    f"{self.folder} was begun with another `{name}`: {what}. Its vectors would "
                    "not belong together; give what it was begun with, or another --output_dir."
                )
        for one in path.parent.glob(".*.tmp"):  # of processes that were killed
            one.unlink(missing_ok=True)


def difference(before: typing.Any, now: typing.Any) -> str:
    """Returns the first place where two values of a job differ, in words."""
    if isinstance(before, list) and isinstance(now, list):
        pairs = itertools.zip_longest(before, now)
        before, now = next(pair for pair in pairs if pair[0] != pair[1])
    return f"{before!r} at the start, {now!r} now"


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
    """Returns a job, and by which similarity its model wants vectors compared.

    Args:
      input_file: files and globs of documents, separated by commas.
      model: a checkpoint in any form.
      folder: of the results.
      pooling, max_seq_length: see `embedding_of`.
      batch_size, shard_size: see `Job`.

    Raises:
      ValueError: if a file is missing, or the model cannot be read or cannot embed such texts.
    """
    from bert_tf.checkpoints.formats import read_checkpoint
    from bert_tf.search.embedding import embedding_of, fingerprint

    names = list_tables(input_file, "--input_file")
    if others := [name for name in names if name.startswith("tfds:")]:
        raise ValueError(f"embed_texts reads files, not {others[0]}; build_index reads datasets.")
    found = [(name, pathlib.Path(name).stat()) for name in names]
    checkpoint = read_checkpoint(model)
    checkpoint.check()
    embedding = embedding_of(checkpoint, pooling, max_seq_length)
    embedding.check(checkpoint.config.hidden_size, model)
    if embedding.max_seq_length > checkpoint.config.longest_row:
        raise ValueError(
            f"--max_seq_length={embedding.max_seq_length}, but {model} has "
            f"{checkpoint.config.longest_row} positions; give that or less."
        )
    if checkpoint.vocab is None:
        raise ValueError(f"{model} has no vocabulary; put its vocab.txt beside the weights.")
    job = Job(
        folder=absolute_path(folder),
        base=str(pathlib.Path.cwd()),
        source=absolute_path(model),
        inputs=tuple((name, status.st_size, status.st_mtime_ns) for name, status in found),
        model=fingerprint(checkpoint, embedding),
        pooling=pooling,
        max_seq_length=embedding.max_seq_length,
        batch_size=batch_size,
        shard_size=shard_size,
    )
    return job, embedding.similarity


# Reading ----------------------------------------------------------------------------------------


def read_file(job: Job, number: int) -> list[int]:
    """Writes the shards of texts of an input file, unless they are there.

    Args:
      job: to which the file belongs.
      number: of the file.

    Returns:
      Documents in each shard.

    Raises:
      ValueError: naming file and line, if a document cannot be read.
    """
    receipt = receipt_of(job, number)
    ids = job.path("ids", f"{number:05}", "npy")
    source = list(job.inputs[number])
    values = read_json(receipt) if is_whole(receipt) else {}
    if values and values.get("source", source) == source:  # Earlier releases did not record it.
        counts: list[int] = values["documents"]
        paths = [ids, *(job.texts(shard_name(number, shard)) for shard in range(len(counts)))]
        crcs = values.get("crc32c", [None] * len(paths))
        if all([is_unchanged(path, crc) for path, crc in zip(paths, crcs, strict=True)]):
            return counts
    name, *stated = job.inputs[number]
    file = pathlib.Path(job.base, name)
    status = file.stat()
    if [status.st_size, status.st_mtime_ns] != stated:
        raise ValueError(
            f"{file} is another file than at the start: its size or time of change differs. Put "
            "that one back, or begin anew in another --output_dir."
        )
    documents = (document for _, document in read_documents(str(file), name))
    digests: list[np.ndarray] = []
    while shard := list(itertools.islice(documents, job.shard_size)):
        path = job.texts(shard_name(number, len(digests)))
        with atomic_write(path) as output:
            for one in shard:
                row = {"_id": one.id, "text": one.text}
                output.write(json.dumps(row, ensure_ascii=False) + "\n")
        write_checksum(path)
        digests.append(np.array([digest(one.id) for one in shard], np.uint64))
    with atomic_write(ids, "wb") as output:
        np.save(output, np.sort(np.concatenate([np.zeros([0], np.uint64), *digests])))
    write_checksum(ids)
    counts = [len(part) for part in digests]
    paths = [ids, *(job.texts(shard_name(number, shard)) for shard in range(len(counts)))]
    write_json(receipt, {"documents": counts, "source": source, "crc32c": file_crcs(paths)})
    write_checksum(receipt)
    return counts


def receipt_of(job: Job, number: int) -> pathlib.Path:
    """Returns the file that is written when an input file is read."""
    return job.path("read", f"{number:05}", "json")


def is_unchanged(path: pathlib.Path, crc: str | None) -> bool:
    """True if a file has a recorded checksum; one that is damaged is deleted.

    Args:
      path: the file.
      crc: its checksum; None: that of its seal.
    """
    if crc is None:
        return is_whole(path)
    if not path.is_file():
        return False
    if file_crc(path) == crc:
        return True
    drop(path)
    return False


def shard_name(file: int, shard: int) -> str:
    return f"{file:05}-{shard:05}"


def digest(name: str) -> int:
    """Returns 64 bits of an id."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf8"), digest_size=8).digest())


def check_ids(job: Job, names: Sequence[str], at_once: int = DIGESTS_AT_ONCE) -> None:
    """Finds an id that two documents of the job have, in memory that does not grow with it.

    Args:
      job: whose files are all read.
      names: of its shards.
      at_once: digests that are in memory together.

    Raises:
      ValueError: naming the id and the files.
    """
    files = [job.path("ids", f"{number:05}", "npy") for number in range(len(job.inputs))]
    total = sum(len(np.load(file, mmap_mode="r")) for file in files)
    count = -(-total // at_once)
    limits = [np.uint64(i * (1 << 64) // count) for i in range(1, count)]
    twice: set[int] = set()
    found = None
    for part in range(count):  # All digests below the next limit.
        found, held = None, []
        for file in files:
            digests = np.load(file, mmap_mode="r")
            first, last = 0, len(digests)
            if part:
                first = int(np.searchsorted(digests, limits[part - 1]))
            if part + 1 < count:
                last = int(np.searchsorted(digests, limits[part]))
            held.append(np.array(digests[first:last]))
        found = np.concatenate(held)
        del held
        found.sort()
        twice.update(found[1:][found[1:] == found[:-1]].tolist())
    if not twice:
        return
    wanted = np.array(sorted(twice), np.uint64)
    has_one = [holds_any(np.load(file, mmap_mode="r"), wanted) for file in files]
    seen: dict[str, str] = {}  # Two ids may have one digest by chance: they are compared in full.
    for name in names:
        number = int(name.split("-")[0])
        if not has_one[number]:
            continue
        source = job.inputs[number][0]
        for one in read_texts(job, name):
            if digest(one.id) not in twice:
                continue
            if one.id in seen:
                raise ValueError(
                    f"The document id {one.id!r} comes twice, in {seen[one.id]} and in {source}; "
                    "every document has its own."
                )
            seen[one.id] = source


def holds_any(digests: np.ndarray, wanted: np.ndarray) -> bool:
    """True if one of the wanted numbers is among those of an ascending array."""
    first, last = (np.searchsorted(digests, wanted, side) for side in ("left", "right"))
    return bool((last > first).any())


def read_texts(job: Job, name: str) -> list[Document]:
    """Returns the documents of a shard."""
    with job.texts(name).open(encoding="utf8", newline="\n") as file:
        rows = map(json.loads, file)
        return [Document(row["_id"], row["text"]) for row in rows]


# Embedding --------------------------------------------------------------------------------------


def embed_shard(job: Job, name: str, embedder: "SearchEmbedder | None" = None) -> int:
    """Writes the vectors of a shard of texts, unless they are there.

    Args:
      job: to which the shard belongs.
      name: of the shard.
      embedder: the model; None: it is read, once in a process.

    Returns:
      How many were embedded; 0 if they were there.

    Raises:
      ValueError: if the model is not that of the job, or a vector holds numbers that are not
        finite.
      OSError: if the texts are not as they were written.
    """
    path, texts = job.vectors(name), job.texts(name)
    record = job.path("made", name, "json")
    number, shard = map(int, name.split("-"))
    # The receipt names the checksum of the ids first; earlier releases recorded none.
    crcs = read_json(receipt_of(job, number)).get("crc32c")
    made_of = {"model": job.model, "texts": crcs[1 + shard] if crcs else file_crc(texts)}
    values = read_json(record) if is_whole(record) else {}
    if not values:  # of an earlier release, or killed before its record
        if is_whole(path):
            write_record(record, {**made_of, "vectors": file_crc(path)})
            return 0
    elif made_of != {key: values.get(key) for key in made_of}:
        drop(path)
    elif is_unchanged(path, values.get("vectors")):
        return 0
    if not is_unchanged(texts, made_of["texts"] if crcs else None):
        raise OSError(f"{texts} is not as it was written; give the same command again.")
    embedder = embedder or load_embedder(job)
    documents = read_texts(job, name)
    vectors = embedder.documents([document.text for document in documents])
    for document, is_finite in zip(documents, np.isfinite(vectors).all(axis=1), strict=True):
        if not is_finite:
            raise ValueError(
                f"The vector of document {document.id!r} holds numbers that are not finite."
            )
    with atomic_write(path, "wb") as file:
        np.save(file, vectors)
    write_checksum(path)
    write_record(record, {**made_of, "vectors": file_crc(path)})
    return len(vectors)


def write_record(path: pathlib.Path, values: dict[str, typing.Any]) -> None:
    """Writes a JSON file and its checksum."""
    write_json(path, values)
    write_checksum(path)


@functools.lru_cache(maxsize=1)
def load_embedder(job: Job) -> "SearchEmbedder":
    """Reads the model of a job.

    Raises:
      ValueError: if it is not the one that the job was begun with.
    """
    from bert_tf.search.embedding import SearchEmbedder

    embedder = SearchEmbedder(job.source, job.pooling, job.max_seq_length, job.batch_size)
    if embedder.fingerprint != job.model:
        raise ValueError(
            f"{job.source} is another model than at the start: its fingerprint is "
            f"{embedder.fingerprint}, expected {job.model}. Put that one back."
        )
    return embedder


def batches(job: Job, names: Sequence[str], keep_texts: bool = True) -> Iterator["Batch"]:
    """Yields the shards in the order of the input, for `build_index`."""
    from bert_tf.search.index import Batch

    for name in names:
        documents = read_texts(job, name)
        texts = [document.text for document in documents] if keep_texts else None
        vectors = np.load(job.vectors(name))
        yield Batch([document.id for document in documents], vectors, texts)
