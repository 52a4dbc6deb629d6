"""Vectors as int8, with an offset and a step for each dimension and a length for each vector.

    vector = length * (offsets + steps * values)        offsets, steps [D], values int8 [D]

Mean-pooled encoders have a few dimensions that are a hundred times larger than the others. A single
step for the whole vector would have to fit these and would round all other dimensions to 0. So each
dimension has a step for its range over all vectors. The length prevents that one long vector widens
the ranges of all. Reference: the scalar quantization of sentence-transformers
(`quantize_embeddings`) and of FAISS (SQ8).
"""

import dataclasses

import numpy as np

LEVELS = 254  # steps between -127 and 127
LEAST_LENGTH = 1e-12


@dataclasses.dataclass(frozen=True)
class Quantized:
    """int8 vectors, and the numbers to restore the original vectors.

    Attributes:
      values: int8 [N, D], -127 to 127.
      rest: float32 [N, D], the rounding errors in steps, -0.5 to 0.5.
      lengths: float32 [N].
      offsets: float32 [D].
      steps: float32 [D], above 0.
    """

    values: np.ndarray
    rest: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray
    steps: np.ndarray


def quantize(vectors: np.ndarray) -> Quantized:
    """Rounds vectors, float32 [N, D], to int8; the error is at most half a step of a dimension."""
    lengths = np.linalg.norm(vectors, axis=1)
    # A vector of zeros must not be divided by 0.
    lengths = np.where(lengths < LEAST_LENGTH, 1, lengths).astype(np.float32)
    unit = vectors / lengths[:, None]  # [N, D]
    # The range of each dimension, [D] each.
    low = unit.min(axis=0)
    high = unit.max(axis=0)
    # The middle of the range, so that both ends are equally far.
    offsets = (low + high) / 2
    steps = (high - low) / np.float32(LEVELS)
    # A constant dimension is its offset. A range within float32's rounding counts as constant.
    smallest = np.finfo(np.float32).eps * np.maximum(np.abs(offsets), LEAST_LENGTH)
    steps = np.where(steps <= smallest, 1, steps).astype(np.float32)
    scaled = (unit - offsets) / steps
    rounded = np.clip(np.rint(scaled), -127, 127)
    return Quantized(
        values=rounded.astype(np.int8),
        rest=(scaled - rounded).astype(np.float32),
        lengths=lengths,
        offsets=offsets.astype(np.float32),
        steps=steps,
    )
