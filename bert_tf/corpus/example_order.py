"""The order of examples in training: a pure function without a shuffle buffer.

Row r of step s has the index g = s * B + r in the training sequence. Epoch g // N shows all N
examples once: index g is example permutation(g % N), with a different permutation for each epoch.
The permutation is computed on demand (a Feistel network over the next power of two, repeated until
the result is below N), so it takes no memory, a run resumes at any step at no cost, and neither
workers nor replicas change it. Every epoch is shuffled over the whole corpus.

Reference: Black and Rogaway 2002, "Ciphers with arbitrary finite domains" (cycle walking).
"""

import numpy as np

from bert_tf.corpus.splitmix import numpy_random_bits

HALF_ROUNDS = 8  # a few more than the 4 rounds after which a Feistel network is pseudo-random
MIN_BITS = 2  # one for each half


def order_examples(
    indices: np.ndarray, num_examples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the examples at some indices of the training sequence.

    Args:
      indices: int64 [n], step * batch size + row.
      num_examples: N, examples of an epoch, 1 or more.
      seed: in [0, 2**64).

    Returns:
      example_ids, int64 [n] in [0, N), and epochs, int64 [n].
    """
    if num_examples < 1:
        raise ValueError(f"num_examples is {num_examples}; expected 1 or more.")
    epochs, indices_in_epoch = np.divmod(indices, num_examples)
    return permute(indices_in_epoch, num_examples, epochs, seed), epochs


def permute(indices: np.ndarray, size: int, epochs: np.ndarray, seed: int) -> np.ndarray:
    """Returns the image of each index in [0, size) under its epoch's permutation, int64 [n]."""
    permuted = indices.astype(np.int64)
    walking = np.arange(len(permuted))
    while len(walking):
        permuted[walking] = _feistel(permuted[walking], size, epochs[walking], seed)
        # Cycle walking: images outside of [0, size) are permuted again, until none is left.
        walking = walking[permuted[walking] >= size]
    return permuted


def _feistel(indices: np.ndarray, size: int, epochs: np.ndarray, seed: int) -> np.ndarray:
    """Permutes [0, 2**bits), the smallest such range that holds `size`; int64 [n]."""
    # 2**bits is below 2 * size from size 3 on: fewer than two permutations an index on average.
    bits = max(MIN_BITS, (size - 1).bit_length())
    right_bits = bits // 2
    halves = [indices >> right_bits, indices & ((1 << right_bits) - 1)]
    widths = [bits - right_bits, right_bits]
    for half_round in range(HALF_ROUNDS):
        changed = half_round % 2
        # A half is changed by a hash of the other, which can be undone: so it is a permutation.
        mask = numpy_random_bits(seed, epochs, half_round, halves[1 - changed])
        halves[changed] = halves[changed] ^ (mask >> np.uint64(64 - widths[changed])).astype(int)
    return halves[0] << right_bits | halves[1]
