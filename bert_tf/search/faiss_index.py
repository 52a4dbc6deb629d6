"""FAISS, for indexes too large for exhaustive search. Needs the extra:
pip install '.[faiss]'.

kind     size of a vector     a search reads
flat     4 D bytes            every vector, as `Index.search` does
ivf_pq   about D / 4 bytes    the lists of the `PROBES` nearest of sqrt(N) centroids
hnsw     4 D bytes + links    a path through a graph

The candidates of ivf_pq are rescored with the exact vectors. The FAISS file is stored in the folder
of its index, with a record of the vectors' checksums. It must be built again after documents are
added, and is refused in any other index.
"""

import logging
import pathlib
import types
from typing import Any

import numpy as np

from bert_tf.metrics.candidates import best_candidates, check_k
from bert_tf.metrics.exact import dot_products
from bert_tf.search.open_index import RESCORED, Index
from bert_tf.system.checksums import file_crc
from bert_tf.system.extras import install_hint
from bert_tf.system.files import atomic_write, read_optional_json, write_json
from bert_tf.system.printable import first_line

# The kinds, and the classes that FAISS reads from their files.
CLASSES = {"flat": "IndexFlatIP", "ivf_pq": "IndexIVFPQ", "hnsw": "IndexHNSWFlat"}
KINDS = tuple(CLASSES)
TRAINED_ROWS = 256  # training vectors per centroid
HNSW_LINKS = 32
EF_CONSTRUCTION = 128
PROBES = 16  # lists that ivf_pq reads; hnsw keeps 8 times as many candidates, at least k
MIN_IVF_PQ = 256  # smallest number of documents for ivf_pq
SEED = 1234  # draws the vectors that centroids are trained on
BLOCK_ROWS = 1 << 16


