"""Pools the vectors of pieces into one vector per text, as sentence-transformers does."""

from typing import Any

from keras import ops

from bert_tf.checkpoints.embedding import POOLINGS

# sentence-transformers' numbers: the count of a row without pieces, its maximum, a norm of zero.
LEAST_COUNT, LEAST_VALUE, LEAST_NORM = 1e-9, -1e9, 1e-12


def pool_tokens(sequence: Any, input_mask: Any, pooling: str) -> Any:
    """Pools the last layer over the real pieces, [CLS] and [SEP] among them.

    Args:
      sequence: float [B, T, D], `sequence_output` of the encoder.
      input_mask: int32 [B, T], 1 for a piece that counts; the content of the others does not
        matter.
      pooling:
        cls            the vector of the first piece (not `pooled_output`, which is a dense layer
                       and tanh of it)
        lasttoken      the vector of the last piece
        mean, max      over the pieces, number by number
        mean_sqrt_len  the sum divided by the root of the count
        weightedmean   the mean with the places 1, 2, 3 .. as weights

    Returns:
      float32 [B, D]; of a row of padding alone finite numbers without meaning.

    Raises:
      ValueError: if the pooling is none of `POOLINGS`.
    """
    if pooling not in POOLINGS:
        raise ValueError(f"pooling: received {pooling!r}, expected one of {list(POOLINGS)}.")
    sequence = ops.cast(sequence, "float32")
    is_real = ops.cast(input_mask, "bool")  # [B, T]
    if pooling in ("cls", "lasttoken"):
        place = _first(is_real) if pooling == "cls" else _last(is_real)
        return ops.take_along_axis(sequence, place[:, None, None], axis=1)[:, 0]  # [B, D]
    is_real = is_real[:, :, None]  # [B, T, 1]
    # Chosen, not multiplied: a NaN in the padding would stay one.
    if pooling == "max":
        return ops.max(ops.where(is_real, sequence, LEAST_VALUE), axis=1)  # [B, D]
    kept = ops.where(is_real, sequence, 0.0)
    weights = ops.cast(is_real, "float32")
    if pooling == "weightedmean":
        places = ops.arange(1, ops.shape(sequence)[1] + 1, dtype="float32")
        weights = weights * places[None, :, None]
        kept = kept * weights
    total = ops.sum(kept, axis=1)  # [B, D]
    count = ops.maximum(ops.sum(weights, axis=1), LEAST_COUNT)  # [B, 1]
    return total / (ops.sqrt(count) if pooling == "mean_sqrt_len" else count)


def _first(is_real: Any) -> Any:
    """Returns the place of the first piece that counts, int32 [B]; 0 without any."""
    return ops.argmax(ops.cast(is_real, "int32"), axis=1)


def _last(is_real: Any) -> Any:
    """Returns the place of the last piece that counts, int32 [B]; 0 without any."""
    places = ops.arange(ops.shape(is_real)[1], dtype="int32")
    return ops.max(ops.where(is_real, places, 0), axis=1)


def l2_normalize(vectors: Any) -> Any:
    """Divides each vector by its length, so that dot products are cosines.

    Args:
      vectors: float [B, D].

    Returns:
      float32 [B, D]; a vector of zeros stays one.
    """
    vectors = ops.cast(vectors, "float32")
    norm = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))  # [B, 1]
    return vectors / ops.maximum(norm, LEAST_NORM)
