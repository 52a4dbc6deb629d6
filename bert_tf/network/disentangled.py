"""Disentangled attention (DeBERTa): contents and relative positions have separate vectors.

  P = LayerNorm(table) has a vector for each bucket b of the distance i - j
  score of i and j = (q_i . k_j + q_i . K(P_b) + k_j . Q(P_b)) / sqrt(3 H)

K and Q are the layer's own projections of keys and queries. Both terms have the same bucket. The
term "c2p" (content to position) is the second product, "p2c" (position to content) the third.

References: He et al. 2021 (DeBERTa), section 3; He et al. 2023 (DeBERTaV3).
"""

import functools

import keras
import numpy as np
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.network.configured import ConfiguredLayer
from bert_tf.network.layer_norm import layer_norm
from bert_tf.network.positions import Learned, Positions, initializer
from bert_tf.network.relative_positions import expand_filled_distances
from bert_tf.system.type_names import Shape, Tensor

NUM_BLOCKS = 4  # The blocks of tokens of known lengths, see `_products_with_positions`.


class Disentangled(Positions):
    """Terms of contents and relative positions in the scores; see the module.

    Differs from the original: there is no dropout of the positions' vectors in training.
    """

    has_terms = True

    def __init__(self, config: ModelConfig, is_local: bool = False) -> None:
        super().__init__(config, is_local)
        self.terms = config.pos_att_type.split(",")
        self.num_summands = 1 + len(self.terms)

    def build_encoder(self, encoder: keras.Model) -> None:
        encoder.relative_embeddings = RelativeEmbeddings(
            self.config, name="relative_embeddings", dtype=encoder.dtype_policy
        )
        encoder.relative_embeddings.build()

    def shared_terms(self, encoder: keras.Model, length: Tensor) -> Tensor:
        """Returns the vectors of the buckets that rows of this length need, float [M, D].

        The middle row is that of distance 0, so that its index is known without the length.
        """
        middle = self.config.relative_buckets // 2
        half = middle
        if isinstance(length, int):
            buckets = self._buckets()
            farthest = len(buckets) // 2
            reach = min(length - 1, farthest)
            first = buckets[farthest - reach]
            last = buckets[farthest + reach]
            # Short rows reach only the middle of the table; the projections of the rest are saved.
            half = min(middle, max(middle - first, last - middle + 1))
        return encoder.relative_embeddings(half=int(half))

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
        columns = ops.arange(num_queries + num_keys - 1, dtype="int32")
        scores = 0.0
        if "c2p" in self.terms:
            # Column w = j - i + T - 1, hence i - j = T - 1 - w; keys begin `offset` after queries.
            distances = num_queries - 1 - offset - columns
            positions = self._positions(attention.key(shared), distances)
            scores = _products_with_positions(query, positions, num_keys)  # [R, N, T, S]
        if "p2c" in self.terms:
            distances = columns - (num_keys - 1) - offset
            projected = attention.query(shared)
            scale = (self.num_summands * query.shape[-1]) ** -0.5
            # The queries of `score_terms` come scaled; these projections are not.
            positions = self._positions(projected * scale, distances)
            terms = _products_with_positions(key, positions, num_queries)  # [R, N, S, T]
            scores = scores + ops.transpose(terms, (0, 1, 3, 2))
        return scores

    def _buckets(self) -> np.ndarray:
        return distance_buckets(self.config.relative_buckets, self.config.relative_max_distance)

    def _positions(self, projected: Tensor, distances: Tensor) -> Tensor:
        """Returns the vector of each distance and a last one of zeros, float [N, H, W + 1].

        `projected` are the projected vectors of the buckets, float [M, D]; `distances` are int32
        [W], the position of a query minus that of a key.
        """
        config = self.config
        num_rows = ops.shape(projected)[0]
        buckets = self._buckets()
        farthest = len(buckets) // 2
        index = ops.clip(distances, -farthest, farthest) + farthest
        rows = ops.take(buckets, index) - config.relative_buckets // 2 + num_rows // 2
        rows = ops.pad(rows, [[0, 1]], constant_values=-1)  # The one-hot row of -1 is zero.
        # With one-hot rows the gradient is a matrix product instead of a scatter.
        one_hot = ops.one_hot(rows, num_rows, dtype=projected.dtype)  # [W + 1, M]
        shape = (-1, config.num_attention_heads, config.head_size)
        vectors = ops.reshape(ops.matmul(one_hot, projected), shape)
        return ops.transpose(vectors, (1, 2, 0))


