"""One vector a text from the vectors of its pieces, as sentence-transformers computes it."""

from typing import Any

from keras import ops

POOLINGS = ("cls", "mean", "max")
# sentence-transformers' numbers: the count of a row without pieces, its maximum, a norm of zero.
LEAST_COUNT, LEAST_VALUE, LEAST_NORM = 1e-9, -1e9, 1e-12


def pool_tokens(sequence: Any, input_mask: Any, pooling: str) -> Any:
    """Pools the last layer over the real pieces, [CLS] and [SEP] among them.

    Args:
      sequence: float [B, T, D], `sequence_output` of the encoder.
      input_mask: int32 [B, T], 1 for a real piece, 0 for padding, whose content does not matter.
      pooling: `cls`, the vector of [CLS] (not `pooled_output`, which is a dense layer and tanh of
        it); `mean`; or `max`, each number's largest over the pieces.

    Returns:
      float32 [B, D]; of a row of padding alone finite numbers without meaning.

    Raises:
      ValueError: if the pooling is none of `POOLINGS`.
    """
    if pooling not in POOLINGS:
        raise ValueError(f"pooling: received {pooling!r}, expected one of {list(POOLINGS)}.")
    sequence = ops.cast(sequence, "float32")
    if pooling == "cls":
        return sequence[:, 0]  # [B, D]
    is_real = ops.cast(input_mask, "bool")[:, :, None]  # [B, T, 1]
    # Chosen, not multiplied: a NaN in the padding would stay one.
    if pooling == "max":
        return ops.max(ops.where(is_real, sequence, LEAST_VALUE), axis=1)  # [B, D]
    total = ops.sum(ops.where(is_real, sequence, 0.0), axis=1)  # [B, D]
    count = ops.sum(ops.cast(is_real, "float32"), axis=1)  # [B, 1]
    return total / ops.maximum(count, LEAST_COUNT)


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
