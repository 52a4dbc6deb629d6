"""Reads files of texts as batches of inputs, and writes outputs as JSON."""

import base64
import json
import pathlib
from typing import Any

import numpy as np

from bert_tf.system.files import read_lines
from export.serving_rest import Tensor

# The inputs of one row by name, or its only input.
Row = dict[str, Any] | str


def read_input(path: str) -> list[Row]:
    """Reads a file of texts: strings, or for .jsonl objects of inputs by name.

    Raises:
      ValueError: naming the line that is not a JSON object.
    """
    lines = [line.removesuffix("\r") for line in read_lines(path)]
    # An empty file has one empty line.
    if lines == [""]:
        return []
    if pathlib.Path(path).suffix != ".jsonl":
        return list(lines)
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line, object_hook=_read_bytes)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number} is not JSON: {error}.") from None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: expected an object, received {line[:80]}.")
        rows.append(row)
    return rows


def _read_bytes(value: dict[str, Any]) -> Any:
    if set(value) == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    return value


def as_columns(rows: list[Row], inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Returns the inputs of a batch by name.

    Args:
      rows: rows of one batch; a plain text is the only input.
      inputs: those of the signature; an input without axes is a number for the whole batch.

    Raises:
      ValueError: if a row has other inputs than the first, or another number for the batch.
    """
    only = min(inputs, default="")
    named = [{only: row} if isinstance(row, str) else row for row in rows]
    columns: dict[str, Any] = {name: [row.get(name) for row in named] for name in named[0]}
    if odd := [row for row in named if row.keys() != columns.keys()]:
        raise ValueError(f"inputs are {' and '.join(columns)}, but then {' and '.join(odd[0])}.")
    for name in columns:
        if name in inputs and inputs[name].sizes == []:
            first, *others = columns[name]
            if any(other != first for other in others):
                raise ValueError(
                    f"{name} is one number for all rows of a request; received {columns[name]}. "
                    "Give --batch_size=1, or the same number in all."
                )
            columns[name] = first
    return columns


def as_plain(values: object) -> Any:
    """Returns an output as nested lists for JSON; texts are already lists."""
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype == np.float32:
        # 0.1, not 0.10000000149011612: the shortest digits that give the same float32.
        values = values.astype(str).astype(float)
    return values.tolist()
