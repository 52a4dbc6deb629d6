"""Tensors in the JSON of TensorFlow Serving's REST interface, for the stand-in of that server."""

import base64
import contextlib
import json

import numpy as np
import tensorflow as tf

INVALID_ARGUMENT = 3


class Refusal(Exception):
    """An error with a code of TensorFlow."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_tensors(request: dict, specs) -> tuple[dict[str, np.ndarray], bool]:
    """Returns the inputs of a request, and whether they came in rows."""
    if ("instances" in request) == ("inputs" in request):
        raise Refusal(INVALID_ARGUMENT, "expecting one of 'inputs' and 'instances'")
    is_row = "instances" in request
    columns = request["instances" if is_row else "inputs"]
    if is_row:
        if not isinstance(columns, list) or not columns:
            raise Refusal(INVALID_ARGUMENT, "No values in 'instances' array")
        columns = _rows_to_columns(columns, specs)
    elif not isinstance(columns, dict) or set(columns) == {"b64"}:
        if len(specs) > 1:
            raise Refusal(INVALID_ARGUMENT, "inputs is a plain value/list, expecting an object")
        columns = dict.fromkeys(specs, columns)
    for name in specs:
        if name not in columns:
            message = f"Missing named input: {name} in 'inputs' object."
            raise Refusal(INVALID_ARGUMENT, message)
    # In columns, names that the signature does not have are not looked at.
    return {
        name: to_tensor(columns[name], tf.as_dtype(specs[name].dtype)) for name in specs
    }, is_row


def _rows_to_columns(rows: list, specs) -> dict[str, list]:
    has_names = isinstance(rows[0], dict) and set(rows[0]) != {"b64"}
    if not has_names:
        if len(specs) > 1:
            raise Refusal(INVALID_ARGUMENT, "instances is a plain list, expecting objects")
        return dict.fromkeys(specs, rows)
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or set(row) != set(specs):
            message = f"Failed to process element: {number} of 'instances' list. keys must be "
            raise Refusal(INVALID_ARGUMENT, message + f"equal to: {','.join(sorted(specs))}")
    return {name: [row[name] for row in rows] for name in specs}


def to_tensor(values, dtype: tf.DType) -> np.ndarray:
    """Returns nested lists as an array; their form must be a rectangle, their values the type."""
    shape, inner = [], values
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0] if inner else None
    flat: list = []

    def flatten(value, level: int) -> None:
        if isinstance(value, list) != (level < len(shape)):
            raise Refusal(INVALID_ARGUMENT, f"Encountered list at unexpected level: {level}")
        if not isinstance(value, list):
            flat.append(_to_value(value, dtype))
        elif len(value) != shape[level]:
            message = f"Encountered list at unexpected size: {len(value)} at level: {level} "
            raise Refusal(INVALID_ARGUMENT, message + f"expected size: {shape[level]}")
        else:
            for item in value:
                flatten(item, level + 1)

    flatten(values, 0)
    array = np.empty(len(flat), object if dtype == tf.string else dtype.as_numpy_dtype)
    array[:] = flat
    return array.reshape(shape)


def _to_value(value, dtype: tf.DType):
    kinds = {tf.string: str, tf.bool: bool}
    kind = kinds.get(dtype, float if dtype.is_floating else int)
    if dtype == tf.string and isinstance(value, dict) and set(value) == {"b64"}:
        with contextlib.suppress(ValueError, TypeError):
            return base64.b64decode(value["b64"], validate=True)
        raise Refusal(INVALID_ARGUMENT, "Unable to base64 decode")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (isinstance(value, kind) or (kind is float and is_number)) or (
        kind is int and isinstance(value, bool)
    ):
        message = f"JSON Value: {json.dumps(value)} is not of expected type: {dtype.name}"
        raise Refusal(INVALID_ARGUMENT, message)
    return value.encode("utf8", "surrogateescape") if kind is str else value


def write_tensors(outputs: dict[str, np.ndarray], is_row: bool) -> str:
    """Returns outputs as JSON; one output alone comes without its name."""
    columns = {name: _to_lists(name, values) for name, values in outputs.items()}
    sizes = {np.shape(values)[:1] for values in outputs.values()}
    if is_row and len(sizes) > 1:
        raise Refusal(INVALID_ARGUMENT, f"Tensors have inconsistent batch size: {sizes}")
    if len(columns) == 1:
        (answer,) = columns.values()
    elif is_row:
        answer = [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
    else:
        answer = columns
    return json.dumps({"predictions" if is_row else "outputs": answer}, ensure_ascii=False)


def _to_lists(name: str, values: np.ndarray):
    def text(value):
        if isinstance(value, list):
            return [text(item) for item in value]
        if name.endswith("_bytes"):
            return {"b64": base64.b64encode(value).decode()}
        return value.decode("utf8", "surrogateescape")

    if values.dtype == object:
        return text(values.tolist())
    if values.dtype == np.float32:  # As few digits as give the same number again.
        return values.astype(str).astype(np.float64).tolist()
    return values.tolist()
