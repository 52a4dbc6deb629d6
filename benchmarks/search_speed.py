"""Exact search beside FAISS and NumPy, MaxSim beside NumPy, and BM25 beside bm25s alone.

python -m benchmarks.search_speed                          # a million vectors, 1.5 GB in --folder
python -m benchmarks.search_speed --tokens=600000          # token vectors of 128 in memory
python -m benchmarks.search_speed --corpus=scifact         # a BEIR folder, for BM25
"""

import argparse
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.timing import in_turn, print_table, times_in_turn
from bert_tf.metrics.exact import CHUNK_ROWS, top_k
from bert_tf.search.token_vectors import DTYPES, TokenIndex

SIZE = 384
TOKEN_SIZE = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=0)
    parser.add_argument("--corpus", default="")
    options = parser.parse_args()
    if options.corpus:
        compare_words(options.corpus, options.k, options.rounds)
    elif options.tokens:
        compare_tokens(options)
    else:
        compare_vectors(options)


def compare_vectors(options: Any) -> None:
    """Prints the seconds of searches of mapped vectors, and whether all find the same."""
    path = pathlib.Path(options.folder) / "search_speed.npy"
    heads = ["queries", "seconds", "bert_tf", "FAISS", "NumPy", "same documents"]
    print_table(heads, vector_rows(path, options))
    path.unlink()


def vector_rows(path: pathlib.Path, options: Any) -> Iterator[list[Any]]:
    """Yields the rows of the table of `compare_vectors`."""
    import faiss

    documents = np.lib.format.open_memmap(path, "w+", np.float32, (options.documents, SIZE))
    random = np.random.default_rng(0)
    for first in range(0, len(documents), CHUNK_ROWS):
        part = documents[first : first + CHUNK_ROWS]
        part[:] = random.standard_normal(part.shape, np.float32)
    index = faiss.IndexFlatIP(SIZE)
    index.add(documents)
    k = options.k
    for count in (1, 32):
        queries = random.standard_normal((count, SIZE), np.float32)
        calls = {
            "bert_tf": lambda q=queries: top_k(q, documents, k)[1],
            "FAISS": lambda q=queries: index.search(q, k)[1],
            "NumPy": lambda q=queries: numpy_search(q, documents, k),
        }
        found = [call() for call in calls.values()]
        is_same = all((other == found[0]).all() for other in found)
        times = times_in_turn(calls, options.rounds)
        for statistic in (np.min, np.median):
            cells = [f"{statistic(values[:, 0]):.3f}" for values in times.values()]
            yield [count, statistic.__name__, *cells, is_same]


def compare_tokens(options: Any) -> None:
    """Prints the seconds of searches of token vectors by MaxSim; a document has 60 to 180."""
    random = np.random.default_rng(0)
    lengths = random.integers(60, 181, options.tokens // 120)
    documents = [random.standard_normal((n, TOKEN_SIZE), np.float32) for n in lengths]
    indexes = {dtype: TokenIndex.of(documents, dtype) for dtype in DTYPES}
    joined = np.concatenate(documents)
    starts = np.cumsum([0, *lengths[:-1]])
    rows = []
    for tokens in (12, 32):
        query = random.standard_normal((tokens, TOKEN_SIZE), np.float32)
        calls = {
            dtype: lambda q=query, index=index: index.search([q], options.k)
            for dtype, index in indexes.items()
        }
        calls["NumPy"] = lambda q=query: np.maximum.reduceat(q @ joined.T, starts, axis=1).sum(0)
        for call in calls.values():
            call()  # decodes the vectors
        times = times_in_turn(calls, options.rounds)
        for statistic in (np.min, np.median):
            cells = [f"{statistic(values[:, 0]):.3f}" for values in times.values()]
            rows.append([tokens, statistic.__name__, *cells])
    print_table(["tokens of the query", "seconds", *indexes, "NumPy"], rows)


def numpy_search(queries: np.ndarray, documents: np.ndarray, k: int) -> np.ndarray:
    """Returns the rows of the k best documents, chunk by chunk."""
    scores = []
    rows = []
    for first in range(0, len(documents), CHUNK_ROWS):
        chunk = queries @ np.asarray(documents[first : first + CHUNK_ROWS]).T
        best = np.argpartition(-chunk, k - 1, axis=1)[:, :k]
        scores.append(np.take_along_axis(chunk, best, axis=1))
        rows.append(best + first)
    order = np.argsort(-np.concatenate(scores, axis=1), axis=1)[:, :k]
    return np.take_along_axis(np.concatenate(rows, axis=1), order, axis=1)


def compare_words(corpus: str, k: int, rounds: int) -> None:
    """Prints the seconds of searching the queries of a BEIR folder by words."""
    import bm25s
    import Stemmer

    from bert_tf.search.bm25 import K1, B, Bm25
    from bert_tf.tasks.embedding.beir import read_beir

    beir = read_beir(corpus, "test")
    texts = list(beir.documents.values())
    queries = list(beir.queries.values())
    words = Bm25(texts)
    stemmer = Stemmer.Stemmer("english")
    library = bm25s.BM25(k1=K1, b=B, method="lucene")
    library.index(bm25s.tokenize(texts, stemmer=stemmer, show_progress=False), show_progress=False)

    def search_library() -> Any:
        tokens = bm25s.tokenize(queries, stemmer=stemmer, show_progress=False)
        return library.retrieve(tokens, k=k, show_progress=False)

    calls = {"bert_tf": lambda: words.search(queries, k), "bm25s": search_library}
    seconds = in_turn(calls, rounds)
    rows = [[len(queries), *(f"{seconds[name][0]:.3f}" for name in calls)]]
    print_table(["queries", *calls], rows)


if __name__ == "__main__":
    main()
