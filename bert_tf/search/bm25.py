"""BM25, search by words. Needs the extra `search`.

Words are runs of letters, digits and underscores, in lower case, stemmed by the stemmer of their
language (PyStemmer); in English without 33 stop words. Chinese, Japanese and Thai have no spaces
between words; there the words are pairs of neighbouring characters. Words of one character count,
as in Lucene: "C", "C++" and "C#" are all the word c. Other programs split, stem and weight words in
other ways, so their scores differ: Lucene keeps "don't" and "3.14" as one word, here they are two.

Reference: Robertson and Zaragoza 2009, "The probabilistic relevance framework"; bm25s' `lucene`.
"""

import logging
import types
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf.extras import install_hint
from bert_tf.search.words import STEMMERS, TOKEN_PATTERNS, with_pairs
from bert_tf.vectors.candidates import best_candidates

# Anserini's values
K1 = 0.9
B = 0.4
# Lucene's list, which Anserini removes.
STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there
these they this to was will with
""".split()


class Bm25:
    """An inverted index of words, in memory.

    Args:
      texts: the texts of the documents.
      k1: saturation of repeated words; the smaller, the sooner repetitions stop counting.
      b: length normalization, 0 (none) to 1.
      token_rule: how texts and queries are split into words, one of `words.TOKEN_PATTERNS`.
      language: whose stemmer is applied, one of `words.STEMMERS`.

    Raises:
      ValueError: if there are no documents, or bm25s is not installed.
    """

    def __init__(
        self,
        texts: Sequence[str],
        k1: float = K1,
        b: float = B,
        token_rule: str = "one_character",
        language: str = "en",
    ) -> None:
        self._library, stemmer = _libraries(language)
        if not len(texts):
            raise ValueError("There are no documents to search; the corpus is empty.")
        self._count = len(texts)
        self._tokens: dict[str, Any] = {
            "token_pattern": TOKEN_PATTERNS[token_rule],
            "stopwords": STOP_WORDS if language == "en" else [],
            "stemmer": stemmer,
            "show_progress": False,
        }
        tokens = self._library.tokenize(list(map(with_pairs, texts)), **self._tokens)
        self._index = self._library.BM25(k1=k1, b=b, method="lucene")
        # bm25s cannot index an empty vocabulary, for example that of stop words alone.
        self._has_words = bool(tokens.vocab)
        if self._has_words:
            self._index.index(tokens, show_progress=False)

    def search(self, queries: Sequence[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k documents of the highest score for each query.

        Args:
          queries: Q texts.
          k: 1 <= k <= number of documents.

        Returns:
          scores float32 [Q, k], descending, 0 where no word is shared, and rows int64 [Q, k];
          equal scores are ordered by row.

        Raises:
          ValueError: if k is above the number of documents.
        """
        if not 1 <= k <= self._count:
            raise ValueError(
                f"k is {k}; it must be between 1 and {self._count}, the document count."
            )
        best_scores = np.empty([len(queries), k], np.float32)
        best_rows = np.empty([len(queries), k], int)
        all_rows = np.arange(self._count)[None]  # [1, N]
        for index, scores in enumerate(self._scores(queries)):
            query_scores, query_rows = best_candidates(scores[None], all_rows, k)
            best_scores[index] = query_scores[0]
            best_rows[index] = query_rows[0]
        return best_scores, best_rows

    def score(self, queries: Sequence[str], rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns the scores of selected documents.

        Args:
          queries: Q texts.
          rows: for each query, the rows of the documents, int64 [n].

        Returns:
          For each query, float32 [n], 0 where no word is shared.
        """
        totals = self._scores(queries)
        return [total[chosen] for total, chosen in zip(totals, rows, strict=True)]

    def _scores(self, queries: Sequence[str]) -> Iterator[np.ndarray]:
        """Yields the scores of all documents for each query, float32 [N]."""
        pairs = list(map(with_pairs, queries))
        # Words and not ids: a query may have words that no document has.
        words = self._library.tokenize(pairs, return_ids=False, **self._tokens)
        for query_words in words:  # One query at a time: each needs N numbers of memory.
            if query_words and self._has_words:
                yield np.asarray(self._index.get_scores(query_words), np.float32)
            else:
                yield np.zeros(self._count, np.float32)


def _libraries(language: str) -> tuple[types.ModuleType, Any]:
    """Returns bm25s, and the stemmer of a language or None."""
    try:
        import bm25s
        import Stemmer
    except ImportError as error:
        raise ValueError(
            f"BM25 needs {error.name}; {install_hint('search')}, or with `pip install bm25s "
            "PyStemmer`."
        ) from None
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # It logs each step otherwise.
    name = STEMMERS[language]
    return bm25s, Stemmer.Stemmer(name) if name else None
