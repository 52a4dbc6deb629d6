"""Stateless dropout: the mask is a hash of a seed, a layer number and the element's index.

Keras' own dropout advances a variable at every call. A resumed run, a recomputed layer or a second
replica then needs that variable in the right state to draw the right mask. Here one int32 seed per
forward pass determines every mask of the network, on any device, compiled or not.

A part of a batch gets the masks it would have in the whole batch if it passes the number of rows
and tokens before it.

Reference: Srivastava et al. 2014 for dropout; the mixer is the two multiplications of
Wellons' lowbias32 (https://nullprogram.com/blog/2018/07/31/).
"""

from typing import Unpack

import keras
import tensorflow as tf

from bert_tf.network.xla_region import are_xla_regions_compiled, xla_region
from bert_tf.system.type_names import LayerOptions, Tensor


def _int32(value: int) -> int:
    """Reads the low 32 bits of `value` as a signed number."""
    return (value & 0xFFFFFFFF) - ((value & 0x80000000) << 1)


# int32 and not uint32: every backend has it, multiplication wraps in all of them, and the logical
# shift is an arithmetic one with the sign bits cut off.
_MULTIPLIER_1 = _int32(0x7FEB352D)
_MULTIPLIER_2 = _int32(0x846CA68B)
_GOLDEN_RATIO = 0x9E3779B9


def _shift_right(x: Tensor, count: int) -> Tensor:
    return tf.bitwise.right_shift(x, count) & ((1 << (32 - count)) - 1)


def mix(x: Tensor) -> Tensor:
    """Scrambles int32: a bijection of 32 bits in which each input bit moves every output bit."""
    x = (x ^ _shift_right(x, 16)) * _MULTIPLIER_1
    x = (x ^ _shift_right(x, 15)) * _MULTIPLIER_2
    return x ^ _shift_right(x, 16)


def random_bits(shape: Tensor, seed: Tensor, salt: int, start: Tensor = None) -> Tensor:
    """Makes random int32 from their position alone; their upper 16 bits are the better ones.

    Two keys made of seed and salt are used, one before and one inside the mixer. With only the
    first, two layers would get the same values in another order.

    Args:
      shape: ints, or int32 [rank]: the shape of the result.
      seed: int32 [], one per forward pass.
      salt: number of the layer; another salt gives an independent mask.
      start: int32 [], the position of the first; None: 0.
    """
    size = tf.reduce_prod(shape)
    bits = _sequence(size, seed, salt) if start is None else _later(size, seed, salt, start)
    return tf.reshape(bits, shape)


# A tf.function is traced once, not for each of a model's dozens of masks.
@tf.function(input_signature=[tf.TensorSpec([], tf.int32)] * 3, autograph=False)
def _sequence(size: Tensor, seed: Tensor, salt: Tensor) -> Tensor:
    return _hash(tf.range(size), seed, salt)


@tf.function(input_signature=[tf.TensorSpec([], tf.int32)] * 4, autograph=False)
def _later(size: Tensor, seed: Tensor, salt: Tensor, start: Tensor) -> Tensor:
    return _hash(tf.range(size) + start, seed, salt)


def _hash(positions: Tensor, seed: Tensor, salt: Tensor) -> Tensor:
    golden_ratio = _int32(_GOLDEN_RATIO)
    # Multiples of the golden ratio spread the small salts over all 32 bits.
    key_1 = mix(seed + salt * golden_ratio)
    key_2 = mix(key_1 ^ (tf.bitwise.invert(salt) * golden_ratio))
    # The mixer's first shift is applied to the key and the positions separately: the result is the
    # same, and one pass over the elements is saved.
    key_1 = key_1 ^ _shift_right(key_1, 16)
    x = (positions ^ tf.bitwise.right_shift(positions, 16) ^ key_1) * _MULTIPLIER_1
    return ((x ^ _shift_right(x, 15)) + key_2) * _MULTIPLIER_2


def repeated_seed(seed: Tensor, number: int) -> Tensor:
    """Returns the seed for the masks of a layer that was computed `number` times before.

    `seed` is int32 [] or [3], see `dropout`; `number` is at least 1.
    """
    seed = tf.convert_to_tensor(seed)
    if not seed.shape.rank:
        return mix(mix(seed) + number)
    return tf.concat([mix(mix(seed[:1]) + number), seed[1:]], axis=0)


def dropout(inputs: Tensor, rate: float, seed: Tensor, salt: int, of_rows: bool = False) -> Tensor:
    """Sets a share `rate` of the elements to zero and scales the others by 1 / (1 - rate).

    Args:
      inputs: float [...].
      rate: probability of zero, in [0, 1).
      seed: int32 [], one per forward pass; or [3]: the seed, then the numbers of rows and tokens
        that precede `inputs` in the whole batch.
      of_rows: whether the first axis of `inputs` is rows, [R, ...]; else it is tokens, [U, D].

    Returns:
      float [...], of the dtype of `inputs`.
    """
    if not rate:
        return inputs
    start = None
    seed = tf.convert_to_tensor(seed)
    if seed.shape.rank:
        seed, rows, tokens = tf.unstack(seed)
        shape = tf.shape(inputs)
        # The index that the first element would have in the whole batch.
        start = rows * tf.reduce_prod(shape[1:]) if of_rows else tokens * shape[-1]
    if not are_xla_regions_compiled():
        return _drop(inputs, seed, start, rate, salt)

    @tf.custom_gradient
    def dropped(inputs: Tensor) -> Tensor:
        # The backward pass draws the mask again, which saves the memory to keep it.
        def gradient(upstream: Tensor) -> Tensor:
            return _drop(upstream, seed, start, rate, salt)

        return _drop(inputs, seed, start, rate, salt), gradient

    return dropped(inputs)


@xla_region
def _drop(inputs: Tensor, seed: Tensor, start: Tensor, rate: float, salt: int) -> Tensor:
    # The lowest share `rate` of all int32 values is dropped.
    threshold = min(round(rate * 2**32) - 2**31, 2**31 - 1)
    kept = random_bits(tf.shape(inputs), seed, salt, start) >= threshold
    return tf.where(kept, inputs * (1.0 / (1.0 - rate)), tf.zeros((), inputs.dtype))


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """Dropout whose mask is a pure function of the seed it is called with.

    Differs from the original: `tf.nn.dropout` draws from the graph's stateful generator.

    Args:
      rate: probability of zero, in [0, 1).
      salt: number of the layer within its model; two layers of one model need two salts.
      of_rows: see `dropout`.

    Call arguments:
      inputs: float [...].
      dropout_seed: int32 [] or [3], see `dropout`; None leaves the inputs as they are (inference).
    """

    def __init__(
        self, rate: float, salt: int, of_rows: bool = False, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"Dropout rate: received {rate}, expected 0 <= rate < 1.")
        self.rate = rate
        self.salt = salt
        self.of_rows = of_rows
        self.built = True

    def call(self, inputs: Tensor, dropout_seed: Tensor | None = None) -> Tensor:
        if dropout_seed is None:
            return inputs
        return dropout(inputs, self.rate, dropout_seed, self.salt, self.of_rows)
