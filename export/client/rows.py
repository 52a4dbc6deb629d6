"""Files of texts as batches of inputs, and outputs as rows of JSON."""

import base64
import json
import pathlib
from typing import Any

import numpy as np

from bert_tf.files import read_lines

# The inputs of one row by name, or the only one.
Row = dict[str, Any] | str


def read_input(path: str) -> list[Row]:
    """Reads a file of texts: strings, or for .jsonl objects of inputs by name.

    Raises:
      ValueError: naming the line that is no JSON object.
    """
    lines = [line.removesuffix("\r") for line in read_lines(path)]
    if lines == [""]:
        return []
    if pathlib.Path(path).suffix != ".jsonl":
        return list(lines)
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line, object_hook=_read_bytes)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number} is not JSON: {error}.") from None
        if not isinstance(row, dict | str):
            raise ValueError(f"{path}, line {number}: expected an object, received {line[:80]}.")
        rows.append(row)
    return rows


def _read_bytes(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["b64"]) if set(value) == {"b64"} else value


def as_columns(rows: list[Row], names: list[str]) -> dict[str, list]:
    """Returns rows as inputs by name; a row that is a plain text is the only input.

    Args:
      rows: at least one.
      names: the inputs of the signature, for plain texts.

    Raises:
      ValueError: if the rows are of different inputs, or plain where there are several.
    """
    if len(names) > 1 and any(isinstance(row, str) for row in rows):
        raise ValueError(f"the model takes {' and '.join(names)}; give them as .jsonl.")
    named = [{names[0]: row} if isinstance(row, str) else row for row in rows]
    for row in named:
        if row.keys() != named[0].keys():
            raise ValueError(f"{sorted(named[0])} in one row and {sorted(row)} in another.")
    return {name: [row[name] for row in named] for name in named[0]}


def as_plain(values: Any) -> Any:
    """Returns an output as nested lists for JSON; float32 with no more digits than it has."""
    if isinstance(values, np.ndarray):
        is_short = values.dtype.kind == "f" and values.dtype.itemsize < 8
        return (values.astype(str).astype(np.float64) if is_short else values).tolist()
    if isinstance(values, list):
        return [as_plain(value) for value in values]
    return {"b64": base64.b64encode(values).decode()} if isinstance(values, bytes) else values
