"""FAISS for indexes that are too large to compare every document. Needs the extra:
pip install '.[faiss]'.

kind     size of a vector     a search reads
flat     4 D bytes            every vector, as `Index.search`
ivf_pq   about D / 4 bytes    the lists of the `PROBES` nearest of sqrt(N) centroids
hnsw     4 D bytes + links    a walk through a graph

The candidates of ivf_pq are scored again by the exact vectors. The file lies beside the index that
it is made of, with a record of the vectors' checksums. After documents were added, or in another
index, it is refused until it is made again.
"""

import logging
import pathlib
import types
from typing import Any

import numpy as np

from bert_tf.corpus.checksums import file_crc
from bert_tf.extras import install_hint
from bert_tf.files import atomic_write, read_optional_json, write_json
from bert_tf.search.index import RESCORED, Index

KINDS = ("flat", "ivf_pq", "hnsw")
TRAINED_ROWS = 256  # for each centroid
LINKS, BREADTH = 32, 128
PROBES = 16  # lists that ivf_pq reads; hnsw looks at 8 times as many vectors, at least k
LEAST = 256  # documents of ivf_pq
SEED = 1234  # of the rows that centroids are trained on
BLOCK_ROWS = 1 << 16


def build_faiss(index: Index, kind: str) -> pathlib.Path:
    """Writes a FAISS index of all vectors beside them; returns the file.

    Args:
      index: whose vectors are taken.
      kind: of `KINDS`.

    Raises:
      ValueError: an unknown kind, or see `check_faiss`.
    """
    size, count = index.manifest.dimension, len(index)
    check_faiss(kind, count)
    faiss = _library()
    inner = faiss.METRIC_INNER_PRODUCT
    if kind == "flat":
        made = faiss.IndexFlatIP(size)
    elif kind == "hnsw":
        made = faiss.IndexHNSWFlat(size, LINKS, inner)
        made.hnsw.efConstruction = BREADTH
    elif kind == "ivf_pq":
        lists = max(1, int(count**0.5))
        codes = next(n for n in (size // 4, size // 2, size) if n and size % n == 0)
        made = faiss.IndexIVFPQ(faiss.IndexFlatIP(size), size, lists, codes, 8, inner)
        chosen = np.random.default_rng(SEED).permutation(count)[: max(LEAST, TRAINED_ROWS * lists)]
        made.train(index.vectors(np.sort(chosen)))
    else:
        raise ValueError(f"kind is {kind!r}; expected one of {', '.join(KINDS)}.")
    for start in range(0, count, BLOCK_ROWS):
        made.add(index.vectors(np.arange(start, min(start + BLOCK_ROWS, count))))
    path = _path(index, kind)
    with atomic_write(path, "wb") as file:
        file.write(faiss.serialize_index(made).data)
    record = {**_record_of(index, kind), "crc32c": file_crc(path)}
    write_json(path.with_suffix(".json"), record)
    return path


def check_faiss(kind: str, count: int) -> None:
    """Raises ValueError if FAISS is not installed, or there are too few documents for ivf_pq."""
    _library()
    if kind == "ivf_pq" and count < LEAST:
        raise ValueError(f"ivf_pq needs {LEAST} documents, but there are {count}; take flat.")


class FaissIndex:
    """Searches a file of `build_faiss`.

    Args:
      index: the one it was made of.
      kind: of `KINDS`.

    Raises:
      ValueError: if there is no such file, it is damaged, or was made of other vectors.
    """

    def __init__(self, index: Index, kind: str) -> None:
        faiss = _library()
        path = _path(index, kind)
        if not path.is_file():
            raise ValueError(f"{path} is missing; make it: --faiss={kind} of bert_tf.build_index.")
        values = _checked_record(path, index, kind)
        try:
            self._faiss = faiss.deserialize_index(np.fromfile(path, np.uint8))
        except RuntimeError as error:
            line = str(error).splitlines()[0]
            raise ValueError(f"{path} is damaged ({line}); make it again.") from None
        classes = {
            "flat": faiss.IndexFlat,
            "ivf_pq": faiss.IndexIVFPQ,
            "hnsw": faiss.IndexHNSW,
        }
        shape = (self._faiss.ntotal, self._faiss.d)
        expected = (len(index), index.manifest.dimension)
        if not isinstance(self._faiss, classes[kind]) or shape != expected:
            raise ValueError(
                f"{path} holds {type(self._faiss).__name__} {shape}, expected {kind} {expected}; "
                "make it again."
            )
        if "vectors" not in values and kind != "ivf_pq":  # which keeps rounded vectors only
            rows = np.unique([0, len(index) // 2, len(index) - 1])
            kept = [self._faiss.reconstruct(int(row)) for row in rows]
            if not np.array_equal(kept, index.vectors(rows)):
                raise ValueError(f"{path} was not made of {index.folder}; make it again.")
        self.index, self.kind = index, kind
        if kind == "ivf_pq":
            self._faiss.nprobe = min(PROBES, self._faiss.nlist)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores float32 [Q, k] and rows int64 [Q, k]; see `Index.search`.

        Where fewer than k were found, rows are -1 and scores -inf.
        """
        self.index.check_k(k)
        queries = self.index.as_queries(queries)
        if self.kind == "hnsw":
            self._faiss.hnsw.efSearch = max(k, 8 * PROBES)
        wanted = min(len(self.index), RESCORED * k) if self.kind == "ivf_pq" else k
        scores, rows = self._faiss.search(queries, wanted)
        if self.kind == "ivf_pq":
            return self.index.rescore(queries, rows, k)
        return np.where(rows < 0, -np.inf, scores).astype(np.float32), rows


def _checked_record(path: pathlib.Path, index: Index, kind: str) -> dict[str, Any]:
    """Returns the record beside a file of `build_faiss`.

    Raises:
      ValueError: if the file differs from its record, or was made of another index.
    """
    about = path.with_suffix(".json")
    values = read_optional_json(about)
    # Before FAISS reads it: a damaged file can make it take any amount of memory.
    if values.get("crc32c") != file_crc(path):
        raise ValueError(f"{path} is damaged or was not finished; make it again.")
    expected = _record_of(index, kind)
    # Earlier releases did not record the last two.
    recorded = {name: values.get(name) for name in ("segments", "count")}
    recorded |= {name: values.get(name, expected[name]) for name in ("vectors", "kind")}
    if recorded != expected:
        raise ValueError(
            f"{path} has {values.get('count')} documents, {index.folder} {len(index)}, or "
            "their vectors differ: documents were added, or it belongs to another index. Make "
            f"it again: --faiss={kind} of bert_tf.build_index."
        )
    return values


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
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)  # else it tells of each attempt
    try:
        import faiss
    except ImportError:
        raise ValueError(
            f"FAISS is not installed; {install_hint('faiss')}, or with `pip install faiss-cpu`."
        ) from None
    return faiss
