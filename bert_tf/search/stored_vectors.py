"""A segment of an index: its vectors and their scores with queries, its ids and texts."""

import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.metrics.exact import CHUNK_ROWS, chunk_products
from bert_tf.metrics.quantization import (
    Ranges,
    binary_codes,
    hamming_scores,
    signs,
    vector_lengths,
)
from bert_tf.search.manifest import Manifest
from bert_tf.search.strings import Strings
from bert_tf.system.bounded_arrays import map_array


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


class Segment:
    """A segment, memory-mapped.

    Attributes:
      documents, vectors: which ones it has, among those of all segments.
      arrays: those of `segment_arrays`; also `rows` and `keys`, if there are any.
      ids, texts: the strings of its documents; no texts if the index stores none.

    Raises:
      ValueError: if the files do not contain what the manifest says.
    """

    def __init__(self, folder: pathlib.Path, manifest: Manifest, number: int) -> None:
        self.manifest = manifest
        self._folder = folder
        self._number = number
        index = number - manifest.first_segment
        self.documents = _part(manifest.segments, index)
        self.vectors = _part(manifest.vector_counts, index)
        self.arrays: dict[str, np.ndarray] = {}
        count = manifest.vector_counts[index]
        # The names, types and shapes are those of a segment that is written.
        written = segment_arrays(np.zeros([1, manifest.dimension], np.float32), manifest)
        for name, example in written.items():
            shape = (2 if name == "ranges" else count, *example.shape[1:])
            self._map(name, example.dtype, shape)
        if f"rows-{number:05}.npy" in manifest.files:
            self._map("rows", np.dtype(np.int64), (manifest.segments[index],))
        if f"keys-{number:05}.npy" in manifest.files:
            self._map("keys", np.dtype(np.uint64), (count,))
        self.ids: Sequence[str] = self._load_strings("ids")
        self.texts: Sequence[str] = self._load_strings("texts") if manifest.has_texts else ()

    def _map(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        path = self._folder / f"{name}-{self._number:05}.npy"
        values = map_array(path)
        if values.dtype != dtype or values.shape != shape:
            raise ValueError(
                f"{path} contains {values.dtype} {values.shape}, but the manifest says "
                f"{dtype} {shape}; build the index again."
            )
        self.arrays[name] = values

    def _load_strings(self, name: str) -> Strings:
        values = Strings(self._folder, f"{name}-{self._number:05}")
        count = self.documents.stop - self.documents.start
        if len(values) != count:
            raise ValueError(
                f"{self._folder / name}-{self._number:05} has {len(values)} strings, but the "
                f"manifest says {count} documents; build the index again."
            )
        return values

    def vector_rows(self) -> np.ndarray:
        """Returns the row of each document's vector among those of all segments."""
        if "rows" in self.arrays:
            return self.arrays["rows"]
        start = self.vectors.start
        return np.arange(start, start + self.documents.stop - self.documents.start)

    def arrays_of(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the arrays that store some of the vectors, by name."""
        arrays = {}
        for name, values in self.arrays.items():
            if name != "rows":
                arrays[name] = values if name == "ranges" else values[rows]
        return arrays

    def scores(self, queries: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yields (first row, scores float32 [Q, n]) for each chunk of the vectors.

        The scores are dot products; of int8 those with the restored vectors, of binary minus the
        number of bits that differ.
        """
        vectors = self.arrays["vectors"]
        if self.manifest.dtype == "binary":
            bits = binary_codes(queries)
            for first in range(0, len(vectors), CHUNK_ROWS):
                yield first, hamming_scores(bits, np.asarray(vectors[first : first + CHUNK_ROWS]))
            return
        if self.manifest.dtype != "int8":
            yield from chunk_products(queries, vectors)
            return
        scales = self.arrays["scales"]
        offsets, steps = self.arrays["ranges"]
        # q . (offsets + steps * v) = q . offsets + (q * steps) . v: only v is int8.
        shifts = queries @ offsets  # [Q]
        for first, scores in chunk_products(queries * steps, vectors):
            scores += shifts[:, None]
            scores *= scales[first : first + scores.shape[1]]
            yield first, scores

    def restore(self, rows: np.ndarray) -> np.ndarray:
        """Returns the most exact vectors as float32 [n, D]; those of one bit have the length 1."""
        if "exact" in self.arrays:
            return self.arrays["exact"][rows]
        vectors = self.arrays.get("int8", self.arrays["vectors"])[rows]
        if "ranges" in self.arrays:
            offsets, steps = self.arrays["ranges"]
            return (vectors * steps + offsets) * self.arrays["scales"][rows][:, None]
        if self.manifest.dtype == "binary":
            dimension = self.manifest.dimension
            return signs(vectors, dimension) / np.float32(np.sqrt(dimension))
        return vectors.astype(np.float32)


def _part(counts: Sequence[int], index: int) -> slice:
    """Returns the range of a part among all items, for the number of items in each part."""
    start = sum(counts[:index])
    return slice(start, start + counts[index])
