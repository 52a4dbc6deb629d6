"""Attention scores that depend on the distance of two tokens by learned terms.

A term is computed for each distance and then expanded to pairs of tokens:

  term of each distance [..., T, T + S - 1] -> expand_distances -> scores [..., T, S]

  RelativeBias   a learned number for each head and bucket of distances (T5, MPNet)

`disentangled.py` has DeBERTa's terms.
"""

import math

import keras
import numpy as np
from keras import ops

from bert_tf.network.positions import Learned, Positions, initializer
from bert_tf.system.type_names import Tensor


def expand_distances(terms: Tensor, num_queries: Tensor, num_keys: Tensor) -> Tensor:
    """Puts the term of each distance at the pairs of tokens that are so far apart: [..., T, S].

    `terms` are [..., T, T + S - 1]; that of query i and key j is at [i, j - i + T - 1].
    """
    no_padding = [[0, 0]] * (len(terms.shape) - 2)
    padded = ops.pad(terms, [*no_padding, [0, 0], [0, 1]])  # [..., T, T + S]
    return expand_filled_distances(padded, num_queries, num_keys)


def expand_filled_distances(terms: Tensor, num_queries: Tensor, num_keys: Tensor) -> Tensor:
    """`expand_distances` of terms that have another column at the end, with any numbers.

    It reads them with rows that are one shorter, which shifts each row by one more: there is no
    gather, whose gradient would be a scatter.
    """
    width = num_queries + num_keys - 1
    leading = ops.shape(terms)[:-2]
    # Element (i, j) in rows of `width`, T - 1 further on, is (i, j - i + T - 1) in rows of
    # `width` + 1.
    flat = ops.reshape(terms, (*leading, num_queries * (width + 1)))
    first = num_queries - 1
    shifted = flat[..., first : first + num_queries * width]
    return ops.reshape(shifted, (*leading, num_queries, width))[..., :num_keys]


class RelativeBias(Positions):
    """A learned bias of each head for each bucket of distances; see `distance_buckets`.

    All layers share one table, as in MPNet, or each has its own (`relative_bias_per_layer`).
    Differs from T5, which does not divide the scores by the root of the head's size.

    References: Raffel et al. 2020, section 2.1; Song et al. 2020 (MPNet).
    """

    has_terms = True

    def build_encoder(self, encoder: keras.Model) -> None:
        if not self.config.relative_bias_per_layer:
            # `add_weight` would leave the scope that the encoder has opened, bert/encoder.
            encoder.relative_attention_bias = keras.Variable(
                initializer(self.config.initializer_range),
                shape=self._table_shape(),
                dtype=encoder.variable_dtype,
                name="relative_attention_bias",
            )

    def build_attention(self, attention: keras.layers.Layer) -> None:
        if self.config.relative_bias_per_layer:
            attention.relative_attention_bias = attention.add_weight(
                name="relative_attention_bias",
                shape=self._table_shape(),
                initializer=initializer(self.config.initializer_range),
            )

    def _table_shape(self) -> tuple[int, int]:
        return self.config.relative_rows, self.config.num_attention_heads

    def shared_terms(self, encoder: keras.Model, length: Tensor) -> Tensor | None:
        if self.config.relative_bias_per_layer:
            return None
        return self._biases(encoder.relative_attention_bias, 1 - length, 2 * length - 1)

    def score_terms(
        self,
        attention: keras.layers.Layer,
        shared: Tensor | None,
        query: Tensor,
        key: Tensor,
        offset: Tensor,
    ) -> Tensor:
        num_queries = ops.shape(query)[1]
        num_keys = ops.shape(key)[1]
        first = offset - num_queries + 1  # The lowest distance.
        count = num_queries + num_keys - 1
        if shared is None:
            biases = self._biases(attention.relative_attention_bias, first, count)
        else:
            # The middle column is distance 0.
            middle = ops.shape(shared)[1] // 2
            biases = shared[:, middle + first : middle + first + count]  # [N, T + S - 1]
        biases = ops.cast(biases, query.dtype)
        rows = ops.repeat(biases[:, None], num_queries, axis=1)  # [N, T, T + S - 1]
        return expand_distances(rows, num_queries, num_keys)[None]

    def _biases(self, table: Tensor, first: Tensor, count: Tensor) -> Tensor:
        """Returns the bias of `count` distances from `first` on, float [N, count]."""
        config = self.config
        table = ops.convert_to_tensor(table)  # In the dtype of the computation.
        distances = ops.arange(count, dtype="int32") + first
        buckets = distance_buckets(distances, config.relative_buckets, config.relative_max_distance)
        # With one-hot rows the gradient is a small matrix product instead of a scatter.
        one_hot = ops.one_hot(buckets, config.relative_rows, dtype=table.dtype)
        return ops.matmul(ops.transpose(table), ops.transpose(one_hot))


class LearnedRelativeBias(Learned, RelativeBias):
    """The position table of `Learned`, and the bias of `RelativeBias` as well (MPNet)."""


def distance_buckets(distances: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Returns the bucket of each distance from a query to a key (T5's, in both directions).

    Half of the buckets are for keys after the query. The first half of each are single
    distances; the others grow by equal factors up to `max_distance`, and the last has all that are
    farther.

    Args:
      distances: int32 [...], key minus query.
      num_buckets: number of buckets, a multiple of 4.
      max_distance: distance from which on all are in the last bucket of their half.
    """
    half = num_buckets // 2
    exact = half // 2
    # The first distance of each wider bucket: comparing integers avoids a logarithm, whose rounding
    # differs between devices. Computed in float32, as by the originals.
    every = np.arange(exact, max_distance + 1)
    ratio = np.float32(math.log(max_distance / exact))
    growth = np.log(every.astype(np.float32) / np.float32(exact)) / ratio * np.float32(half - exact)
    wider = np.minimum(exact + growth.astype(np.int32), half - 1)
    steps = wider[1:] - wider[:-1]
    magnitude = ops.abs(distances)
    bucket = ops.minimum(magnitude, exact)
    for index in np.flatnonzero(steps).tolist():
        is_reached = ops.cast(magnitude >= int(every[index + 1]), "int32")
        # A step passes over buckets if there are more of them than distances.
        bucket = bucket + is_reached * int(steps[index])
    return bucket + ops.where(distances > 0, half, 0)