@keras.saving.register_keras_serializable(package="bert_tf")
class RelativeEmbeddings(ConfiguredLayer):
    """The table of the buckets' vectors and its LayerNorm.

    Call arguments:
      half: number of buckets of each direction.

    Returns:
      float [2 half, D], the rows in the middle of the table.
    """

    def build(self, input_shape: Shape | None = None) -> None:
        config = self.config
        self.table = self.add_weight(
            name="table",
            shape=(config.relative_buckets, config.hidden_size),
            initializer=initializer(config.initializer_range),
        )
        self.layer_norm = layer_norm(config, self.dtype_policy)
        self.layer_norm.build((None, config.hidden_size))

    def call(self, half: int) -> Tensor:
        middle = self.config.relative_buckets // 2
        return self.layer_norm(self.table[middle - half : middle + half])


class LearnedDisentangled(Learned, Disentangled):
    """The position table of `Learned` in addition (position_biased_input of DeBERTa)."""


def _products_with_positions(contents: Tensor, positions: Tensor, num_others: Tensor) -> Tensor:
    """Returns the product of each token's vector with the position of each other token.

    Each token needs S of all T + S - 1 distances. Computed by blocks of tokens, each of which needs
    fewer distances than all together, at 512 tokens this takes three quarters of the time.

    Args:
      contents: float [R, T, N, H].
      positions: float [N, H, T + S]; the column of the pair (i, j) is j - i + T - 1.
      num_others: S.

    Returns:
      float [R, N, T, S].
    """
    contents = ops.transpose(contents, (0, 2, 1, 3))  # [R, N, T, H]
    rows, num_heads, length, size = ops.shape(contents)
    num_blocks = NUM_BLOCKS if isinstance(length, int) and length % NUM_BLOCKS == 0 else 1
    if num_blocks == 1:
        products = ops.matmul(contents, positions[None])  # [R, N, T, T + S]
        return expand_filled_distances(products, length, num_others)
    block = length // num_blocks  # C
    parts = []
    # Later blocks of tokens begin further left in the columns j - i + T - 1.
    for first in reversed(range(0, length, block)):
        parts.append(positions[..., first : first + block + num_others])
    stacked = ops.stack(parts, axis=1)  # [N, K, H, C + S]
    blocks = ops.reshape(contents, (rows, num_heads, num_blocks, block, size))
    products = ops.matmul(blocks, stacked[None])  # [R, N, K, C, C + S]
    terms = expand_filled_distances(products, block, num_others)
    return ops.reshape(terms, (rows, num_heads, length, num_others))


@functools.cache
def distance_buckets(num_buckets: int, max_distance: int) -> np.ndarray:
    """Returns the bucket of each distance from a key to a query, with distance 0 in the middle.

    Half of the buckets of each sign are single distances; the others grow by equal factors up to
    `max_distance`. If there are as many buckets of each sign as distances, all are single.

    Args:
      num_buckets: number of buckets, an even number.
      max_distance: distance from which on all are in the last bucket of their sign.

    Returns:
      int32 [2 F + 1], for the distances -F .. F; those that are farther have the bucket of F.
    """
    half = num_buckets // 2
    exact = half // 2
    longest = max_distance - 1
    if half > longest:
        rows = np.arange(half + 1)
    else:
        # Computed in float32, as by the original: rounding decides at the edges of the rows.
        growth = np.log(np.float32(longest / exact))
        # The last bucket begins behind this distance; of a single wide bucket, behind `exact`.
        power = (half - exact - 1) / (exact - 1) if exact > 1 else 0
        farthest = int(exact * (longest / exact) ** power) + 2
        far = np.arange(exact + 1, farthest + 1, dtype=np.float32)
        steps = np.ceil(np.log(far / np.float32(exact)) / growth * np.float32(exact - 1))
        rows = np.concatenate([np.arange(exact + 1), exact + steps.astype(np.int64)])
    after = np.minimum(half + rows, 2 * half - 1)
    before = np.maximum(half - rows, 0)
    return np.concatenate([before[:0:-1], after]).astype(np.int32)
