"""BM25: documents found by their words. Needs the extra `search`.

The words are runs of letters, digits and underscores, in lower case, without 33 English stop words
and stemmed by Porter's English stemmer (PyStemmer); of Chinese, Japanese and Thai, without spaces
between words, the pairs of neighbouring characters. Words of one character count, as in Lucene:
"C", "C++" and "C#" are all the word c. Other programs split, stem and weight words in other ways,
and their scores differ by that: Lucene keeps "don't" and "3.14" as one word, here they are two.

Reference: Robertson and Zaragoza 2009, "The probabilistic relevance framework"; bm25s' `lucene`.
"""

import logging
import types
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf.extras import install_hint
from bert_tf.search.words import TOKEN_PATTERNS, with_pairs
from bert_tf.vectors.candidates import best_candidates

K1, B = 0.9, 0.4  # Anserini's
# Lucene's list, which Anserini removes.
STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there
these they this to was will with
""".split()


class Bm25:
    """An index of words, in memory.

    Args:
      texts: of the documents.
      k1: how soon a word that is repeated counts no more.
      b: how much long documents are marked down, 0 to 1.
      token_rule: how texts and queries are split into words, of `words.TOKEN_PATTERNS`.

    Raises:
      ValueError: if there is no document, or bm25s is not installed.
    """

    def __init__(
        self,
        texts: Sequence[str],
        k1: float = K1,
        b: float = B,
        token_rule: str = "one_character",
    ) -> None:
        self._library, stemmer = _libraries()
        if not len(texts):
            raise ValueError("There is no document to search in; the corpus is empty.")
        self._count = len(texts)
        self._tokens: dict[str, Any] = {
            "token_pattern": TOKEN_PATTERNS[token_rule],
            "stopwords": STOP_WORDS,
            "stemmer": stemmer,
            "show_progress": False,
        }
        tokens = self._library.tokenize(list(map(with_pairs, texts)), **self._tokens)
        self._index = self._library.BM25(k1=k1, b=b, method="lucene")
        self._has_words = bool(tokens.vocab)
        if self._has_words:
            self._index.index(tokens, show_progress=False)

    def search(self, queries: Sequence[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k documents of the highest score for each query.

        Args:
          queries: Q texts.
          k: 1 <= k <= number of documents.

        Returns:
          scores float32 [Q, k], descending, 0 where no word is shared, and rows int64 [Q, k]; of
          equal scores the lower row comes first.

        Raises:
          ValueError: k above the number of documents.
        """
        if not 1 <= k <= self._count:
            raise ValueError(f"k is {k}, but there are {self._count} documents; give 1 to as many.")
        scores = np.empty([len(queries), k], np.float32)
        places = np.empty([len(queries), k], int)
        rows = np.arange(self._count)[None]
        for index, total in enumerate(self._scores(queries)):
            found, found_rows = best_candidates(total[None], rows, k)
            scores[index] = found[0]
            places[index] = found_rows[0]
        return scores, places

    def score(self, queries: Sequence[str], rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns the scores of chosen documents.

        Args:
          queries: Q texts.
          rows: for each query, rows of documents, int64 [n].

        Returns:
          For each query float32 [n], 0 where no word is shared.
        """
        totals = self._scores(queries)
        return [total[chosen] for total, chosen in zip(totals, rows, strict=True)]

    def _scores(self, queries: Sequence[str]) -> Iterator[np.ndarray]:
        """Yields the scores of all documents for each query, float32 [N]."""
        pairs = list(map(with_pairs, queries))
        words = self._library.tokenize(pairs, return_ids=False, **self._tokens)
        for query_words in words:  # One after the other: each needs N numbers.
            if query_words and self._has_words:
                yield np.asarray(self._index.get_scores(query_words), np.float32)
            else:
                yield np.zeros(self._count, np.float32)


def _libraries() -> tuple[types.ModuleType, Any]:
    try:
        import bm25s
        import Stemmer
    except ImportError as error:
        raise ValueError(
            f"BM25 needs {error.name}; {install_hint('search')}, or with `pip install bm25s "
            "PyStemmer`."
        ) from None
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # else it tells of each step
    return bm25s, Stemmer.Stemmer("english")
