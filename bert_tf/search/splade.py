"""Texts as sparse vectors by a `BertSplade`, kept and searched by their pieces."""

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np

from bert_tf.checkpoints.embedding import MOST_PIECES
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.hub import record_of
from bert_tf.checkpoints.sentence_transformers import splade_length
from bert_tf.data.columns import read_texts
from bert_tf.modeling.splade import BertSplade
from bert_tf.modeling.text_model import TextModel
from bert_tf.search.index import best
from bert_tf.text.tokenization import Tokenizer, make_tokenizer


@dataclasses.dataclass(frozen=True)
class SparseVectors:
    """Rows of which only numbers above 0 are kept.

    Row i holds weights[starts[i]:starts[i + 1]] at pieces[starts[i]:starts[i + 1]], ascending.
    """

    starts: np.ndarray  # int64 [N + 1]
    pieces: np.ndarray  # int32
    weights: np.ndarray  # float32

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def from_rows(cls, rows: Iterable[np.ndarray]) -> "SparseVectors":
        """Makes them of dense rows, float32 [V] each."""
        return cls.from_pieces(list(map(sparse_row, rows)))

    @classmethod
    def from_pieces(cls, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> "SparseVectors":
        """Makes them of the pieces, ascending, and the weights of each row."""
        starts = np.cumsum([0, *(len(pieces) for pieces, _ in rows)], dtype=np.int64)
        pieces = np.concatenate([np.zeros([0], np.int32), *(pieces for pieces, _ in rows)])
        weights = np.concatenate([np.zeros([0], np.float32), *(weights for _, weights in rows)])
        return cls(starts, pieces, weights)

    def row(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns pieces int32 [n] and weights float32 [n] of a row."""
        part = slice(self.starts[index], self.starts[index + 1])
        return self.pieces[part], self.weights[part]


def sparse_row(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns pieces int32 [n] and weights float32 [n] of a dense row [V], which may then go."""
    pieces = np.flatnonzero(row > 0).astype(np.int32)
    return pieces, row[pieces].astype(np.float32)


class SparseEncoder(TextModel):
    """Encodes texts with a masked LM that was trained as SPLADE.

    Args:
      model: trained as SPLADE.
      tokenizer: of the model.
      max_seq_length: pieces a text is cut to; 0: 256, or all positions if the model has fewer.
      batch_size: texts computed at once.

    Raises:
      ValueError: if the model has fewer positions.
    """

    def __init__(
        self, model: BertSplade, tokenizer: Tokenizer, max_seq_length: int = 0, batch_size: int = 16
    ) -> None:
        length = max_seq_length or min(MOST_PIECES, model.config.longest_row)
        super().__init__(model, tokenizer, lambda weights, _: weights, length, batch_size)
        self.model = model

    @classmethod
    def from_pretrained(cls, path: str | pathlib.Path, **sizes: int) -> Self:
        """Reads a checkpoint with an MLM head, in any form.

        A run says how long its texts were, a folder of sentence-transformers how long they may be.

        Raises:
          ValueError: if it cannot be read, has no MLM head or vocabulary, or pools in another way.
        """
        checkpoint = read_checkpoint(path, tower=BertSplade.tower)
        checkpoint.check()
        if checkpoint.vocab is None:
            raise ValueError(f"{path} has no vocabulary; SPLADE needs one to encode texts.")
        model = BertSplade.from_checkpoint(checkpoint)
        tokenizer = make_tokenizer(checkpoint.vocab, checkpoint.config.do_lower_case)
        stated = splade_length(record_of(checkpoint.source), checkpoint.config.longest_row)
        trained = int(checkpoint.settings.get("max_seq_length", 0))
        sizes.setdefault("max_seq_length", stated or trained)
        return cls(model, tokenizer, **sizes)

    def encode(self, texts: Sequence[str]) -> SparseVectors:
        """Returns the vectors of texts, in their order.

        Raises:
          ValueError: if `texts` is a single string, or holds something else.
        """
        packed = [self.pack(text) for text in (read_texts(texts) if len(texts) else [])]
        return SparseVectors.from_pieces(self.run(packed, sparse_row))

    def explain(
        self, vectors: SparseVectors, index: int, most: int = 10
    ) -> list[tuple[str, float]]:
        """Returns the heaviest pieces of a vector with their weights."""
        pieces, weights = vectors.row(index)
        order = np.argsort(-weights, kind="stable")[:most]
        return [(self.tokenizer.vocab.tokens[pieces[i]], float(weights[i])) for i in order]


class SparseIndex:
    """Finds the documents with the highest dot products, by lists of the documents of each piece.

    Args:
      documents: their vectors.

    Raises:
      ValueError: if there is none.
    """

    def __init__(self, documents: SparseVectors) -> None:
        if not len(documents):
            raise ValueError("There is no document to search in; the corpus is empty.")
        self._count = len(documents)
        rows = np.repeat(np.arange(self._count, dtype=np.int64), np.diff(documents.starts))
        order = np.argsort(documents.pieces, kind="stable")
        self._rows, self._weights = rows[order], documents.weights[order]
        self._pieces = documents.pieces[order]

    def search(self, queries: SparseVectors, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores float32 [Q, k], descending, and rows int64 [Q, k]; see `top_k`.

        Raises:
          ValueError: k above the number of documents.
        """
        if not 1 <= k <= self._count:
            raise ValueError(f"k is {k}, but there are {self._count} documents; give 1 to as many.")
        scores, places = np.empty([len(queries), k], np.float32), np.empty([len(queries), k], int)
        rows = np.arange(self._count)[None]
        for index in range(len(queries)):  # One after the other: all need [Q, N] numbers.
            total = np.zeros(self._count)
            for piece, weight in zip(*queries.row(index), strict=True):
                first, last = np.searchsorted(self._pieces, [piece, piece + 1])
                total[self._rows[first:last]] += weight * self._weights[first:last]
            found = best(total[None].astype(np.float32), rows, k)
            scores[index], places[index] = (column[0] for column in found)
        return scores, places
