"""Exact search of many vectors, beside FAISS' flat index: seconds a batch, and memory.

    pip install faiss-cpu
    python -m benchmarks.exact_search --documents=1000000 --dimension=384 --k=100 --queries=32

Both search the same vectors in turn, in one process, with as many threads as the machine has
cores. Vectors are memory-mapped for ours; FAISS holds its own copy.
"""

import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
from absl import flags

from bert_tf.config import config_flags

DOCUMENTS = flags.DEFINE_integer("documents", 1_000_000, "Vectors searched.", 1)
DIMENSION = flags.DEFINE_integer("dimension", 384, "Numbers of a vector.", 1)
QUERIES = flags.DEFINE_integer("queries", 32, "Queries of a batch.", 1)
K = flags.DEFINE_integer("k", 100, "Documents found for each query.", 1)
RUNS = flags.DEFINE_integer("runs", 5, "Searches timed of each.", 1)
CHUNK = flags.DEFINE_integer("chunk_rows", 16384, "Documents scored at once.", 1)


def main(_: list[str]) -> None:
    try:
        import faiss
    except ImportError:
        raise ValueError("The benchmark compares with FAISS: pip install faiss-cpu.") from None
    from bert_tf.metrics.exact import top_k

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "vectors.npy")
        random = np.random.default_rng(0)
        write(path, random)
        vectors = np.load(path, mmap_mode="r")
        queries = unit(random.standard_normal((QUERIES.value, DIMENSION.value), np.float32))
        search(top_k, queries, vectors)  # loads TensorFlow's kernels
        before = anonymous_megabytes()
        seconds, found = search(top_k, queries, vectors)
        grown = anonymous_megabytes() - before
        index = faiss.IndexFlatIP(DIMENSION.value)
        index.add(np.ascontiguousarray(vectors))
        times: dict[str, list[float]] = {"exact": [], "faiss": []}
        for _ in range(RUNS.value):
            seconds, found = search(top_k, queries, vectors)
            times["exact"].append(seconds)
            start = time.perf_counter()
            _, rows = index.search(queries, K.value)
            times["faiss"].append(time.perf_counter() - start)
        shared = np.mean([len({*a} & {*b}) / K.value for a, b in zip(found, rows, strict=True)])
    expected = 4e-6 * CHUNK.value * QUERIES.value
    print(f"found alike   {shared:.4%}")
    for name, values in times.items():
        every = " ".join(f"{value:.2f}" for value in values)
        print(f"{name:12}  {statistics.median(values):.3f} s, median of {every}")
    ratio = statistics.median(a / b for a, b in zip(*times.values(), strict=True))
    print(f"ratio         {ratio:.2f}, median of pairs")
    print(
        f"memory        {grown:.1f} MB more while searching; scores of a chunk {expected:.1f} MB,"
    )
    print(f"              the chunk itself {4e-6 * CHUNK.value * DIMENSION.value:.1f} MB if copied")


def search(top_k: Callable, queries: np.ndarray, vectors: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns seconds and rows."""
    start = time.perf_counter()
    _, rows = top_k(queries, vectors, K.value, chunk_rows=CHUNK.value)
    return time.perf_counter() - start, rows


def write(path: pathlib.Path, random: np.random.Generator) -> None:
    """Writes unit vectors block by block."""
    shape = (DOCUMENTS.value, DIMENSION.value)
    table = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    for start in range(0, len(table), 1 << 16):
        block = table[start : start + (1 << 16)]
        block[:] = unit(random.standard_normal(block.shape, np.float32))


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def anonymous_megabytes() -> float:
    """Returns this process's memory that is no file's."""
    text = pathlib.Path("/proc/self/status").read_text(encoding="utf8")
    line = next(line for line in text.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    config_flags.run(main)
