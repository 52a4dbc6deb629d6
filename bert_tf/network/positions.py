"""Position schemes: one class for each `position_type`.

  Learned      a vector from a table, added to the embeddings (BERT section 3)
  Sinusoidal   a vector of sines and cosines, added to the embeddings (Vaswani et al. 2017)
  Rotary       queries and keys turned by an angle that grows with the position (Su et al. 2021)
  Alibi        a bias that falls with the distance of two pieces (Press et al. 2022), symmetric

A scheme acts at one of three places: on the embeddings, on queries and keys, on the scores.
"""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.config import ModelConfig


def initializer(initializer_range: float) -> keras.initializers.Initializer:
    """Makes the initialiser of every kernel and table: a normal cut off at two deviations.

    A new object per variable: a Keras initialiser gives the same numbers each time it is used.
    """
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


class Positions:
    """What does nothing; a scheme overrides what it does.

    Args:
      config: shape of the network.
      is_local: whether it is that of layers with local attention.
    """

    sees_distance = False  # Whether there is a `bias`.

    def __init__(self, config: ModelConfig, is_local: bool = False) -> None:
        self.config, self.is_local = config, is_local

    def build(self, layer: keras.layers.Layer) -> None:
        """Adds the weights that it needs to the layer of the embeddings."""

    def embed(self, places: Any, length: Any) -> Any:
        """Returns what is added to the embeddings.

        Args:
          places: int32 [...], where the pieces stand; None for all of 0, 1 .. length - 1.
          length: T.

        Returns:
          float [..., E] or [T, E]; 0 for nothing.
        """
        return 0

    def rotate(self, query: Any, key: Any, places: Any) -> tuple[Any, Any]:
        """Returns queries and keys, float [R, T, N, H], as they are compared.

        Args:
          query: float [R, T, N, H].
          key: float [R, T, N, H].
          places: int32 [1 or R, T].
        """
        return query, key

    def bias(self, distances: Any) -> Any:
        """Returns what is added to the scores of pieces so far apart: [...] -> [N, ...]."""
        return 0


class Learned(Positions):
    """A table with a row for each position."""

    def build(self, layer: keras.layers.Layer) -> None:
        config = self.config
        self.table = layer.position_embeddings = layer.add_weight(
            name="position_embeddings",
            shape=(config.max_position_embeddings, config.table_width),
            initializer=initializer(config.initializer_range),
        )

    def embed(self, places: Any, length: Any) -> Any:
        if places is None:
            return ops.convert_to_tensor(self.table)[:length]
        return ops.take(self.table, places, axis=0)


class Sinusoidal(Positions):
    """Sines and cosines, interleaved, of wavelengths from 2 pi to 20,000 pi.

    Differs from the paper, which makes the words as large as the sines (times sqrt(D)): here the
    sines are made as large as the tables are at first, for words are read from checkpoints.
    """

    def embed(self, places: Any, length: Any) -> Any:
        width = self.config.table_width
        if places is None:
            places = ops.arange(length, dtype="int32")
        return sinusoids(places, width) * (self.config.initializer_range * 2**0.5)


class Rotary(Positions):
    """Each pair of a head's numbers turned by position * theta^(-2i/H).

    Which numbers form a pair: (i, i + H/2), rotate_half of GPT-NeoX and ModernBERT; interleaved,
    (2i, 2i + 1), RoFormer and GPT-J. `interleaved_to_halves` turns the weights of one into those
    of the other.
    """

    def rotate(self, query: Any, key: Any, places: Any) -> tuple[Any, Any]:
        config = self.config
        theta = (config.local_rotary_theta if self.is_local else 0.0) or config.rotary_theta
        angles = ops.expand_dims(
            _angles(places, config.head_size, theta), 2
        )  # [1 or R, T, 1, H / 2]
        cos, sin = ops.cast(ops.cos(angles), query.dtype), ops.cast(ops.sin(angles), query.dtype)
        turn = turn_interleaved if config.position_type == "rotary_interleaved" else turn_halves
        return turn(query, cos, sin), turn(key, cos, sin)


class Alibi(Positions):
    """-slope * distance, with one slope for each head; the same in both directions.

    The paper's form is for text that is read from left to right. No length is foreseen, so rows
    may be longer than those of training.
    """

    sees_distance = True

    def bias(self, distances: Any) -> Any:
        slopes = ops.convert_to_tensor(alibi_slopes(self.config.num_attention_heads))
        slopes = ops.reshape(slopes, (-1, *[1] * len(distances.shape)))
        return -slopes * ops.cast(distances, "float32")


SCHEMES: dict[str, type[Positions]] = {
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "rotary": Rotary,
    "rotary_interleaved": Rotary,
    "alibi": Alibi,
}


def make_positions(config: ModelConfig, is_local: bool = False) -> Positions:
    """Makes the scheme that a configuration names; see `Positions`."""
    return SCHEMES[config.position_type](config, is_local)


def sinusoids(places: Any, width: int) -> Any:
    """Returns sines and cosines of places int32 [...], interleaved: float32 [..., width]."""
    angles = _angles(places, width, 10000.0)[..., None]  # [..., E / 2, 1]
    pairs = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(pairs, (*ops.shape(places), -1))[..., :width]


def _angles(places: Any, size: int, theta: float) -> Any:
    """Returns place * theta^(-2i / size), float32 [..., (size + 1) / 2]."""
    rates = theta ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    return ops.expand_dims(ops.cast(places, "float32"), -1) * rates.astype(np.float32)


def turn_halves(x: Any, cos: Any, sin: Any) -> Any:
    """Turns the pairs (i, i + H/2): x [R, T, N, H]; cos and sin [1 or R, T, 1, H/2]."""
    first, second = ops.split(x, 2, axis=-1)
    return ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def turn_interleaved(x: Any, cos: Any, sin: Any) -> Any:
    """Turns the pairs (2i, 2i + 1); see `turn_halves`."""
    shape = ops.shape(x)
    pairs = ops.reshape(x, (*shape[:-1], shape[-1] // 2, 2))
    first, second = pairs[..., 0], pairs[..., 1]
    turned = ops.stack([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return ops.reshape(turned, shape)


def interleaved_to_halves(kernel: np.ndarray, num_heads: int) -> np.ndarray:
    """Reorders a query's or key's kernel [..., D] or bias [D] from interleaved pairs to halves.

    The scores of a model with both reordered stay the same under the other convention.
    """
    heads = kernel.reshape(*kernel.shape[:-1], num_heads, -1, 2)
    return np.ascontiguousarray(np.swapaxes(heads, -1, -2).reshape(kernel.shape))


@functools.cache
def alibi_slopes(num_heads: int) -> np.ndarray:
    """Returns each head's slope, float32 [N]: 2^(-8h/N), h from 1.

    If N is no power of two: those of the next lower power, then every second one of the next
    higher power, as in the authors' code.
    """
    power = 1 << (num_heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-4.0 * np.arange(1, 2 * (num_heads - power) + 1, 2) / power)
    return np.concatenate([slopes, between]).astype(np.float32)
