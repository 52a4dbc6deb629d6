"""An index: a directory with the vectors of documents, their ids and their texts.

    index/
      manifest.json         the model, and every file with its size and checksum
      vectors-00000.npy     float32, float16 or int8 [n, D]
      scales-00000.npy      int8 only: float32 [n], the length of each vector
      ranges-00000.npy      int8 only: float32 [2, D], offset and step of each dimension
      exact-00000.npy       int8 only: float32 [n, D], read only to rescore candidates
      ids-00000.*, texts-00000.*    strings; see `strings.py`

Vectors are stored in segments, which never change. Files that manifest.json does not name are
ignored, and manifest.json is replaced atomically, so a build or an addition that is killed leaves
the index unchanged.

`quantization.py` describes how int8 vectors are rounded; in indexes without ranges they are
round(x / s) with s = max|x| / 127. They take a quarter of the memory. The best `RESCORED` x k
documents by rounded vectors are rescored with the exact vectors. The scores are therefore exact;
only a document that is not among these candidates can be missed.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator

import numpy as np

from bert_tf.metrics.exact import (
    DTYPES,
    BestRows,
    chunk_products,
    query_groups,
    rescore,
    rounding_margin,
    top_k,
)
from bert_tf.search import strings
from bert_tf.search.analyzer import TOKEN_RULE, check_language
from bert_tf.search.manifest import SIMILARITIES, Manifest, building_folder
from bert_tf.search.segments import Batch, prepared, write_segments
from bert_tf.system.bounded_arrays import map_array
from bert_tf.system.checksums import file_crcs
from bert_tf.system.files import exclusive, new_folder_path

RESCORED = 4  # candidates per requested document
# The measurement of `Index.int8_recall`.
RECALL_K = 10
RECALL_QUERIES = 32


class Index:
    """An open index; vectors are memory-mapped.

    Args:
      model: fingerprint of the model that embeds queries; "" skips the comparison.
      checks_files: whether to compare the checksum of every file; sizes are always compared.

    Attributes:
      manifest: the content of manifest.json.
      ids: the ids of all documents.
      segments: the vectors, [n, D] each.

    Raises:
      ValueError: if the folder is not an index, belongs to another model, or is damaged.
    """

    def __init__(
        self, folder: str | os.PathLike, model: str = "", checks_files: bool = True
    ) -> None:
        self.folder = pathlib.Path(folder).expanduser()
        self.manifest = manifest = Manifest.read(self.folder)
        if model and manifest.model != model:
            raise ValueError(
                f"{folder} was built with another model: its fingerprint is {manifest.model} (of "
                f"{manifest.source}), this model's is {model}. Search with the original model, or "
                "build the index again."
            )
        _check_files(self.folder, manifest, checks_files)
        self.ids: list[str] = []
        self._texts: list[strings.Strings] = []
        self.segments: list[np.ndarray] = []
        self._scales: list[np.ndarray] = []
        self._ranges: list[np.ndarray] = []
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
            shape = (2, manifest.dimension)
            self._ranges.append(self._load("ranges", number, "float32", shape))
        # The row of each segment's first document, and the number of all documents.
        self._starts = np.cumsum([0, *manifest.segments])

    def __len__(self) -> int:
        return len(self.ids)

    def text(self, row: int) -> str:
        """Returns the text of a document; "" if the index stores no texts."""
        if not self._texts:
            return ""
        # The last segment that starts at or before the row.
        segment = int(np.searchsorted(self._starts, row, "right")) - 1
        return self._texts[segment][row - int(self._starts[segment])]

    def search(
        self, queries: np.ndarray, k: int, chunk_rows: int = 16384
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k most similar documents of each query.

        Args:
          queries: float [Q, D].
          chunk_rows: see `top_k`.

        Returns:
          scores float32 [Q, k], descending, and rows int64 [Q, k]; equal scores are ordered by row.
        """
        self.check_k(k)
        queries = self.as_queries(queries)
        # More candidates than k: rounding may change the order of near equals.
        wanted = min(len(self), RESCORED * k) if self._exact else k
        scores = np.empty([len(queries), k], np.float32)
        rows = np.empty([len(queries), k], np.int64)
        for part in query_groups(len(queries)):
            candidates = self._candidates(queries[part], wanted, chunk_rows)
            scores[part], rows[part] = rescore(queries[part], candidates, k, self.vectors)
        return scores, rows

    def _candidates(
        self, queries: np.ndarray, wanted: int, chunk_rows: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns scores and rows of the best documents of each query, at least `wanted`."""
        best = BestRows(wanted, rounding_margin(queries, self.segments[0]))
        for i, start in enumerate(self._starts[:-1].tolist()):
            if self._scales:
                products = self._int8_products(i, queries, chunk_rows)
            else:
                products = chunk_products(queries, self.segments[i], chunk_rows)
            for first, scores in products:
                best.add(scores, start + first)
        return best.candidates()

    def _int8_products(
        self, segment: int, queries: np.ndarray, chunk_rows: int
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yields what `chunk_products` does, for the rounded vectors of a segment."""
        scales = self._scales[segment]
        offsets, steps = self._ranges[segment]
        # q . (offsets + steps * v) = q . offsets + (q * steps) . v: only v is int8.
        shifts = queries @ offsets  # [Q]
        for first, scores in chunk_products(queries * steps, self.segments[segment], chunk_rows):
            scores += shifts[:, None]
            scores *= scales[first : first + scores.shape[1]]
            yield first, scores

    def int8_recall(self) -> float:
        """Measures the share of the nearest documents that an int8 search finds.

        Evenly spaced documents are the queries. Scores are compared instead of rows, so that equal
        documents are interchangeable.
        """
        k = min(RECALL_K, len(self))
        sample = np.linspace(0, len(self) - 1, min(RECALL_QUERIES, len(self))).astype(int)
        queries = self.vectors(np.unique(sample))
        scores, _ = self.search(queries, k)
        exact = [top_k(queries, part, min(k, len(part)))[0] for part in self._exact]
        # The best k of the best k of each segment.
        expected = -np.sort(-np.concatenate(exact, axis=1), axis=1)[:, :k]  # [Q, k]
        # The two searches may sum in another order; allow for the rounding of float32.
        threshold = expected[:, -1:] - 1e-6 * np.abs(expected[:, -1:])
        return float(np.mean(scores >= threshold))

    def check_k(self, k: int) -> None:
        """Raises ValueError if k is below 1 or above the number of documents."""
        if not 1 <= k <= len(self):
            raise ValueError(
                f"k is {k}; it must be between 1 and {len(self)}, the number of documents in "
                f"{self.folder}."
            )

    def as_queries(self, queries: np.ndarray) -> np.ndarray:
        """Returns queries prepared for the index's similarity, float32 [Q, D]."""
        queries = np.asarray(queries)
        if queries.ndim != 2:
            raise ValueError(
                f"queries have shape {queries.shape}; expected [Q, {self.manifest.dimension}], one "
                "row per query."
            )
        if queries.shape[1] != self.manifest.dimension:
            raise ValueError(
                f"queries have shape {queries.shape}, but the vectors of {self.folder} have "
                f"{self.manifest.dimension} dimensions; both must come from one model."
            )
        if not np.isfinite(queries).all():
            bad = int(np.argmin(np.isfinite(queries).all(axis=1)))
            raise ValueError(
                f"Query {bad} contains numbers that are not finite; was its text embedded?"
            )
        return prepared(queries, self.manifest.similarity)

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """Returns the exact vectors of documents, float32 [n, D].

        Raises:
          ValueError: naming the document, if its vector contains numbers that are not finite.
        """
        # int8 indexes store exact vectors in addition to the rounded ones.
        stored = self._exact or self.segments
        segments = np.searchsorted(self._starts, rows, "right") - 1
        vectors = np.empty([len(rows), self.manifest.dimension], np.float32)
        for i in np.unique(segments):
            in_segment = segments == i
            vectors[in_segment] = stored[i][rows[in_segment] - self._starts[i]]
        is_finite = np.isfinite(vectors).all(axis=1)
        if not is_finite.all():
            name = self.ids[int(rows[int(np.argmin(is_finite))])]
            raise ValueError(
                f"{self.folder}: the vector of document {name!r} contains numbers that are not "
                "finite; build the index again."
            )
        return vectors

    def _load(self, name: str, number: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """Maps an array of a segment into memory."""
        path = self.folder / f"{name}-{number:05}.npy"
        values = map_array(path)
        if values.dtype != dtype or values.shape != shape:
            raise ValueError(
                f"{path} contains {values.dtype} {values.shape}, but the manifest says {dtype} "
                f"{shape}; build the index again."
            )
        return values

    def _load_strings(self, name: str, number: int) -> strings.Strings:
        values = strings.Strings(self.folder, f"{name}-{number:05}")
        if len(values) != self.manifest.segments[number]:
            raise ValueError(
                f"{self.folder / name}-{number:05} has {len(values)} strings, but the manifest "
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
    language: str = "en",
) -> Manifest:
    """Writes a new index, atomically: the directory appears when it is complete.

    Args:
      folder: the directory, new or empty.
      batches: the documents, read once; one segment is held in memory.
      model: fingerprint of the model that made the vectors.
      source: path of the model.
      dtype: `float32`, `float16` (half the size) or `int8` (a quarter in memory).
      similarity: `cosine` or `dot`.
      pooling: pooling requested for the model; "": the model's default.
      max_seq_length: tokens that texts were cut to; 0: not known.
      language: of the texts, for BM25; one of `analyzer.STEMMERS`.

    Raises:
      ValueError: if the directory exists or is a mount point, there are no documents, an id is
        repeated, or a vector contains numbers that are not finite.
    """
    if dtype not in DTYPES or similarity not in SIMILARITIES:
        raise ValueError(
            f"dtype is {dtype!r} and similarity {similarity!r}; expected one of "
            f"{', '.join(DTYPES)} and of {', '.join(SIMILARITIES)}."
        )
    check_language(language)
    folder = new_folder_path(folder, "add to it, or name a new one")
    building = building_folder(folder)
    with _locked(folder, building.with_suffix(".lock")):
        shutil.rmtree(building, ignore_errors=True)  # left by a build that was killed
        building.mkdir(parents=True)
        try:
            # The first batch determines dimension and texts; see `_checked`.
            manifest = Manifest(
                model=model,
                source=source,
                dimension=0,
                dtype=dtype,
                similarity=similarity,
                has_texts=False,
                pooling=pooling,
                max_seq_length=max_seq_length,
                language=language,
            )
            manifest = write_segments(building, manifest, batches, set())
            if not manifest.segments:
                raise ValueError(
                    f"There are no documents to put into {folder}; the input is empty."
                )
            manifest.write(building)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        building.replace(folder)  # If this fails, the error names the finished folder.
    return manifest


def add_to_index(folder: str | os.PathLike, batches: Iterable[Batch], *, model: str) -> Manifest:
    """Adds documents to an index, atomically.

    Raises:
      ValueError: if the folder is not an index, the model or dimension differs, or an id exists.
    """
    folder = pathlib.Path(folder).expanduser()
    with _locked(folder, folder / ".lock"):
        index = Index(folder, model)
        before = index.manifest
        _remove_unlisted(folder, before)  # left by an addition that was killed
        try:
            after = write_segments(folder, before, batches, set(index.ids))
        except BaseException:
            _remove_unlisted(folder, before)  # Otherwise a full disk would stay full.
            raise
        if after.segments == before.segments:
            raise ValueError(f"There are no documents to add to {folder}; the input is empty.")
        # Until this replaces the manifest, readers see the index without the new segments.
        after.write(folder)
    return after


def record_language(folder: str | os.PathLike, language: str) -> Manifest:
    """Records a language and the present word rule in an index; vectors and texts stay."""
    check_language(language)
    folder = pathlib.Path(folder).expanduser()
    with _locked(folder, folder / ".lock"):
        manifest = dataclasses.replace(
            Index(folder).manifest, token_rule=TOKEN_RULE, language=language
        )
        manifest.write(folder)
    return manifest


def _remove_unlisted(folder: pathlib.Path, manifest: Manifest) -> None:
    """Deletes the files of segments that the manifest does not name."""
    for path in folder.iterdir():
        if path.suffix in (".npy", ".utf8") and path.name not in manifest.files:
            path.unlink()


@contextlib.contextmanager
def _locked(folder: pathlib.Path, path: pathlib.Path) -> Iterator[None]:
    """Locks an index against other writers."""
    with exclusive(path) as has_lock:
        if not has_lock:
            raise ValueError(f"Another process is writing {folder}; wait until it has finished.")
        yield


def _check_files(folder: pathlib.Path, manifest: Manifest, checks_all: bool) -> None:
    """Raises ValueError naming the first file that is missing or damaged."""
    for name, (size, _) in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{path} is missing: the index is damaged; build it again.")
        if path.stat().st_size != size:
            raise ValueError(
                f"{path} has {path.stat().st_size} bytes instead of {size}: the index is damaged; "
                "build it again."
            )
    if checks_all:
        crcs = file_crcs(folder / name for name in manifest.files)
        for (name, (_, recorded_crc)), crc in zip(manifest.files.items(), crcs, strict=True):
            if crc != recorded_crc:
                raise ValueError(
                    f"{folder / name} is damaged: its checksum is {crc} instead of {recorded_crc}; "
                    "build the index again."
                )
