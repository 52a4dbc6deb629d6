"""Translates weights between two sets of names: a table with one row per weight.

A table is made for a given number of layers, so it is a plain list without patterns; reading and
writing use the same table in both directions. Each format has its own table in its own module.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from bert_tf.checkpoints.checkpoint import HEADS, Shapes, Weights


class Row(NamedTuple):
    """One weight."""

    name: str  # its name in bert_tf
    file_name: str  # its name in the files
    is_transposed: bool = False  # whether the files store the matrix as [outputs, inputs]
    part: int = 0  # index of its block, where the files store several weights in one array
    parts: int = 1  # number of blocks of equal height in that array
    # Whether the files split the last axis, before any transposition, into [heads, head size].
    has_heads: bool = False


def table(name: str, file_name: str) -> list[Row]:
    """Returns the row of a PyTorch Embedding."""
    return [Row(name, f"{file_name}.weight")]


def dense(name: str, file_name: str) -> list[Row]:
    """Returns the rows of a PyTorch Linear."""
    return joined([name], file_name)


def joined(names: Iterable[str], file_name: str) -> list[Row]:
    """Returns the rows of dense layers that are one PyTorch Linear in the files, in order."""
    names = list(names)
    rows = []
    for part, name in enumerate(names):
        rows.append(Row(f"{name}/kernel", f"{file_name}.weight", True, part, len(names)))
        rows.append(Row(f"{name}/bias", f"{file_name}.bias", False, part, len(names)))
    return rows


def norm(name: str, file_name: str) -> list[Row]:
    """Returns the rows of a PyTorch LayerNorm; `name` is its layer's name."""
    return [
        Row(f"{name}/LayerNorm/gamma", f"{file_name}.weight"),
        Row(f"{name}/LayerNorm/beta", f"{file_name}.bias"),
    ]


def pair(
    name: str, file_name: str, ends: tuple[str, str] = ("kernel", "bias"), file_end: str = ""
) -> list[Row]:
    """Returns the rows of two weights of a Keras layer; `file_end` has {} for a number."""
    rows = []
    for number, end in enumerate(ends):
        own = file_end.format(number) if file_end else end
        rows.append(Row(f"{name}/{end}", f"{file_name}/{own}"))
    return rows


def post_norm_rows(
    index: int,
    file_layer: str,
    parts: Mapping[str, str],
    make_dense: Callable[[str, str], list[Row]] = dense,
    make_norm: Callable[[str, str], list[Row]] = norm,
) -> list[Row]:
    """Returns the rows of a post-norm block, whose names in the files begin with `file_layer`.

    `parts` has the rest of the names: query, key, value, context, attention_norm, intermediate,
    output and output_norm.
    """
    layer = f"bert/encoder/layer_{index}"
    files = {part: f"{file_layer}{name}" for part, name in parts.items()}
    rows = []
    for part in ("query", "key", "value"):
        rows += make_dense(f"{layer}/attention/self/{part}", files[part])
    return [
        *rows,
        *make_dense(f"{layer}/attention/output/dense", files["context"]),
        *make_norm(f"{layer}/attention/output", files["attention_norm"]),
        *make_dense(f"{layer}/intermediate/dense", files["intermediate"]),
        *make_dense(f"{layer}/output/dense", files["output"]),
        *make_norm(f"{layer}/output", files["output_norm"]),
    ]


def scores(head: str, file_name: str) -> list[Row]:
    """Returns the rows of a head's PyTorch Linear, which bert_tf stores in the same order."""
    return [
        Row(f"{HEADS[head]}output_weights", f"{file_name}.weight"),
        Row(f"{HEADS[head]}output_bias", f"{file_name}.bias"),
    ]


def from_file_names(
    rows: list[Row], file_weights: Weights, shapes: Shapes
) -> tuple[Weights, tuple[str, ...]]:
    """Returns the weights in bert_tf's names and shapes, and the names that no row uses.

    A weight that cannot be reshaped to the expected shape keeps its shape.
    """
    weights = {}
    for row in rows:
        if row.file_name in file_weights:
            value = file_weights[row.file_name]
            if value.ndim and len(value) % row.parts == 0:
                # Blocks of rows: PyTorch's matrices are [outputs, inputs].
                value = np.split(value, row.parts)[row.part]
            if row.has_heads and value.ndim == 3:
                # [inputs, heads, head size] -> [inputs, outputs]
                value = value.reshape(len(value), -1)
            if row.is_transposed and value.ndim == 2:
                value = value.T
            shape = shapes.get(row.name, value.shape)
            # keras-hub and the Model Garden have an axis for the heads.
            if is_split(value.shape, shape):
                value = value.reshape(shape)
            weights[row.name] = np.ascontiguousarray(value, np.float32)
    used = {row.file_name for row in rows}
    return weights, tuple(sorted(set(file_weights) - used))


def is_split(file_shape: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Returns whether one axis of `shape` is split into [heads, head size] in the file."""
    if len(file_shape) != len(shape) + 1:
        return False
    for axis in range(len(shape)):
        merged = file_shape[axis] * file_shape[axis + 1]
        if shape == (*file_shape[:axis], merged, *file_shape[axis + 2 :]):
            return True
    return False


def to_file_names(rows: list[Row], weights: Weights, num_heads: int = 1) -> Weights:
    """Returns the weights under their names in the files; weights without a row are left out.

    `num_heads` is the number of heads that the files split an axis into, where a row says so.
    """
    blocks: dict[str, list[np.ndarray]] = {}
    # Blocks of one array are concatenated in the order of their parts.
    for row in sorted(rows, key=lambda row: row.part):
        if row.name in weights:
            value = weights[row.name]
            value = value.T if row.is_transposed else value
            if row.has_heads:
                value = value.reshape(len(value), num_heads, -1)
            blocks.setdefault(row.file_name, []).append(value)
    file_weights = {}
    for name, parts in blocks.items():
        value = parts[0] if len(parts) == 1 else np.concatenate(parts)
        file_weights[name] = np.ascontiguousarray(value)
    return file_weights
