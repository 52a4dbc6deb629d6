"""An index: the vectors of documents in a directory, with their ids and texts.

    index/
      manifest.json         what made it, and every file with its size and checksum
      vectors-00000.npy     float32, float16 or int8 [n, D]
      scales-00000.npy      of int8: float32 [n], the length of each vector
      ranges-00000.npy      of int8: float32 [2, D], offset and step of each dimension
      exact-00000.npy       of int8: float32 [n, D], read only where scores are computed again
      ids-00000.*, texts-00000.*    strings; see `strings.py`

Vectors lie in segments, which are never changed. What manifest.json does not name is not there, and
it is replaced whole: a build or an addition that is killed leaves the index as it was.

An int8 vector is rounded as `quantization.py` says; of indexes without ranges it is round(x / s)
with s = max|x| / 127. Memory holds a quarter; the best `RESCORED` x k by these are scored again by
the exact vectors, so the scores are exact and only a document that was not among the candidates can
be missing.
"""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.corpus.checksums import file_crcs
from bert_tf.files import exclusive, place_for
from bert_tf.search import strings
from bert_tf.search.manifest import SIMILARITIES, Manifest, building_folder
from bert_tf.vectors.candidates import best_candidates
from bert_tf.vectors.exact import DTYPES, top_k
from bert_tf.vectors.quantization import quantize

SEGMENT_BYTES = 64 << 20  # of float32: what a build holds in memory, twice
RESCORED = 4
# Of `Index.int8_recall`.
RECALL_K = 10
RECALL_QUERIES = 32


class Batch(NamedTuple):
    """Some documents."""

    ids: Sequence[str]
    vectors: np.ndarray  # float [n, D]
    texts: Sequence[str] | None = None  # None: not kept


