"""SPLADE: a text as weights of the vocabulary's pieces, most of them 0, made by the MLM head.

    logits [B, T, V] -> log(1 + relu) -> maximum over the pieces of the text -> [B, V]

Unlike BM25 a text weighs pieces that it does not hold. Reference: Formal et al. 2021, "SPLADE v2:
sparse lexical and expansion model for information retrieval".
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.modeling.models import BertPretrainer
from bert_tf.search.index import best
from bert_tf.text.packing import pack, pad_batch
from bert_tf.text.tokenization import Tokenizer, make_tokenizer

BLOCK = 16  # pieces whose scores of the whole vocabulary are in memory at once, of each text


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
        kept = [(np.flatnonzero(row > 0).astype(np.int32), row) for row in rows]
        starts = np.cumsum([0, *(len(places) for places, _ in kept)], dtype=np.int64)
        pieces = np.concatenate([np.zeros([0], np.int32), *(places for places, _ in kept)])
        weights = [row[places].astype(np.float32) for places, row in kept]
        return cls(starts, pieces, np.concatenate([np.zeros([0], np.float32), *weights]))

    def row(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns pieces int32 [n] and weights float32 [n] of a row."""
        part = slice(self.starts[index], self.starts[index + 1])
        return self.pieces[part], self.weights[part]


class SparseEncoder:
    """Encodes texts with a masked LM that was trained as SPLADE.

    Args:
      model: with the MLM head.
      tokenizer: of the model.
      max_seq_length: pieces a text is cut to.
      batch_size: texts computed at once.

    Raises:
      ValueError: if the model has fewer positions.
    """

    def __init__(
        self,
        model: BertPretrainer,
        tokenizer: Tokenizer,
        max_seq_length: int = 256,
        batch_size: int = 16,
    ) -> None:
        if max_seq_length > model.config.longest_row:
            raise ValueError(
                f"max_seq_length is {max_seq_length}, but the model has {model.config.longest_row} "
                "positions; give that or less."
            )
        self.model, self.tokenizer = model, tokenizer
        self.max_seq_length, self.batch_size = max_seq_length, batch_size
        names = ("input_word_ids", "input_mask", "input_type_ids")
        shape = {name: tf.TensorSpec([None, None], tf.int32) for name in names}
        self._compute = tf.function(self.weights, input_signature=[shape], autograph=False)

    @classmethod
    def from_pretrained(cls, path: str | pathlib.Path, **sizes: int) -> Self:
        """Reads a checkpoint with an MLM head, in any form.

        Raises:
          ValueError: if it cannot be read, or has no MLM head or vocabulary.
        """
        checkpoint = read_checkpoint(path)
        checkpoint.check()
        if "masked_lm" not in checkpoint.heads or checkpoint.vocab is None:
            raise ValueError(
                f"{path} has no masked-LM head, or no vocabulary; SPLADE needs both: it has the "
                f"heads {list(checkpoint.heads)}."
            )
        model = BertPretrainer.from_checkpoint(
            checkpoint, use_next_sentence=False, use_pooler=False
        )
        tokenizer = make_tokenizer(checkpoint.vocab, checkpoint.config.do_lower_case)
        return cls(model, tokenizer, **sizes)

    def weights(self, batch: dict[str, Any], training: bool = False, seed: Any = None) -> Any:
        """Returns the weights of all pieces, float32 [B, V], of rows of ids int32 [B, T].

        Memory holds the scores of `BLOCK` pieces of each text.
        """
        mask = tf.cast(batch["input_mask"], tf.float32)
        size, length = tf.unstack(tf.shape(mask))
        encoded = self.model.bert(batch, training=training, dropout_seed=seed)["sequence_output"]
        table = self.model.bert.embeddings.word_embeddings

        def step(first: Any, highest: Any) -> tuple[Any, Any]:
            places = tf.minimum(tf.range(first, first + BLOCK), length - 1)
            positions = tf.tile(places[None], [size, 1])
            logits = self.model.predictions(encoded, positions, table)  # [B, BLOCK, V]
            real = tf.gather(mask, places, axis=1)[:, :, None]
            return first + BLOCK, tf.maximum(highest, tf.reduce_max(logits * real, axis=1))

        # log(1 + relu(x)) rises with x: of the maximum it is the maximum.
        start = tf.constant(0), tf.zeros([size, self.model.config.vocab_size])
        shapes = tf.TensorShape([]), tf.TensorShape([None, self.model.config.vocab_size])
        _, highest = tf.while_loop(
            lambda first, _: first < length, step, start, shape_invariants=shapes
        )
        return tf.math.log1p(highest)

    def encode(self, texts: Sequence[str]) -> SparseVectors:
        """Returns the vectors of texts, in their order."""
        vocab = self.tokenizer.vocab
        rows = [pack(vocab, self.tokenizer.encode(text), [], self.max_seq_length) for text in texts]
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index].ids))
        found: dict[int, np.ndarray] = {}
        for first in range(0, len(rows), self.batch_size):
            chosen = order[first : first + self.batch_size]
            batch = pad_batch([rows[index] for index in chosen], vocab.pad_id)
            found |= zip(chosen, self._compute(batch).numpy(), strict=True)
        return SparseVectors.from_rows(found[index] for index in range(len(rows)))

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
            raise ValueError(f"k is {k}, but there are {self._count} documents; give fewer.")
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
