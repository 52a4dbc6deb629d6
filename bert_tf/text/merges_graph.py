"""Merges the symbols of words by byte pair encoding, inside the TensorFlow graph."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

_NEVER = np.iinfo(np.int32).max  # rank of a pair that is not merged


class MergeTable(NamedTuple):
    """The merges by rank, and sorted keys to look up the rank of a pair."""

    num_tokens: int
    keys: np.ndarray  # int64 [M], left * V + right, sorted
    rank_of_key: np.ndarray  # int32 [M]
    merged: np.ndarray  # int32 [M], by rank
    # bool [M], by rank: whether no merge that uses the merged token has a lower rank. Otherwise one
    # merge may have to come before the next merge of the same pair.
    is_last: np.ndarray

    @classmethod
    def build(cls, ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> "MergeTable":
        """Returns the table of merges of tokens with these ids."""
        pairs = np.array([(ids[a], ids[b]) for a, b in merges], np.int64).reshape(-1, 2)
        merged = np.array([ids[a + b] for a, b in merges], np.int32)
        ranks = np.arange(len(pairs), dtype=np.int32)
        first_use = np.full(len(ids), _NEVER, np.int32)
        for side in (0, 1):
            np.minimum.at(first_use, pairs[:, side], ranks)
        keys = pairs[:, 0] * len(ids) + pairs[:, 1]
        order = np.argsort(keys)
        # One more key and rank, so that no table is empty.
        return cls(
            len(ids),
            np.append(keys[order], np.iinfo(np.int64).max),
            np.append(order, _NEVER).astype(np.int32),
            np.append(merged, 0).astype(np.int32),
            np.append(first_use[merged] > ranks, True),
        )

    def merge(
        self, symbols: tf.Tensor, owners: tf.Tensor, num_words: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Merges the symbols of all words at once: in each step, each word's pairs of least rank.

        Args:
          symbols: token ids, int32 [N].
          owners: the word of each symbol, int32 [N], ascending.

        Returns:
          The token ids after all merges and their words, each int32 [P].
        """

        def merge_once(
            symbols: tf.Tensor, owners: tf.Tensor, ranks: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            least = tf.math.unsorted_segment_min(ranks, owners, num_words)  # [W]
            is_least = (ranks < _NEVER) & (ranks == tf.gather(least, owners))
            is_chosen = self.choose(is_least, ranks, owners, num_words)
            chosen = tf.where(is_chosen, ranks, 0)
            symbols = tf.where(is_chosen, tf.gather(self.merged, chosen), symbols)
            # The left symbol of a pair becomes the merged token; the right one is removed.
            kept = tf.where(~tf.concat([[False], is_chosen[:-1]], 0))[:, 0]
            symbols = tf.gather(symbols, kept)
            owners = tf.gather(owners, kept)
            return symbols, owners, self.ranks(symbols, owners)

        symbols, owners, _ = tf.while_loop(
            lambda symbols, owners, ranks: tf.reduce_any(ranks < _NEVER),
            merge_once,
            (symbols, owners, self.ranks(symbols, owners)),
            shape_invariants=(tf.TensorShape([None]),) * 3,
        )
        return symbols, owners

    def ranks(self, symbols: tf.Tensor, owners: tf.Tensor) -> tf.Tensor:
        """Returns the rank of each symbol and the next symbol of its word, int32 [N]."""
        left = tf.cast(symbols, tf.int64)
        keys = left[:-1] * self.num_tokens + left[1:]
        indices = tf.searchsorted(self.keys, keys)
        # searchsorted finds the next key; only an equal one is a merge.
        is_pair = (tf.gather(self.keys, indices) == keys) & (owners[:-1] == owners[1:])
        ranks = tf.where(is_pair, tf.gather(self.rank_of_key, indices), _NEVER)
        return tf.concat([ranks, tf.fill([tf.minimum(tf.size(symbols), 1)], _NEVER)], 0)

    def choose(
        self, is_least: tf.Tensor, ranks: tf.Tensor, owners: tf.Tensor, num_words: tf.Tensor
    ) -> tf.Tensor:
        """Returns which pairs of least rank are merged: in "aaa" the first two letters."""
        positions = tf.range(tf.size(is_least))
        is_start = is_least & ~tf.concat([[False], is_least[:-1]], 0)
        run_starts = tf.concat([[0], tf.cast(tf.where(is_start)[:, 0], tf.int32)], 0)
        run = tf.cumsum(tf.cast(is_start, tf.int32))
        # Pairs that overlap cannot both be merged: in a run, every second one is.
        is_chosen = is_least & ((positions - tf.gather(run_starts, run)) % 2 == 0)
        if not self.is_last.all():
            candidates = tf.where(is_chosen, positions, tf.int32.max)
            # Such a merge is done one pair at a time, the first of each word, as in the sequential
            # form.
            first = tf.math.unsorted_segment_min(candidates, owners, num_words)
            is_free = tf.gather(self.is_last, tf.where(is_chosen, ranks, 0))
            is_chosen &= is_free | (positions == tf.gather(first, owners))
        return is_chosen
