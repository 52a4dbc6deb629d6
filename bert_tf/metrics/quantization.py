"""Small vectors: int8 with a range for each dimension, and one bit for each dimension.

The codes are those of sentence-transformers' `quantize_embeddings`:

    int8      floor((x - low) / step) - 128, where step = (high - low) / 255
    ubinary   1 where x > 0, eight dimensions in a byte, the first one in its highest bit

Mean-pooled encoders have a few dimensions that are a hundred times larger than the others. A single
step for the whole vector would have to fit these and would round all other dimensions to 0. So each
dimension has a range, over calibration vectors.
"""

import dataclasses

import numpy as np

LEVELS = 255  # steps between the lowest and the highest code
LEAST_LENGTH = 1e-12


@dataclasses.dataclass(frozen=True)
class Ranges:
    """The range of each dimension: vector = offsets + steps * codes, within a step.

    Attributes:
      low: float32 [D], the lowest number of each dimension.
      steps: float32 [D], above 0; 1 for a constant dimension.
    """

    low: np.ndarray
    steps: np.ndarray

    @classmethod
    def of(cls, calibration: np.ndarray) -> "Ranges":
        """Returns the ranges of calibration vectors, float32 [N, D] with N > 0."""
        low = calibration.min(axis=0).astype(np.float32)
        steps = (calibration.max(axis=0) - low) / np.float32(LEVELS)
        return cls(low, np.where(steps == 0, 1, steps).astype(np.float32))

    @property
    def offsets(self) -> np.ndarray:
        """The numbers of the code 0, float32 [D]."""
        return self.low + 128 * self.steps

    def codes(self, vectors: np.ndarray) -> np.ndarray:
        """Returns int8 [N, D] for float32 [N, D]; numbers outside the ranges are clipped."""
        steps_above = np.floor((vectors - self.low) / self.steps)
        return (np.clip(steps_above, 0, LEVELS) - 128).astype(np.int8)


def vector_lengths(vectors: np.ndarray) -> np.ndarray:
    """Returns the length of each vector, float32 [N], 1 for vectors of zeros.

    Vectors are divided by it before they are rounded, so that one long vector does not widen the
    ranges of all.
    """
    lengths = np.linalg.norm(vectors, axis=1)
    return np.where(lengths < LEAST_LENGTH, 1, lengths).astype(np.float32)


def binary_codes(vectors: np.ndarray) -> np.ndarray:
    """Returns the ubinary codes uint8 [N, ceil(D / 8)] of vectors [N, D]; unused bits are 0."""
    return np.packbits(np.asarray(vectors) > 0, axis=1)


def signs(codes: np.ndarray, dimension: int) -> np.ndarray:
    """Returns 1 and -1 for the bits of ubinary codes, float32 [N, dimension]."""
    bits = np.unpackbits(codes, axis=1, count=dimension)
    return bits.astype(np.float32) * 2 - 1


def hamming_scores(queries: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Returns minus the number of bits that differ, float32 [Q, N], for uint8 [Q, B] and [N, B]."""
    # The widest words that divide the bytes; the arrays may begin at any address.
    word = next(size for size in (8, 4, 2, 1) if codes.shape[1] % size == 0)
    words = np.ascontiguousarray(codes).view(f"u{word}")  # [N, B / word]
    scores = np.empty([len(queries), len(codes)], np.float32)
    for query, query_scores in zip(
        np.ascontiguousarray(queries).view(f"u{word}"), scores, strict=True
    ):
        differing = np.zeros(len(codes), np.uint32)
        for column in range(words.shape[1]):
            differing += np.bitwise_count(words[:, column] ^ query[column])
        np.negative(differing, out=query_scores, dtype=np.float32)
    return scores
