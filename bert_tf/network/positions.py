"""Position schemes: one class for each `position_type`.

  Learned      a vector from a table, added to the embeddings (BERT section 3)
  Sinusoidal   a vector of sines and cosines, added to the embeddings (Vaswani et al. 2017)
  Rotary       queries and keys rotated by an angle that grows with the position (Su et al. 2021)
  Alibi        a bias that falls with the distance of two tokens (Press et al. 2022), symmetric

A scheme changes the embeddings, the queries and keys, or the attention scores. Those with learned
terms in the scores are in `relative_positions.py` and `transformer_xl.py`; `position_schemes.py`
lists all.
"""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.system.type_names import Tensor


def initializer(initializer_range: float) -> keras.initializers.Initializer:
    """Makes the initialiser of a kernel or table: a normal truncated at two standard deviations.

    Each variable needs a new one: a Keras initialiser gives the same numbers each time it is used.
    """
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def dense_layer(
    owner: keras.layers.Layer, units: Any, deviation: float, name: str = "dense", **options: Any
) -> keras.layers.Dense:
    """Makes a dense layer inside another, with its dtype; `options` are those of Keras."""
    return keras.layers.Dense(
        units,
        kernel_initializer=initializer(deviation),
        name=name,
        dtype=owner.dtype_policy,
        **options,
    )


class Positions:
    """Base class: no position information. A subclass overrides one hook.

    Args:
      is_local: whether the layers have local attention.
    """

    has_bias = False  # Whether there is a `bias`.
    has_terms = False  # Whether there are `score_terms`.
    has_segment_terms = False  # Whether there are `segment_terms`.
    has_memory = False  # Whether tokens may attend to the memories of earlier segments.
    padding_sees_itself = False  # Whether padding attends to itself, as real tokens do.
    num_summands = 1  # The products of vectors that make up a score; divides it by their root.

    def __init__(self, config: ModelConfig, is_local: bool = False) -> None:
        self.config = config
        self.is_local = is_local

    def build(self, layer: keras.layers.Layer) -> None:
        """Adds the scheme's weights to the embedding layer."""

    def build_encoder(self, encoder: keras.Model) -> None:
        """Adds the scheme's weights that all layers share."""

    def build_attention(self, attention: keras.layers.Layer) -> None:
        """Adds the scheme's weights of one layer."""

    def embed(self, position_ids: Tensor, length: Tensor) -> Tensor:
        """Returns the position embeddings, float [..., E] or [T, E]; 0 in a scheme without them.

        `position_ids` are int32 [...]; None for 0, 1 .. length - 1.
        """
        return 0

    def rotate(
        self, query: Tensor, key: Tensor, position_ids: Tensor, heads_axis: int = 2
    ) -> tuple[Tensor, Tensor]:
        """Returns the queries and keys to compare, float [R, T, N, H], by ids int32 [1 or R, T].

        With 1 as `heads_axis` they are [R, N, T, H].
        """
        return query, key

    def bias(self, distances: Tensor) -> Tensor:
        """Returns the bias for each token distance: int32 [...] -> float32 [N, ...]."""
        return 0

    def shared_terms(self, encoder: keras.Model, length: Tensor) -> Tensor | None:
        """Returns the tensor that a pass computes once for the score terms of all layers, or None.

        Args:
          encoder: the model that `build_encoder` added weights to.
          length: S, the number of keys in attention's rows: T, more with memories.
        """
        return None

    def score_terms(
        self,
        attention: keras.layers.Layer,
        shared: Tensor | None,
        query: Tensor,
        key: Tensor,
        offset: Tensor,
    ) -> Tensor | None:
        """Returns learned terms to add to the scores, float [1 or R, N, T, S]; None for no terms.

        Args:
          attention: the layer that `build_attention` added weights to.
          shared: the tensor of `shared_terms`.
          query: float [R, T, N, H], multiplied by the scale of the scores.
          key: float [R, S, N, H].
          offset: the position of the first key minus that of the first query.
        """
        return None

    def segment_terms(
        self, attention: keras.layers.Layer, query: Tensor, is_other: Tensor
    ) -> Tensor:
        """Returns learned terms of tokens of different types, float [R, N, T, S].

        Args:
          attention: the layer that `build_attention` added weights to.
          query: float [R, T, N, H], multiplied by the scale of the scores.
          is_other: bool [R, T, S], whether the types of query and key differ.
        """
        raise NotImplementedError


class Learned(Positions):
    """A table with a row for each position."""

    def build(self, layer: keras.layers.Layer) -> None:
        config = self.config
        self.table = layer.position_embeddings = layer.add_weight(
            name="position_embeddings",
            shape=(config.max_position_embeddings, config.table_width),
            initializer=initializer(config.initializer_range),
        )

    def embed(self, position_ids: Tensor, length: Tensor) -> Tensor:
        # The rows 0 .. T-1 are a slice, without a gather and its gradient.
        if position_ids is None:
            return ops.convert_to_tensor(self.table)[:length]
        return ops.take(self.table, position_ids, axis=0)


