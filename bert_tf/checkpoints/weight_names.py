"""Translates weights between two sets of names: a table with one row per weight.

A table is made for a given number of layers, so it is a plain list without patterns; reading and
writing use the same table in both directions. Each format has its own table in its own module.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bert_tf.checkpoints.checkpoint import HEADS, Shapes, Weights


class Row(NamedTuple):
    """One weight.

    Args:
      name: ours.
      theirs: theirs.
      is_transposed: whether they store the matrix as [outputs, inputs].
      part: which block it is of theirs, where they keep several of ours in one array.
      parts: how many blocks of equal height that array has.
    """

    name: str
    theirs: str
    is_transposed: bool = False
    part: int = 0
    parts: int = 1


def table(ours: str, theirs: str) -> list[Row]:
    """Returns the row of a PyTorch Embedding."""
    return [Row(ours, f"{theirs}.weight")]


def dense(ours: str, theirs: str) -> list[Row]:
    """Returns the rows of a PyTorch Linear."""
    return joined([ours], theirs)


def joined(ours: Iterable[str], theirs: str) -> list[Row]:
    """Returns the rows of dense layers of ours that are one PyTorch Linear, in their order."""
    ours = list(ours)
    return [
        row
        for part, name in enumerate(ours)
        for row in (
            Row(f"{name}/kernel", f"{theirs}.weight", True, part, len(ours)),
            Row(f"{name}/bias", f"{theirs}.bias", False, part, len(ours)),
        )
    ]


def norm(ours: str, theirs: str) -> list[Row]:
    """Returns the rows of a PyTorch LayerNorm; `ours` is what it belongs to."""
    return [
        Row(f"{ours}/LayerNorm/gamma", f"{theirs}.weight"),
        Row(f"{ours}/LayerNorm/beta", f"{theirs}.bias"),
    ]


def scores(head: str, theirs: str) -> list[Row]:
    """Returns the rows of the PyTorch Linear of a head, of `HEADS`: ours is stored as theirs."""
    return [
        Row(f"{HEADS[head]}output_weights", f"{theirs}.weight"),
        Row(f"{HEADS[head]}output_bias", f"{theirs}.bias"),
    ]


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
            if value.ndim and len(value) % row.parts == 0:
                value = np.split(value, row.parts)[row.part]
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
    blocks: dict[str, list[np.ndarray]] = {}
    for row in sorted(rows, key=lambda row: row.part):
        if row.name in weights:
            value = weights[row.name]
            blocks.setdefault(row.theirs, []).append(value.T if row.is_transposed else value)
    return {
        name: np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts))
        for name, parts in blocks.items()
    }
