"""Pools the vectors of tokens into one vector per text, as sentence-transformers does."""

from keras import ops

from bert_tf.config.pooled_layers import POOLINGS
from bert_tf.system.type_names import Tensor

# The constants of sentence-transformers: the least token count, the maximum of no tokens, and the
# least norm.
LEAST_COUNT = 1e-9
LEAST_VALUE = -1e9
LEAST_NORM = 1e-12


def pool_tokens(sequence: Tensor, input_mask: Tensor, pooling: str) -> Tensor:
    """Pools the last layer over the real tokens, including [CLS] and [SEP].

    Args:
      sequence: float [B, T, D], `sequence_output` of the encoder.
      input_mask: int32 [B, T], 1 for a token to pool; the vectors of the others are ignored, even
        if they are NaN.
      pooling:
        cls            the vector of the first token (not `pooled_output`, which is a dense layer
                       and tanh of it); of a network whose `pooled_token` is the last, give
                       lasttoken: see `pooling_of`
        lasttoken      the vector of the last token
        mean, max      over the tokens, number by number
        mean_sqrt_len  the sum divided by the root of the count
        weightedmean   the mean with the positions 1, 2, 3 .. as weights

    Returns:
      float32 [B, D]; finite, but meaningless for a row without tokens.

    Raises:
      ValueError: if the pooling is not one of `POOLINGS`.
    """
    if pooling not in POOLINGS:
        raise ValueError(f"pooling: received {pooling!r}, expected one of {list(POOLINGS)}.")
    sequence = ops.cast(sequence, "float32")
    is_real = ops.cast(input_mask, "bool")  # [B, T]
    if pooling in ("cls", "lasttoken"):
        position = _first(is_real) if pooling == "cls" else _last(is_real)
        return ops.take_along_axis(sequence, position[:, None, None], axis=1)[:, 0]  # [B, D]
    # Not by [:, :, None], which LiteRT has no operation for if B and T are unknown.
    is_real = ops.expand_dims(is_real, -1)  # [B, T, 1]
    # `where` and not a product: NaN * 0 is NaN.
    if pooling == "max":
        return ops.max(ops.where(is_real, sequence, LEAST_VALUE), axis=1)  # [B, D]
    kept = ops.where(is_real, sequence, 0.0)
    weights = ops.cast(is_real, "float32")
    if pooling == "weightedmean":
        positions = ops.arange(1, ops.shape(sequence)[1] + 1, dtype="float32")
        weights = weights * positions[None, :, None]
        kept = kept * weights
    total = ops.sum(kept, axis=1)  # [B, D]
    # A row without tokens is divided by LEAST_COUNT, not by 0.
    count = ops.maximum(ops.sum(weights, axis=1), LEAST_COUNT)  # [B, 1]
    if pooling == "mean_sqrt_len":
        count = ops.sqrt(count)
    return total / count


def pooling_of(pooling: str, pooled_token: str) -> str:
    """Returns the pooling to compute: the token that cls means in a network may be the last."""
    return "lasttoken" if (pooling, pooled_token) == ("cls", "last") else pooling


def _first(is_real: Tensor) -> Tensor:
    """Returns the position of the first token that counts, int32 [B]; 0 without any."""
    return ops.argmax(ops.cast(is_real, "int32"), axis=1)


def _last(is_real: Tensor) -> Tensor:
    """Returns the position of the last token that counts, int32 [B]; 0 without any."""
    positions = ops.arange(ops.shape(is_real)[1], dtype="int32")
    return ops.max(ops.where(is_real, positions, 0), axis=1)


def l2_normalize(vectors: Tensor) -> Tensor:
    """Divides vectors float [B, D] by their lengths, in float32; a vector of zeros stays one.

    Dot products are then cosines.
    """
    vectors = ops.cast(vectors, "float32")
    norm = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))  # [B, 1]
    return vectors / ops.maximum(norm, LEAST_NORM)