class Sinusoidal(Positions):
    """Sines and cosines, interleaved, of wavelengths from 2 pi to 20,000 pi.

    Differs from the paper, which scales the word embeddings to the sines (times sqrt(D)). Here the
    sines are scaled to the initial tables, because checkpoints store unscaled word embeddings.
    """

    def embed(self, position_ids: Tensor, length: Tensor) -> Tensor:
        width = self.config.table_width
        if position_ids is None:
            position_ids = ops.arange(length, dtype="int32")
        # Sines have a root mean square of 1 / sqrt(2), tables one of `initializer_range`.
        return sinusoids(position_ids, width) * (self.config.initializer_range * 2**0.5)


class Rotary(Positions):
    """Rotates each pair of a head's dimensions by position * theta^(-2i/H).

    The pairs are (i, i + H/2), as in rotate_half of GPT-NeoX and ModernBERT, or interleaved,
    (2i, 2i + 1), as in RoFormer and GPT-J. `interleaved_to_halves` converts weights of the second
    convention to the first.
    """

    def rotate(
        self, query: Tensor, key: Tensor, position_ids: Tensor, heads_axis: int = 2
    ) -> tuple[Tensor, Tensor]:
        config = self.config
        # 0 is the base of the layers with global attention.
        theta = (config.local_rotary_theta if self.is_local else 0.0) or config.rotary_theta
        angles = _angles(position_ids, config.head_size, theta)  # [1 or R, T, H / 2]
        angles = ops.expand_dims(angles, heads_axis)  # [1 or R, T, 1, H / 2]
        cos = ops.cast(ops.cos(angles), query.dtype)
        sin = ops.cast(ops.sin(angles), query.dtype)
        turn = turn_interleaved if config.position_type == "rotary_interleaved" else turn_halves
        return turn(query, cos, sin), turn(key, cos, sin)


class Alibi(Positions):
    """-slope * distance, with one slope for each head; the same in both directions.

    The paper's bias is for causal attention; this one is symmetric. There is no maximum length, so
    sequences may be longer than those of training.
    """

    has_bias = True

    def bias(self, distances: Tensor) -> Tensor:
        slopes = ops.convert_to_tensor(alibi_slopes(self.config.num_attention_heads))
        # [N, 1, ..], with an axis for each axis of the distances.
        slopes = ops.reshape(slopes, (-1, *[1] * len(distances.shape)))
        return -slopes * ops.cast(distances, "float32")


def sinusoids(position_ids: Tensor, width: int) -> Tensor:
    """Returns the interleaved sines and cosines of `position_ids`, float32 [..., width]."""
    angles = _angles(position_ids, width, 10000.0)[..., None]  # [..., E / 2, 1]
    pairs = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
    # An odd width ends with a sine.
    return ops.reshape(pairs, (*ops.shape(position_ids), -1))[..., :width]


def _angles(position_ids: Tensor, size: int, theta: float) -> Tensor:
    """Returns position * theta^(-2i / size), float32 [..., (size + 1) / 2]."""
    # In float64, as long positions multiply the rounding error of a rate.
    rates = theta ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    return ops.expand_dims(ops.cast(position_ids, "float32"), -1) * rates.astype(np.float32)


def turn_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the pairs (i, i + H/2): x [R, T, N, H]; cos and sin [1 or R, T, 1, H/2].

    The axes of heads and tokens may also be in the other order, in all three.
    """
    first, second = ops.split(x, 2, axis=-1)  # each [R, T, N, H/2]
    return ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def turn_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the pairs (2i, 2i + 1); see `turn_halves`."""
    shape = ops.shape(x)
    pairs = ops.reshape(x, (*shape[:-1], shape[-1] // 2, 2))  # [R, T, N, H/2, 2]
    first = pairs[..., 0]
    second = pairs[..., 1]
    turned = ops.stack([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return ops.reshape(turned, shape)


def interleaved_to_halves(kernel: np.ndarray, num_heads: int) -> np.ndarray:
    """Reorders a query's or key's kernel [..., D] or bias [D] from interleaved pairs to halves.

    The scores of a model with both reordered stay the same under the other convention.
    """
    heads = kernel.reshape(*kernel.shape[:-1], num_heads, -1, 2)  # [..., N, H/2, 2]
    return np.ascontiguousarray(np.swapaxes(heads, -1, -2).reshape(kernel.shape))


@functools.cache
def alibi_slopes(num_heads: int) -> np.ndarray:
    """Returns each head's slope, float32 [N]: 2^(-8h/N), h from 1.

    If N is not a power of two, the slopes of the next lower power come first, then every second
    slope of the next higher power, as in the authors' code.
    """
    # The largest power of two that is not above N.
    power = 1 << (num_heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 * np.arange(1, power + 1) / power)
    # Every second slope of 2 * power heads: 2^(-8h / (2 * power)), h = 1, 3, ..
    between = 2.0 ** (-4.0 * np.arange(1, 2 * (num_heads - power) + 1, 2) / power)
    return np.concatenate([slopes, between]).astype(np.float32)