def build_faiss(index: Index, kind: str) -> pathlib.Path:
    """Writes a FAISS index of a kind of `KINDS` into the index's folder; returns the file."""
    size = index.manifest.dimension
    count = len(index)
    check_faiss(kind, count)
    faiss = _library()
    inner = faiss.METRIC_INNER_PRODUCT
    if kind == "flat":
        faiss_index = faiss.IndexFlatIP(size)
    elif kind == "hnsw":
        faiss_index = faiss.IndexHNSWFlat(size, HNSW_LINKS, inner)
        faiss_index.hnsw.efConstruction = EF_CONSTRUCTION
    elif kind == "ivf_pq":
        # About sqrt(N) lists of sqrt(N) vectors balance finding the lists and reading them.
        lists = max(1, int(count**0.5))
        # The number of codes must divide the dimension.
        codes = next(n for n in (size // 4, size // 2, size) if n and size % n == 0)
        # 8 bits per code: one of 256 centroids for each part of the vector.
        faiss_index = faiss.IndexIVFPQ(faiss.IndexFlatIP(size), size, lists, codes, 8, inner)
        shuffled = np.random.default_rng(SEED).permutation(count)
        sample = shuffled[: max(MIN_IVF_PQ, TRAINED_ROWS * lists)]
        # Sorted rows are read from the memory-mapped files in order.
        faiss_index.train(index.vectors(np.sort(sample)))
    else:
        raise ValueError(f"kind is {kind!r}; expected one of {', '.join(KINDS)}.")
    # In blocks, because `index.vectors` copies rows into memory.
    for start in range(0, count, BLOCK_ROWS):
        faiss_index.add(index.vectors(np.arange(start, min(start + BLOCK_ROWS, count))))
    path = _path(index, kind)
    with atomic_write(path, "wb") as file:
        file.write(faiss.serialize_index(faiss_index).data)
    # The record comes last: a file without a matching checksum is refused.
    record = {**_record_of(index, kind), "crc32c": file_crc(path)}
    write_json(path.with_suffix(".json"), record)
    return path


def check_faiss(kind: str, count: int) -> None:
    """Raises ValueError if FAISS is not installed, or there are too few documents for ivf_pq."""
    _library()
    if kind == "ivf_pq" and count < MIN_IVF_PQ:
        raise ValueError(f"ivf_pq needs {MIN_IVF_PQ} documents, but there are {count}; use flat.")


class FaissIndex:
    """Searches a file of `build_faiss`.

    Raises:
      ValueError: if the file is missing or damaged, or was built from other vectors.
    """

    def __init__(self, index: Index, kind: str) -> None:
        faiss = _library()
        path = _path(index, kind)
        if not path.is_file():
            raise ValueError(
                f"{path} is missing; build it with bert_tf.build_index --faiss={kind}."
            )
        _check_record(path, index, kind)
        try:
            self._faiss = faiss.deserialize_index(np.fromfile(path, np.uint8))
        except (RuntimeError, MemoryError) as error:
            raise ValueError(f"{path} is damaged ({first_line(error)}); build it again.") from None
        held = (type(self._faiss).__name__, self._faiss.d, self._faiss.ntotal)
        expected = (CLASSES[kind], index.manifest.dimension, len(index))
        if held != expected or self._faiss.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise ValueError(f"{path} holds {held}, expected {expected}; build it again.")
        self.index = index
        self.kind = kind
        if kind == "ivf_pq":
            self._faiss.nprobe = min(PROBES, self._faiss.nlist)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores float32 [Q, k] and rows int64 [Q, k]; see `Index.search`.

        Where fewer than k were found, rows are -1 and scores -inf.
        """
        check_k(k, len(self.index))
        queries = self.index.as_queries(queries)
        if self.kind == "hnsw":
            # The candidates that a search keeps on its way; a larger k needs more.
            self._faiss.hnsw.efSearch = max(k, 8 * PROBES)
        # Scores of quantized vectors are approximate: more candidates are rescored exactly.
        wanted = min(len(self.index), RESCORED * k) if self.kind == "ivf_pq" else k
        scores, rows = self._faiss.search(queries, wanted)
        if self.kind == "ivf_pq":
            return self._rescore(queries, rows, k)
        # Where FAISS found fewer than k documents, it returns the row -1.
        return np.where(rows < 0, -np.inf, scores).astype(np.float32), rows

    def _rescore(
        self, queries: np.ndarray, rows: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores candidates [Q, c] with the exact vectors; -1 marks an empty slot."""
        scores = np.full(rows.shape, -np.inf, np.float32)  # so that empty slots come last
        for query, query_rows, query_scores in zip(queries, rows, scores, strict=True):
            is_candidate = query_rows >= 0
            vectors = self.index.vectors(query_rows[is_candidate])
            query_scores[is_candidate] = dot_products(vectors, query)
        return best_candidates(scores, rows, k)


def _check_record(path: pathlib.Path, index: Index, kind: str) -> None:
    """Raises ValueError if a file, or the index, differs from the record written with the file."""
    values = read_optional_json(path.with_suffix(".json"))
    # Compare before FAISS reads the file: a damaged one can make it allocate any amount of memory.
    if values.get("crc32c") != file_crc(path):
        raise ValueError(f"{path} is damaged or incomplete; build it again.")
    expected = _record_of(index, kind)
    if {name: values.get(name) for name in expected} != expected:
        raise ValueError(
            f"{path} has {values.get('count')} documents and {index.folder} has {len(index)}, or "
            "their vectors differ: documents were added, or the file belongs to another index. "
            f"Build it again with bert_tf.build_index --faiss={kind}."
        )


def _record_of(index: Index, kind: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "segments": list(index.manifest.segments),
        "count": len(index),
        "vectors": index.manifest.vector_crcs(),
    }


def _path(index: Index, kind: str) -> pathlib.Path:
    return index.folder / f"faiss-{kind}.bin"


def _library() -> types.ModuleType:
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)  # It logs each attempt otherwise.
    try:
        import faiss
    except ImportError:
        raise ValueError(
            f"FAISS is not installed; {install_hint('faiss')}, or with `pip install faiss-cpu`."
        ) from None
    return faiss
