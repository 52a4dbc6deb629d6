"""Translation of weights between two sets of names: a row for each weight.

A table is made for a model of so many layers, so it is a plain list without patterns; reading and
writing use the same table in both directions. Each format has its own in its own module.
"""

from typing import NamedTuple

import numpy as np

from bert_tf.checkpoints.checkpoint import Shapes, Weights


class Row(NamedTuple):
    """One weight.

    Args:
      name: ours.
      theirs: theirs.
      is_transposed: whether they store the matrix as [outputs, inputs].
    """

    name: str
    theirs: str
    is_transposed: bool = False


def from_theirs(
    rows: list[Row], theirs: Weights, shapes: Shapes
) -> tuple[Weights, tuple[str, ...]]:
    """Returns the weights under our names, in our shapes, and their names that no row uses.

    A weight that cannot be brought to the expected shape keeps the one it has.
    """
    weights = {}
    for row in rows:
        if row.theirs in theirs:
            value = theirs[row.theirs]
            value = value.T if row.is_transposed and value.ndim == 2 else value
            shape = shapes.get(row.name, value.shape)
            if is_split(value.shape, shape):
                value = value.reshape(shape)
            weights[row.name] = np.ascontiguousarray(value, np.float32)
    used = {row.theirs for row in rows}
    return weights, tuple(sorted(set(theirs) - used))


def is_split(theirs: tuple[int, ...], ours: tuple[int, ...]) -> bool:
    """True if one axis of ours is two of theirs, [heads, head size]: [D] or [D, D]."""
    merged = {
        (*theirs[:axis], theirs[axis] * theirs[axis + 1], *theirs[axis + 2 :])
        for axis in range(len(theirs) - 1)
    }
    return len(theirs) == len(ours) + 1 and ours in merged


def to_theirs(rows: list[Row], weights: Weights) -> Weights:
    """Returns the weights under their names; those without a row are left out."""
    return {
        row.theirs: np.ascontiguousarray(weights[row.name].T)
        if row.is_transposed
        else weights[row.name]
        for row in rows
        if row.name in weights
    }