class Index:
    """An index that is open; vectors are memory-mapped.

    Args:
      folder: the directory.
      model: fingerprint of the model that queries come from; "" does not compare.
      checks_files: whether the checksum of every file is compared; sizes always are.

    Attributes:
      manifest: what the directory says of itself.
      ids: of all documents.
      segments: the vectors, [n, D] each.

    Raises:
      ValueError: if it is no index, of another model, or damaged.
    """

    def __init__(
        self, folder: str | os.PathLike, model: str = "", checks_files: bool = True
    ) -> None:
        self.folder = pathlib.Path(folder).expanduser()
        self.manifest = manifest = Manifest.read(self.folder)
        if model and model != manifest.model:
            raise ValueError(
                f"{folder} was made by another model than this one: its fingerprint is "
                f"{manifest.model} (of {manifest.source}), this model's {model}. Search with that "
                "model, or build the index again."
            )
        _check_files(self.folder, manifest, checks_files)
        self.ids: list[str] = []
        self._texts: list[strings.Strings] = []
        self.segments: list[np.ndarray] = []
        self._scales: list[np.ndarray] = []
        self._ranges: list[np.ndarray | None] = []
        self._exact: list[np.ndarray] = []
        for number, count in enumerate(manifest.segments):
            self.ids.extend(self._load_strings("ids", number))
            if manifest.has_texts:
                self._texts.append(self._load_strings("texts", number))
            shape = (count, manifest.dimension)
            self.segments.append(self._load("vectors", number, manifest.dtype, shape))
            if manifest.dtype != "int8":
                continue
            self._scales.append(self._load("scales", number, "float32", (count,)))
            self._exact.append(self._load("exact", number, "float32", shape))
            has_ranges = f"ranges-{number:05}.npy" in manifest.files  # Format 1 has none.
            ranges = (2, manifest.dimension)
            self._ranges.append(
                self._load("ranges", number, "float32", ranges) if has_ranges else None
            )
        if len(set(self.ids)) != len(self.ids):
            raise ValueError(f"{folder} has a document id twice; build the index again.")
        self._starts = np.cumsum([0, *manifest.segments])

    def __len__(self) -> int:
        return len(self.ids)

    def text(self, row: int) -> str:
        """Returns the text of a document; "" if the index keeps none."""
        if not self._texts:
            return ""
        segment = int(np.searchsorted(self._starts, row, "right")) - 1
        return self._texts[segment][row - int(self._starts[segment])]

    def search(
        self, queries: np.ndarray, k: int, chunk_rows: int = 16384
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k most similar documents of each query.

        Args:
          queries: float [Q, D].
          k: 1 <= k <= number of documents.
          chunk_rows: see `top_k`.

        Returns:
          scores float32 [Q, k], descending, and rows int64 [Q, k]; of equal scores the lower row
          comes first.

        Raises:
          ValueError: k above the number of documents, another dimension.
        """
        self.check_k(k)
        queries = self.as_queries(queries)
        wanted = min(len(self), RESCORED * k) if self._exact else k
        parts = []
        for i, vectors in enumerate(self.segments):
            count = min(wanted, len(vectors))
            if self._scales:
                scores, rows = self._search_int8(i, queries, count, chunk_rows)
            else:
                scores, rows = top_k(queries, vectors, count, chunk_rows)
            parts.append((scores, rows + self._starts[i]))
        scores, rows = (np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True))
        scores, rows = best_candidates(scores, rows, wanted)
        return self.rescore(queries, rows, k) if self._exact else (scores, rows)

    def _search_int8(
        self, segment: int, queries: np.ndarray, k: int, chunk_rows: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns what `top_k` does for the rounded vectors of a segment."""
        scales = np.asarray(self._scales[segment])
        ranges = self._ranges[segment]
        shifts = None
        if ranges is not None:
            offsets, steps = ranges
            shifts = queries @ offsets  # [Q]
            queries = queries * steps
        return top_k(queries, self.segments[segment], k, chunk_rows, scales, shifts)

    def int8_recall(self) -> float:
        """Returns the share of the nearest documents that an int8 search finds.

        Documents are the queries, at equal distances from each other. Scores are compared, not
        rows: of equal documents any will do.
        """
        k = min(RECALL_K, len(self))
        chosen = np.linspace(0, len(self) - 1, min(RECALL_QUERIES, len(self))).astype(int)
        queries = self.vectors(np.unique(chosen))
        scores, _ = self.search(queries, k)
        exact = [top_k(queries, part, min(k, len(part)))[0] for part in self._exact]
        expected = -np.sort(-np.concatenate(exact, axis=1), axis=1)[:, :k]
        # float32 adds in another order here and there.
        least = expected[:, -1:] - 1e-6 * np.abs(expected[:, -1:])
        return float(np.mean(scores >= least))

    def check_k(self, k: int) -> None:
        """Raises ValueError if it is below 1, or there are fewer documents."""
        if not 1 <= k <= len(self):
            raise ValueError(
                f"k is {k}, but {self.folder} has {len(self)} documents; give 1 to as many."
            )

    def as_queries(self, queries: np.ndarray) -> np.ndarray:
        """Returns queries as the index compares them, float32 [Q, D].

        Raises:
          ValueError: if they are of another dimension, or a single vector.
        """
        queries = np.asarray(queries)
        if queries.ndim != 2:
            raise ValueError(
                f"queries are of shape {queries.shape}; expected [Q, {self.manifest.dimension}], a "
                "row for each."
            )
        if queries.shape[1] != self.manifest.dimension:
            raise ValueError(
                f"queries are of shape {queries.shape}, but {self.folder} holds vectors of "
                f"{self.manifest.dimension} numbers; both must come from one model."
            )
        if not np.isfinite(queries).all():
            bad = int(np.argmin(np.isfinite(queries).all(axis=1)))
            raise ValueError(
                f"Query {bad} holds numbers that are not finite; was its text embedded?"
            )
        return _prepared(queries, self.manifest.similarity)

    def rescore(
        self, queries: np.ndarray, rows: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores candidates by the exact vectors; returns the k best of each query.

        Args:
          queries: of `as_queries`.
          rows: int64 [Q, c], c >= k, all different; -1 stands for none.
          k: how many are kept.
        """
        scores = np.full(rows.shape, -np.inf, np.float32)
        for query, own, found in zip(queries, rows, scores, strict=True):
            is_one = own >= 0
            found[is_one] = self.vectors(own[is_one]) @ query
        return best_candidates(scores, rows, k)

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """Returns the exact vectors of documents, float32 [n, D].

        Raises:
          ValueError: naming the document, if one holds numbers that are not finite.
        """
        stored = self._exact or self.segments
        owners = np.searchsorted(self._starts, rows, "right") - 1
        found = np.empty([len(rows), self.manifest.dimension], np.float32)
        for i in np.unique(owners):
            mine = owners == i
            found[mine] = stored[i][rows[mine] - self._starts[i]]
        is_finite = np.isfinite(found).all(axis=1)
        if not is_finite.all():
            name = self.ids[int(rows[int(np.argmin(is_finite))])]
            raise ValueError(
                f"{self.folder}: the vector of document {name!r} holds numbers that are not "
                "finite; build the index again."
            )
        return found

    def _load(self, name: str, number: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """Maps an array of a segment.

        Raises:
          ValueError: if it is of another type or shape than the manifest says.
        """
        path = self.folder / f"{name}-{number:05}.npy"
        values = np.load(path, mmap_mode="r")
        if values.dtype != dtype or values.shape != shape:
            raise ValueError(
                f"{path} holds {values.dtype} {values.shape}, but the manifest says {dtype} "
                f"{shape}; build the index again."
            )
        return values

    def _load_strings(self, name: str, number: int) -> strings.Strings:
        values = strings.Strings(self.folder, f"{name}-{number:05}")
        if len(values) != self.manifest.segments[number]:
            raise ValueError(
                f"{self.folder / name}-{number:05} holds {len(values)} strings, but the manifest "
                f"says {self.manifest.segments[number]} documents; build the index again."
            )
        return values


def build_index(
    folder: str | os.PathLike,
    batches: Iterable[Batch],
    *,
    model: str,
    source: str = "",
    dtype: str = "float32",
    similarity: str = "cosine",
    pooling: str = "",
    max_seq_length: int = 0,
) -> Manifest:
    """Writes a new index; the directory is whole or absent.

    Args:
      folder: the directory, new or empty.
      batches: the documents, read once; memory holds one segment.
      model: fingerprint of the model that made the vectors.
      source: its path.
      dtype: `float32`, `float16` (half the size) or `int8` (a quarter in memory).
      similarity: `cosine` or `dot`.
      pooling: that the model was given; "": its own.
      max_seq_length: pieces that texts were cut to; 0: not known.

    Raises:
      ValueError: if the directory exists or is a mount point, there is no document, an id comes
        twice, or a vector holds numbers that are not finite.
    """
    if dtype not in DTYPES or similarity not in SIMILARITIES:
        raise ValueError(
            f"dtype is {dtype!r} and similarity {similarity!r}; expected one of "
            f"{', '.join(DTYPES)} and of {', '.join(SIMILARITIES)}."
        )
    folder = place_for(folder, "add to it, or name a new one")
    building = building_folder(folder)
    with _locked(folder, building.with_suffix(".lock")):
        shutil.rmtree(building, ignore_errors=True)  # of a build that was killed
        building.mkdir(parents=True)
        try:
            manifest = Manifest(
                model=model,
                source=source,
                dimension=0,
                dtype=dtype,
                similarity=similarity,
                has_texts=False,
                pooling=pooling,
                max_seq_length=max_seq_length,
            )
            manifest = _write_segments(building, manifest, batches, set())
            if not manifest.segments:
                raise ValueError(f"There is no document to put into {folder}; the input is empty.")
            manifest.write(building)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        building.replace(folder)  # If that fails, the error names what is finished.
    return manifest


def add_to_index(folder: str | os.PathLike, batches: Iterable[Batch], *, model: str) -> Manifest:
    """Adds documents to an index; all of them or none.

    Args:
      folder: the index.
      batches, model: see `build_index`.

    Raises:
      ValueError: if it is no index, of another model or dimension, or an id is there already.
    """
    folder = pathlib.Path(folder).expanduser()
    with _locked(folder, folder / ".lock"):
        index = Index(folder, model)
        before = index.manifest
        _remove_left(folder, before)  # of an addition that was killed
        try:
            after = _write_segments(folder, before, batches, set(index.ids))
        except BaseException:
            _remove_left(folder, before)  # A full disk would stay full.
            raise
        if after.segments == before.segments:
            raise ValueError(f"There is no document to add to {folder}; the input is empty.")
        after.write(folder)
    return after


def _remove_left(folder: pathlib.Path, manifest: Manifest) -> None:
    """Deletes the files of segments that the manifest does not name."""
    for path in folder.iterdir():
        if path.suffix in (".npy", ".utf8") and path.name not in manifest.files:
            path.unlink()


@contextlib.contextmanager
def _locked(folder: pathlib.Path, path: pathlib.Path) -> Iterator[None]:
    """Locks an index against other writers."""
    with exclusive(path) as is_ours:
        if not is_ours:
            raise ValueError(f"Another process writes {folder}; wait for its end.")
        yield


def _check_files(folder: pathlib.Path, manifest: Manifest, checks_all: bool) -> None:
    """Raises ValueError naming the first file that is missing or not as it was written."""
    for name, (size, _) in manifest.files.items():
        found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != size:
            what = "is missing" if found is None else f"has {found} bytes instead of {size}"
            raise ValueError(f"{folder / name} {what}: the index is damaged; build it again.")
    if checks_all:
        crcs = file_crcs(folder / name for name in manifest.files)
        for (name, (_, crc)), found_crc in zip(manifest.files.items(), crcs, strict=True):
            if crc != found_crc:
                raise ValueError(
                    f"{folder / name} is damaged: its checksum is {found_crc} instead of {crc}; "
                    "build the index again."
                )


def _write_segments(
    folder: pathlib.Path, manifest: Manifest, batches: Iterable[Batch], seen: set[str]
) -> Manifest:
    """Writes documents in segments after those that are there; returns the manifest with them."""
    held: list[Batch] = []
    for batch in batches:
        if not len(batch.ids):
            continue
        vectors = np.asarray(batch.vectors, np.float32)
        manifest = _checked(manifest, batch, vectors, seen)
        held.append(batch._replace(vectors=_prepared(vectors, manifest.similarity)))
        rows = max(1, SEGMENT_BYTES // (4 * manifest.dimension))
        if sum(len(part.ids) for part in held) >= rows:
            manifest = _write_segment(folder, manifest, held)
            held = []
    return _write_segment(folder, manifest, held) if held else manifest


def _checked(manifest: Manifest, batch: Batch, vectors: np.ndarray, seen: set[str]) -> Manifest:
    """Returns the manifest, with what the first documents decide; notes the ids in `seen`."""
    is_first = not manifest.dimension
    if is_first:
        has_texts = batch.texts is not None
        manifest = dataclasses.replace(manifest, dimension=vectors.shape[-1], has_texts=has_texts)
    if vectors.shape != (len(batch.ids), manifest.dimension):
        raise ValueError(
            f"{len(batch.ids)} documents came with vectors of shape {vectors.shape}; expected "
            f"[{len(batch.ids)}, {manifest.dimension}]."
        )
    if (batch.texts is not None) != manifest.has_texts:
        raise ValueError(
            f"The index keeps {'' if manifest.has_texts else 'no '}texts; give documents alike."
        )
    if batch.texts is not None and len(batch.texts) != len(batch.ids):
        raise ValueError(
            f"{len(batch.ids)} documents came with {len(batch.texts)} texts; give one each."
        )
    for name, is_finite in zip(batch.ids, np.isfinite(vectors).all(axis=1), strict=True):
        if not isinstance(name, str):
            raise ValueError(f"A document id is {name!r}, expected a string; give str({name!r}).")
        if name in seen or not name:
            what = "comes twice" if name else "is empty"
            raise ValueError(f"The document id {name!r} {what}; every document has its own.")
        if not is_finite:
            raise ValueError(f"The vector of document {name!r} holds numbers that are not finite.")
        seen.add(name)
    return manifest


def _prepared(vectors: np.ndarray, similarity: str) -> np.ndarray:
    """Returns float32 vectors, divided by their lengths if that is the similarity."""
    vectors = np.asarray(vectors, np.float32)
    if similarity == "dot":
        return vectors
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12)  # a vector of zeros stays one


def _write_segment(folder: pathlib.Path, manifest: Manifest, held: list[Batch]) -> Manifest:
    number = len(manifest.segments)
    vectors = np.concatenate([batch.vectors for batch in held])
    ids = list(itertools.chain.from_iterable(batch.ids for batch in held))
    if manifest.dtype == "float16" and np.abs(vectors).max() > np.finfo(np.float16).max:
        raise ValueError("A vector is too large for float16; give dtype float32.")
    if manifest.dtype == "int8":
        rounded = quantize(vectors)
        arrays = {
            "vectors": rounded.values,
            "scales": rounded.lengths,
            "ranges": np.stack([rounded.offsets, rounded.steps]),
            "exact": vectors,
        }
    else:
        arrays = {"vectors": vectors.astype(manifest.dtype)}
    paths = strings.write(folder, f"ids-{number:05}", ids)
    if manifest.has_texts:
        texts = itertools.chain.from_iterable(batch.texts or () for batch in held)
        paths += strings.write(folder, f"texts-{number:05}", list(texts))
    for name, values in arrays.items():
        paths.append(folder / f"{name}-{number:05}.npy")
        np.save(paths[-1], values)
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sizes = [path.stat().st_size for path in paths]
    entries = zip(paths, zip(sizes, file_crcs(paths), strict=True), strict=True)
    files = {**manifest.files, **{path.name: entry for path, entry in entries}}
    return dataclasses.replace(manifest, segments=(*manifest.segments, len(ids)), files=files)
