"""An index: the vectors of documents in a directory, with their ids and texts.

    index/
      manifest.json         what made it, and every file with its size and checksum
      vectors-00000.npy     float32, float16 or int8 [n, D]
      scales-00000.npy      of int8: float32 [n], the factor of each vector
      exact-00000.npy       of int8: float32 [n, D], read only where scores are computed again
      ids-00000.*, texts-00000.*    strings; see `strings.py`

Vectors lie in segments, which are never changed. What manifest.json does not name is not there, and
it is replaced whole: a build or an addition that is killed leaves the index as it was.

An int8 vector is round(x / s) with s = max|x| / 127. Memory holds a quarter; the best
`RESCORED` x k by these are scored again by the exact vectors, so the scores are exact and only a
document that was not among the candidates can be missing.
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

from bert_tf.data.checksums import file_crcs
from bert_tf.files import exclusive, json_field, place_for, read_json, write_json
from bert_tf.search import strings
from bert_tf.search.exact import DTYPES, top_k

MANIFEST = "manifest.json"
FORMAT = 1
SIMILARITIES = ("cosine", "dot")
SEGMENT_BYTES = 64 << 20  # of float32: what a build holds in memory, twice
RESCORED = 4


class Batch(NamedTuple):
    """Some documents."""

    ids: Sequence[str]
    vectors: np.ndarray  # float [n, D]
    texts: Sequence[str] | None = None  # None: not kept


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What manifest.json says.

    Args:
      model: fingerprint of the model that made the vectors.
      source: the path of that model, for messages.
      dimension: D.
      dtype: of the vectors, of `exact.DTYPES`.
      similarity: `cosine` (vectors are divided by their lengths) or `dot`.
      has_texts: whether the documents' texts are kept.
      pooling: that the build was given; "": the model's own.
      max_seq_length: pieces that texts were cut to; 0: not known.
      segments: documents in each segment.
      files: size and CRC-32C by name.
    """

    model: str
    source: str
    dimension: int
    dtype: str
    similarity: str
    has_texts: bool
    segments: tuple[int, ...] = ()
    files: dict[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    pooling: str = ""
    max_seq_length: int = 0

    def write(self, folder: pathlib.Path) -> None:
        values = {"format": FORMAT, **dataclasses.asdict(self)}
        write_json(folder / MANIFEST, values)

    @classmethod
    def read(cls, folder: pathlib.Path) -> "Manifest":
        """Reads it.

        Raises:
          ValueError: if it is missing, damaged or of another format.
        """
        path = folder.expanduser() / MANIFEST
        if not path.is_file():
            killed = "; a build was stopped before its end: give the command again"
            hint = killed if _building(folder).exists() else ""
            raise ValueError(f"{folder} is no index: it has no {MANIFEST}{hint}.")
        earlier = {"pooling": "", "max_seq_length": 0}  # of manifests without these
        values = {**earlier, **read_json(path)}
        if values.pop("format", None) != FORMAT:
            raise ValueError(f"{path} is not of format {FORMAT}; build the index again.")
        kinds: dict[str, type] = {"dimension": int, "max_seq_length": int, "has_texts": bool}
        kinds |= {"segments": list, "files": dict}
        names = [field.name for field in dataclasses.fields(cls)]
        found = {name: json_field(values, name, kinds.get(name, str), path) for name in names}
        if missing := [name for name, value in found.items() if value is None]:
            raise ValueError(f"{path} lacks {', '.join(missing)}; build the index again.")
        found["segments"] = tuple(found["segments"])
        found["files"] = {name: tuple(value) for name, value in found["files"].items()}
        return cls(**found)


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
        numbers = range(len(manifest.segments))
        self.ids = [name for i in numbers for name in strings.Strings(self.folder, f"ids-{i:05}")]
        self._texts = [
            strings.Strings(self.folder, f"texts-{i:05}") for i in numbers if manifest.has_texts
        ]
        self.segments = [self._load("vectors", i) for i in numbers]
        is_int8 = manifest.dtype == "int8"
        self._scales = [self._load("scales", i) for i in numbers if is_int8]
        self._exact = [self._load("exact", i) for i in numbers if is_int8]
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
            scales = np.asarray(self._scales[i]) if self._scales else None
            count = min(wanted, len(vectors))
            scores, rows = top_k(queries, vectors, count, chunk_rows, scales)
            parts.append((scores, rows + self._starts[i]))
        scores, rows = (np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True))
        scores, rows = best(scores, rows, wanted)
        return self.rescore(queries, rows, k) if self._exact else (scores, rows)

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
        return best(scores, rows, k)

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """Returns the exact vectors of documents, float32 [n, D]."""
        stored = self._exact or self.segments
        owners = np.searchsorted(self._starts, rows, "right") - 1
        found = np.empty([len(rows), self.manifest.dimension], np.float32)
        for i in np.unique(owners):
            mine = owners == i
            found[mine] = stored[i][rows[mine] - self._starts[i]]
        return found

    def _load(self, name: str, number: int) -> np.ndarray:
        return np.load(self.folder / f"{name}-{number:05}.npy", mmap_mode="r")


def best(scores: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k best of each line, [Q, k] of [Q, c]; of equal scores the lower row first."""
    order = np.lexsort((rows, -scores), axis=1)[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


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
    building = _building(folder)
    with _locked(folder, building.with_suffix(".lock")):
        shutil.rmtree(building, ignore_errors=True)  # of a build that was killed
        building.mkdir(parents=True)
        try:
            manifest = Manifest(
                model, source, 0, dtype, similarity, False, (), {}, pooling, max_seq_length
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


def _building(folder: pathlib.Path) -> pathlib.Path:
    folder = folder.expanduser().resolve()
    return folder.with_name(f".{folder.name}.building")


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
        quantized, scales = quantize(vectors)
        arrays = {"vectors": quantized, "scales": scales, "exact": vectors}
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


def quantize(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns int8 vectors [n, D] and their scales float32 [n]; a vector is int8 * scale."""
    scales = np.abs(vectors).max(axis=1) / np.float32(127)
    scales = np.where(scales == 0, np.float32(1), scales)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales.astype(np.float32)
