"""Transformer-XL's relative positions and XLNet's relative segments, in the attention scores.

  score of query i and key j = ((q_i + u) . k_j + (q_i + v) . r_(i-j) + (q_i + w) . s_ij) / sqrt(H)

  r_(i-j)   sines and cosines of the distance, through a dense layer of each layer
  s_ij      one of two vectors: whether the tokens have the same type
  u, v, w   `r_w_bias`, `r_r_bias`, `r_s_bias`: learned vectors of each head (XLNet's names)

References: Dai et al. 2019 (Transformer-XL), section 3.3; Yang et al. 2019 (XLNet), section 2.5.
"""

import keras
import numpy as np
from keras import ops

from bert_tf.config import TRANSFORMER_XL_BIASES
from bert_tf.network.positions import Positions, dense_layer, initializer
from bert_tf.network.relative_positions import expand_distances
from bert_tf.system.type_names import Tensor


class TransformerXL(Positions):
    """Terms of distance and type in the scores of all layers, which have separate weights."""

    has_terms = True
    has_segment_terms = True
    has_memory = True
    padding_sees_itself = True

    def build_attention(self, attention: keras.layers.Layer) -> None:
        config = self.config
        heads = (config.num_attention_heads, config.head_size)
        deviation = config.initializer_range
        attention.r = dense_layer(attention, config.hidden_size, deviation, "r", use_bias=False)
        attention.r.build((None, config.hidden_size))
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(TRANSFORMER_XL_BIASES, heads)
        shapes["seg_embed"] = (2, *heads)  # For the same type, for another type.
        for name, shape in shapes.items():
            initial = initializer(deviation)
            weight = attention.add_weight(name=name, shape=shape, initializer=initial)
            setattr(attention, name, weight)

    def shared_terms(self, encoder: keras.Model, length: Tensor) -> Tensor:
        """Returns the sines and cosines of all distances, float32 [2 * S - 1, D].

        Row w is that of a key that is w - S + 1 positions after the query.
        """
        config = self.config
        distances = (length - 1) - ops.arange(2 * length - 1, dtype="int32")  # i - j
        if config.clamp_distance:
            distances = ops.clip(distances, -config.clamp_distance, config.clamp_distance)
        exponents = np.arange(0, config.hidden_size, 2, dtype=np.float64) / config.hidden_size
        rates = (10000.0**-exponents).astype(np.float32)  # [D / 2]
        angles = ops.expand_dims(ops.cast(distances, "float32"), 1) * rates  # [2 * S - 1, D / 2]
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)

    def score_terms(
        self,
        attention: keras.layers.Layer,
        shared: Tensor | None,
        query: Tensor,
        key: Tensor,
        offset: Tensor,
    ) -> Tensor:
        heads = query.shape[2:]
        scale = heads[-1] ** -0.5  # The query is scaled already; its biases are not.
        num_queries = ops.shape(query)[1]
        num_keys = ops.shape(key)[1]
        content = ops.convert_to_tensor(attention.r_w_bias) * scale  # [N, H]
        # (q + u) . k = q . k + u . k: the first product is that of the scores, so only u . k is
        # added.
        of_keys = ops.expand_dims(_products(key, content), 2)  # [R, N, 1, S]
        sines = ops.cast(shared, query.dtype)
        middle = ops.shape(sines)[0] // 2  # The row of distance 0.
        first = middle + offset - num_queries + 1
        sines = sines[first : first + num_queries + num_keys - 1]
        relative = ops.reshape(attention.r(sines), (-1, *heads))  # [T + S - 1, N, H]
        shifted = query + ops.convert_to_tensor(attention.r_r_bias) * scale
        of_distances = ops.einsum("BTNH,WNH->BNTW", shifted, relative)  # [R, N, T, T + S - 1]
        return of_keys + expand_distances(of_distances, num_queries, num_keys)

    def segment_terms(
        self, attention: keras.layers.Layer, query: Tensor, is_other: Tensor
    ) -> Tensor:
        scale = query.shape[-1] ** -0.5
        shifted = query + ops.convert_to_tensor(attention.r_s_bias) * scale  # [R, T, N, H]
        # What all keys of a query have in common does not change its softmax, so the term of the
        # same type is subtracted from both.
        same, other = ops.unstack(ops.convert_to_tensor(attention.seg_embed))  # each [N, H]
        difference = ops.expand_dims(_products(shifted, other - same), 3)  # [R, N, T, 1]
        is_other = ops.cast(ops.expand_dims(is_other, 1), query.dtype)  # [R, 1, T, S]
        return difference * is_other


def _products(rows: Tensor, vectors: Tensor) -> Tensor:
    """Returns the products of rows with a vector of each head: [R, T, N, H], [N, H] -> [R, N, T].

    There is no `einsum`: the converter to LiteRT gives it a wrong shape.
    """
    return ops.transpose(ops.sum(rows * vectors, axis=-1), (0, 2, 1))
