"""BM25, search by words. Needs the extra `search`.

`analyzer.Analyzer` cuts documents and queries into words. Other programs split, stem and weight
words in other ways, so their scores differ.

Reference: Robertson and Zaragoza 2009, "The probabilistic relevance framework"; bm25s' `lucene`.
"""

import logging
import types
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.metrics.candidates import best_of_queries, check_k
from bert_tf.search.analyzer import Analyzer
from bert_tf.system.extras import install_hint

# Anserini's values.
K1 = 0.9  # Saturation of repeated words: the smaller, the sooner repetitions stop counting.
B = 0.4  # Length normalization, 0 (none) to 1.


class Bm25:
    """An inverted index of words, in memory; the language is one of `analyzer.STEMMERS`.

    Raises:
      ValueError: if there are no documents, the language is unknown, or bm25s is not installed.
    """

    def __init__(self, texts: Sequence[str], language: str = "en") -> None:
        library = _import_bm25s()
        self._analyzer = Analyzer(language)
        if not len(texts):
            raise ValueError("There are no documents to search; the corpus is empty.")
        self._count = len(texts)
        vocabulary: dict[str, int] = {}
        rows = []
        for text in texts:
            words = self._analyzer.words(text)
            rows.append([vocabulary.setdefault(word, len(vocabulary)) for word in words])
        self._index = library.BM25(k1=K1, b=B, method="lucene")
        # bm25s cannot index an empty vocabulary, for example that of stop words alone.
        self._has_words = bool(vocabulary)
        if self._has_words:
            self._index.index((rows, vocabulary), show_progress=False)

    def search(self, queries: Sequence[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k documents of the highest score for each query, k at most their number.

        Returns:
          scores float32 [Q, k], descending, 0 where no word is shared, and rows int64 [Q, k];
          equal scores are ordered by row.
        """
        check_k(k, self._count)
        return best_of_queries(self._scores(queries), k)

    def score(self, queries: Sequence[str], rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns the scores of selected documents, rows int64 [n] for each query.

        It is float32 [n] for each query, 0 where no word is shared.
        """
        totals = self._scores(queries)
        return [total[chosen] for total, chosen in zip(totals, rows, strict=True)]

    def _scores(self, queries: Sequence[str]) -> Iterator[np.ndarray]:
        """Yields the scores of all documents for each query, float32 [N]."""
        for query in queries:  # One query at a time: each needs N numbers of memory.
            # Words and not ids: a query may have words that no document has.
            query_words = self._analyzer.words(query)
            if query_words and self._has_words:
                yield np.asarray(self._index.get_scores(query_words), np.float32)
            else:
                yield np.zeros(self._count, np.float32)


def _import_bm25s() -> types.ModuleType:
    """Returns bm25s, after checking that PyStemmer is installed as well."""
    try:
        import bm25s
        import Stemmer  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"BM25 needs {error.name}; {install_hint('search')}, or with `pip install bm25s "
            "PyStemmer`."
        ) from None
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # It logs each step otherwise.
    return bm25s
