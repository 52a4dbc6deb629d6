"""Writes documents into the segments of an index; its files are described in `index.py`."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.search import strings
from bert_tf.search.manifest import Manifest, check_same_texts
from bert_tf.search.recall import RecallSample
from bert_tf.search.stored_vectors import segment_arrays
from bert_tf.system.checksums import file_crcs

SEGMENT_BYTES = 64 << 20  # as float32; a build holds two copies of a segment in memory


class Batch(NamedTuple):
    """A batch of documents."""

    ids: Sequence[str]
    vectors: np.ndarray  # float [n, D]
    texts: Sequence[str] | None = None  # None: texts are not stored
    keys: Sequence[int] | None = None  # 64 bits each; documents of one key share a vector


def prepared(vectors: np.ndarray, similarity: str, dimension: int = 0) -> np.ndarray:
    """Returns the first numbers of vectors as float32, of unit length if the similarity is cosine.

    `dimension` is how many numbers, 0: all. With `dot`, shortened vectors keep their length.
    """
    vectors = np.asarray(vectors, np.float32)
    kept = vectors[:, : dimension or None]
    if similarity == "dot" and kept.shape == vectors.shape:
        return vectors
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    kept = kept / np.maximum(lengths, 1e-12)  # A vector of zeros stays zero.
    if similarity == "dot":
        kept = kept * np.linalg.norm(vectors, axis=1, keepdims=True)
    return kept


class SegmentWriter:
    """Writes documents into new segments of an index.

    Args:
      manifest: of the index so far; `manifest` is extended segment by segment.
      seen: ids that new documents must not have; those of new documents are added.
      vector_rows: the row of the vector of each key.
      sample: collects the documents that measure the recall; None: it is not measured.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        manifest: Manifest,
        seen: set[str],
        vector_rows: dict[int, int],
        sample: RecallSample | None = None,
    ) -> None:
        self.manifest = manifest
        self._folder = folder
        self._seen = seen
        self._vector_rows = vector_rows
        self._sample = sample
        self._next_row = sum(manifest.vector_counts)
        self._clear()

    def _clear(self) -> None:
        """Begins a segment."""
        self._ids: list[str] = []
        self._texts: list[str] = []
        self._rows: list[int] = []  # the row of each document's vector
        self._keys: list[int] = []  # of the vectors
        self._vectors: list[np.ndarray] = []

    def add(self, batch: Batch) -> None:
        """Adds documents; raises ValueError if one cannot be stored."""
        if not len(batch.ids):
            return
        vectors = np.asarray(batch.vectors, np.float32)
        self._check(batch, vectors)
        new = []
        for number in range(len(batch.ids)):
            row = self._next_row
            if batch.keys is not None:
                row = self._vector_rows.setdefault(int(batch.keys[number]), row)
            self._rows.append(row)
            if row == self._next_row:
                new.append(number)
                self._next_row += 1
        if batch.keys is not None:
            self._keys.extend(int(batch.keys[number]) for number in new)
        manifest = self.manifest
        if self._sample:
            self._sample.add(prepared(vectors[new], manifest.similarity))
        self._vectors.append(prepared(vectors[new], manifest.similarity, manifest.dimension))
        self._ids.extend(batch.ids)
        self._texts.extend(batch.texts or ())
        if len(self._ids) >= max(1, SEGMENT_BYTES // (4 * manifest.dimension)):
            self.finish()

    def finish(self) -> Manifest:
        """Writes the documents that are held; returns the manifest."""
        if self._ids:
            vectors = np.concatenate(self._vectors)  # [n, D]
            arrays = segment_arrays(vectors, self.manifest)
            if len(self._keys) == len(vectors):
                arrays["keys"] = np.array(self._keys, np.uint64)
            rows = np.array(self._rows, np.int64)
            self.manifest = write_segment(
                self._folder, self.manifest, self._ids, self._texts, arrays, rows
            )
            self._clear()
        return self.manifest

    def _check(self, batch: Batch, vectors: np.ndarray) -> None:
        """Checks a batch and adds its ids to `seen`; the first batch completes the manifest."""
        if not self.manifest.model_dimension:
            size = vectors.shape[-1]
            dimension = self.manifest.dimension
            if dimension > size:
                raise ValueError(
                    f"dimensions is {dimension}, but the vectors have {size}; give fewer."
                )
            self.manifest = dataclasses.replace(
                self.manifest,
                model_dimension=size,
                dimension=dimension or size,
                has_texts=batch.texts is not None,
            )
        expected = (len(batch.ids), self.manifest.model_dimension)
        if vectors.shape != expected:
            raise ValueError(
                f"Got vectors of shape {vectors.shape} for {len(batch.ids)} documents; expected "
                f"{[*expected]}."
            )
        check_same_texts(self.manifest.has_texts, batch.texts is not None)
        for name, values in (("texts", batch.texts), ("keys", batch.keys)):
            if values is not None and len(values) != len(batch.ids):
                raise ValueError(
                    f"Got {len(values)} {name} for {len(batch.ids)} documents; give one per "
                    "document."
                )
        for name, is_finite in zip(batch.ids, np.isfinite(vectors).all(axis=1), strict=True):
            self._check_document(name, is_finite)
            self._seen.add(name)

    def _check_document(self, name: object, is_finite: bool) -> None:
        if not isinstance(name, str):
            raise ValueError(f"A document id is {name!r}, expected a string; give str({name!r}).")
        if name in self._seen or not name:
            fault = "occurs twice" if name else "is empty"
            raise ValueError(f"The document id {name!r} {fault}; ids must be unique, not empty.")
        if not is_finite:
            raise ValueError(
                f"The vector of document {name!r} contains numbers that are not finite."
            )


def write_segment(
    folder: pathlib.Path,
    manifest: Manifest,
    ids: Sequence[str],
    texts: Sequence[str],
    arrays: dict[str, np.ndarray],
    rows: np.ndarray,
) -> Manifest:
    """Writes the files of a segment; returns the manifest with them.

    `rows` are those of the documents' vectors, int64 [documents], among those of all segments.
    """
    number = manifest.numbers.stop
    paths = strings.write(folder, f"ids-{number:05}", ids)
    if manifest.has_texts:
        paths += strings.write(folder, f"texts-{number:05}", texts)
    start = sum(manifest.vector_counts)
    count = len(arrays["vectors"])
    if not np.array_equal(rows, np.arange(start, start + count)):
        arrays = {**arrays, "rows": rows}
    for name, values in arrays.items():
        paths.append(folder / f"{name}-{number:05}.npy")
        np.save(paths[-1], values)
    return dataclasses.replace(
        manifest,
        segments=(*manifest.segments, len(ids)),
        vector_counts=(*manifest.vector_counts, count),
        files={**manifest.files, **file_entries(paths)},
    )


def file_entries(paths: Sequence[pathlib.Path]) -> dict[str, tuple[int, str]]:
    """Returns the entries of new files in the manifest, after they have reached the disk."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    entries = {}
    for path, crc in zip(paths, file_crcs(paths), strict=True):
        entries[path.name] = (path.stat().st_size, crc)
    return entries
