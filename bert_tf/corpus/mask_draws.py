"""The random numbers from which the masks of a batch are drawn."""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.config import MaskingConfig
from bert_tf.corpus.random_bits import random_bits, random_integers
from bert_tf.text.tokenization import AnyVocab

# The random numbers of an example. No objective draws both an order and the turn of spans.
SELECT, DECIDE, REPLACE, CUT, RATE, TURN, CAUSAL = range(7)
ORDER = 5


class MaskDraws(NamedTuple):
    """The random numbers of a batch's examples, and the settings with which they are read."""

    example_ids: tf.Tensor  # int64 [B], number of each example in the corpus
    epochs: tf.Tensor  # int64 [B], the epoch of each example
    vocab: AnyVocab  # has the special tokens and the tokens that continue a word
    masking: MaskingConfig  # share, maximum and kind of the selection
    seed: int  # in [0, 2**64)
    # The completed share of the run, float64 [] from 0 to 1, for `masked_lm_prob_end`; None in
    # evaluations.
    progress: tf.Tensor | None = None

    def bits(self, use: int, *indices: tf.Tensor) -> tf.Tensor:
        """Returns 64 random bits for each index int32 [1 or B, N] of a use, uint64 [B, N]."""
        # [B, 1] each: they broadcast against the positions.
        return random_bits(
            self.seed, self.epochs[:, None], self.example_ids[:, None], use, *indices
        )

    def integers(self, limit: int, use: int, *indices: tf.Tensor) -> tf.Tensor:
        """Returns a random number in [0, limit) for each index, int32 [B, N]; see `bits`."""
        return random_integers(self.bits(use, *indices), limit)
