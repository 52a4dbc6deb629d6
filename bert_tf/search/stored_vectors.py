"""The arrays that store the vectors of a segment, and their scores with queries."""

import pathlib
from collections.abc import Iterator

import numpy as np

from bert_tf.metrics.exact import chunk_products
from bert_tf.metrics.quantization import (
    Ranges,
    binary_codes,
    hamming_scores,
    signs,
    vector_lengths,
)
from bert_tf.search.manifest import Manifest
from bert_tf.system.bounded_arrays import map_array


def array_shapes(manifest: Manifest, count: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Returns dtype and shape of each array of a segment with `count` vectors, by name."""
    full = (count, manifest.dimension)
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {"vectors": (manifest.dtype, full)}
    if manifest.dtype == "binary":
        shapes["vectors"] = ("uint8", (count, -(-manifest.dimension // 8)))
    if manifest.rescore == "float32":
        shapes["exact"] = ("float32", full)
    if manifest.rescore == "int8":
        shapes["int8"] = ("int8", full)
    if "int8" in (manifest.dtype, manifest.rescore):
        shapes["scales"] = ("float32", (count,))
        shapes["ranges"] = ("float32", (2, manifest.dimension))
    return shapes


def segment_arrays(vectors: np.ndarray, manifest: Manifest) -> dict[str, np.ndarray]:
    """Returns the arrays that store vectors float32 [n, D] in a segment, by name."""
    dtype = manifest.dtype
    arrays = {"exact": vectors} if manifest.rescore == "float32" else {}
    if "int8" in (dtype, manifest.rescore):
        # Those of cosine are 1, apart from rounding, which would change codes.
        scales = np.ones(len(vectors), np.float32)
        if manifest.similarity == "dot":
            scales = vector_lengths(vectors)
        unit = vectors / scales[:, None]
        # A segment may have duplicates alone, and no vectors.
        ranges = Ranges.of(unit if len(unit) else np.zeros([1, manifest.dimension], np.float32))
        arrays["scales"] = scales
        arrays["ranges"] = np.stack([ranges.offsets, ranges.steps])
        arrays["vectors" if dtype == "int8" else "int8"] = ranges.codes(unit)
    if dtype == "binary":
        arrays["vectors"] = binary_codes(vectors)
    elif dtype != "int8":
        if dtype == "float16" and np.abs(vectors).max(initial=0) > np.finfo(np.float16).max:
            raise ValueError("A vector is too large for float16; give dtype float32.")
        arrays["vectors"] = vectors.astype(dtype)
    return arrays


class StoredVectors:
    """The vectors of a segment, memory-mapped.

    Args:
      number: of the segment, in the names of its files.
      count: of its vectors.

    Raises:
      ValueError: if an array has another type or shape than the manifest says.
    """

    def __init__(self, folder: pathlib.Path, manifest: Manifest, number: int, count: int) -> None:
        self.manifest = manifest
        self.arrays: dict[str, np.ndarray] = {}
        for name, (dtype, shape) in array_shapes(manifest, count).items():
            path = folder / f"{name}-{number:05}.npy"
            values = map_array(path)
            if values.dtype != dtype or values.shape != shape:
                raise ValueError(
                    f"{path} contains {values.dtype} {values.shape}, but the manifest says "
                    f"{dtype} {shape}; build the index again."
                )
            self.arrays[name] = values

    def __len__(self) -> int:
        return len(self.arrays["vectors"])

    def scores(self, queries: np.ndarray, chunk_rows: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yields (first row, scores float32 [Q, n]) for each chunk of the vectors.

        The scores are dot products; of int8 those with the restored vectors, of binary minus the
        number of bits that differ.
        """
        vectors = self.arrays["vectors"]
        if self.manifest.dtype == "binary":
            bits = binary_codes(queries)
            for first in range(0, len(self), chunk_rows):
                yield first, hamming_scores(bits, np.asarray(vectors[first : first + chunk_rows]))
            return
        if self.manifest.dtype != "int8":
            yield from chunk_products(queries, vectors, chunk_rows)
            return
        scales = self.arrays["scales"]
        offsets, steps = self.arrays["ranges"]
        # q . (offsets + steps * v) = q . offsets + (q * steps) . v: only v is int8.
        shifts = queries @ offsets  # [Q]
        for first, scores in chunk_products(queries * steps, vectors, chunk_rows):
            scores += shifts[:, None]
            scores *= scales[first : first + scores.shape[1]]
            yield first, scores

    def restore(self, rows: np.ndarray, copies: str) -> np.ndarray:
        """Returns vectors as float32 [n, D].

        `copies` are those of `RESCORING`; "none" restores them from the vectors that are searched,
        where those of one bit have the length 1.
        """
        if copies == "float32":
            return self.arrays["exact"][rows]
        dtype = "int8" if copies == "int8" else self.manifest.dtype
        if dtype == "binary":
            dimension = self.manifest.dimension
            bits = signs(self.arrays["vectors"][rows], dimension)
            return bits / np.float32(np.sqrt(dimension))
        if dtype != "int8":
            return self.arrays["vectors"][rows].astype(np.float32)
        codes = self.arrays["int8" if copies == "int8" else "vectors"][rows]
        offsets, steps = self.arrays["ranges"]
        return (codes * steps + offsets) * self.arrays["scales"][rows][:, None]
