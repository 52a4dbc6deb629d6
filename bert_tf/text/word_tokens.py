"""The tokens of words inside the TensorFlow graph."""

from typing import NamedTuple

import tensorflow as tf


class WordTokens(NamedTuple):
    """The tokens of words, concatenated."""

    ids: tf.Tensor  # int32 [P]
    begins: tf.Tensor  # int32 [P], first character of each token, in its word
    ends: tf.Tensor  # int32 [P], the character after it
    counts: tf.Tensor  # int64 [W], tokens of each word
