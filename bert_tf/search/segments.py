"""Writes documents into the segments of an index; its files are described in `index.py`."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.metrics.quantization import quantize
from bert_tf.search import strings
from bert_tf.search.manifest import Manifest
from bert_tf.system.checksums import file_crcs

SEGMENT_BYTES = 64 << 20  # as float32; a build holds two copies of a segment in memory


class Batch(NamedTuple):
    """A batch of documents."""

    ids: Sequence[str]
    vectors: np.ndarray  # float [n, D]
    texts: Sequence[str] | None = None  # None: texts are not stored


def prepared(vectors: np.ndarray, similarity: str) -> np.ndarray:
    """Returns vectors as float32, of unit length if the similarity is cosine."""
    vectors = np.asarray(vectors, np.float32)
    if similarity == "dot":
        return vectors
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12)  # A vector of zeros stays zero.


def write_segments(
    folder: pathlib.Path, manifest: Manifest, batches: Iterable[Batch], seen: set[str]
) -> Manifest:
    """Writes documents into new segments; returns the manifest extended by them."""
    held: list[Batch] = []  # batches of the segment to come
    for batch in batches:
        if not len(batch.ids):
            continue
        vectors = np.asarray(batch.vectors, np.float32)
        manifest = _checked(manifest, batch, vectors, seen)
        held.append(batch._replace(vectors=prepared(vectors, manifest.similarity)))
        rows = max(1, SEGMENT_BYTES // (4 * manifest.dimension))
        if sum(len(part.ids) for part in held) >= rows:
            manifest = _write_segment(folder, manifest, held)
            held = []
    return _write_segment(folder, manifest, held) if held else manifest


def _checked(manifest: Manifest, batch: Batch, vectors: np.ndarray, seen: set[str]) -> Manifest:
    """Checks a batch and adds its ids to `seen`; the first batch completes the manifest."""
    is_first = not manifest.dimension
    if is_first:
        has_texts = batch.texts is not None
        manifest = dataclasses.replace(manifest, dimension=vectors.shape[-1], has_texts=has_texts)
    if vectors.shape != (len(batch.ids), manifest.dimension):
        raise ValueError(
            f"Got vectors of shape {vectors.shape} for {len(batch.ids)} documents; expected "
            f"[{len(batch.ids)}, {manifest.dimension}]."
        )
    if manifest.has_texts and batch.texts is None:
        raise ValueError("The index stores texts; give the texts of all documents.")
    if batch.texts is not None and not manifest.has_texts:
        raise ValueError("The index stores no texts; give documents without texts.")
    if batch.texts is not None and len(batch.texts) != len(batch.ids):
        raise ValueError(
            f"Got {len(batch.texts)} texts for {len(batch.ids)} documents; give one per document."
        )
    for name, is_finite in zip(batch.ids, np.isfinite(vectors).all(axis=1), strict=True):
        if not isinstance(name, str):
            raise ValueError(f"A document id is {name!r}, expected a string; give str({name!r}).")
        if name in seen or not name:
            fault = "occurs twice" if name else "is empty"
            raise ValueError(f"The document id {name!r} {fault}; ids must be unique, not empty.")
        if not is_finite:
            raise ValueError(
                f"The vector of document {name!r} contains numbers that are not finite."
            )
        seen.add(name)
    return manifest


def _write_segment(folder: pathlib.Path, manifest: Manifest, held: list[Batch]) -> Manifest:
    """Writes batches as one segment; returns the manifest with its files."""
    number = len(manifest.segments)
    vectors = np.concatenate([batch.vectors for batch in held])  # [n, D]
    ids: list[str] = []
    texts: list[str] = []
    for batch in held:
        ids.extend(batch.ids)
        texts.extend(batch.texts or ())
    paths = strings.write(folder, f"ids-{number:05}", ids)
    if manifest.has_texts:
        paths += strings.write(folder, f"texts-{number:05}", texts)
    for name, values in _segment_arrays(vectors, manifest.dtype).items():
        paths.append(folder / f"{name}-{number:05}.npy")
        np.save(paths[-1], values)
    # The manifest names these files, so they must be on the disk before it is written.
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    files = dict(manifest.files)
    for path, crc in zip(paths, file_crcs(paths), strict=True):
        files[path.name] = (path.stat().st_size, crc)
    return dataclasses.replace(manifest, segments=(*manifest.segments, len(ids)), files=files)


def _segment_arrays(vectors: np.ndarray, dtype: str) -> dict[str, np.ndarray]:
    """Returns the arrays that store vectors [n, D] in a segment, by name."""
    if dtype == "int8":
        rounded = quantize(vectors)
        return {
            "vectors": rounded.values,
            "scales": rounded.lengths,
            "ranges": np.stack([rounded.offsets, rounded.steps]),
            "exact": vectors,
        }
    if dtype == "float16" and np.abs(vectors).max() > np.finfo(np.float16).max:
        raise ValueError("A vector is too large for float16; give dtype float32.")
    return {"vectors": vectors.astype(dtype)}
