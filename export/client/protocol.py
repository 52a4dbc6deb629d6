"""Converts and checks inputs and outputs of TensorFlow Serving, for both of its protocols."""

import base64
import re
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bert_tf.system.printable import escaped

# Types of the models that this project exports; NumPy chooses for other types.
DTYPES: dict[str, npt.DTypeLike] = {
    "DT_FLOAT": np.float32,
    "DT_INT32": np.int32,
    "DT_INT64": np.int64,
    "DT_STRING": object,
}
# NumPy's kinds that each type may arrive as: JSON writes whole floats without a decimal point.
FLOATS = ("DT_FLOAT", "DT_DOUBLE", "DT_HALF")
WHOLE = ("DT_INT8", "DT_INT16", "DT_INT32", "DT_INT64", "DT_UINT8", "DT_UINT16", "DT_UINT32")
KINDS_OF_NUMBERS = {
    **dict.fromkeys(FLOATS, "fiu"),
    **dict.fromkeys((*WHOLE, "DT_UINT64"), "iu"),
    "DT_BFLOAT16": "fiuV",
    "DT_BOOL": "b",
}
MAX_MESSAGE_LENGTH = 500
MAX_ANSWER_BYTES = 1 << 28  # 32 rows of 512 vectors of 1,024 numbers are 190 MB of JSON.
# A TensorInfo, or a SignatureDef, in JSON.
Spec: TypeAlias = dict[str, Any]


class ServingError(OSError):
    """A request without an answer, or with an error as the answer.

    Attributes:
      code: gRPC's name of the error, such as INVALID_ARGUMENT; UNAVAILABLE if no server answered.
      may_pass: whether the same request may succeed a little later.
    """

    def __init__(self, message: str, code: str, may_pass: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.may_pass = may_pass


def shape_of(spec: Spec) -> list[int]:
    """Returns the shape of an input or output; -1 is any size, and [] any rank."""
    return [int(axis.get("size", 0)) for axis in spec.get("tensor_shape", {}).get("dim", [])]


def check_signatures(signatures: object, server: str) -> dict[str, Spec]:
    """Returns a server's signatures by name, if they have the form that clients read.

    Raises:
      ServingError: naming the signature that has another form.
    """
    if not isinstance(signatures, dict):
        raise _unexpected(server, "signatures", signatures, "an object of them")
    for name, signature in signatures.items():
        if not isinstance(signature, dict):
            raise _unexpected(server, f"signature {name}", signature, "an object")
        for part in ("inputs", "outputs"):
            specs = signature.get(part, {})
            if not isinstance(specs, dict) or not all(map(_is_spec, specs.values())):
                raise _unexpected(server, f"{part} of signature {name}", specs, "tensors")
    # Protocol buffers leave out empty fields.
    return {name: {"inputs": {}, "outputs": {}, **parts} for name, parts in signatures.items()}


def _is_spec(spec: object) -> bool:
    if not isinstance(spec, dict) or not isinstance(spec.get("dtype"), str):
        return False
    shape = spec.get("tensor_shape", {})
    if not isinstance(shape, dict) or not isinstance(shape.get("dim", []), list):
        return False
    if not isinstance(shape.get("unknown_rank", False), bool):
        return False
    axes = shape.get("dim", [])
    return all(isinstance(axis, dict) and _is_size(axis.get("size", 0)) for axis in axes)


def _is_size(size: object) -> bool:
    """Returns whether a value is an integer, which JSON of protocol buffers writes as a string."""
    if isinstance(size, bool) or not isinstance(size, int | str):
        return False
    return re.fullmatch(r"-?\d{1,18}", str(size)) is not None


def check_versions(answer: dict[str, Any], server: str) -> list[dict[str, Any]]:
    """Returns the versions in a server's answer about its status.

    Raises:
      ServingError: if it has another form.
    """
    versions = answer.get("model_version_status", [])
    if not isinstance(versions, list):
        raise _unexpected(server, "model_version_status", versions, "a list")
    for version in versions:
        status = version.get("status", {}) if isinstance(version, dict) else None
        if not isinstance(status, dict):
            raise _unexpected(server, "model_version_status", version, "objects with a status")
    return versions


def check_outputs(
    outputs: dict[str, Any], signature: Spec, num_rows: int, server: str
) -> dict[str, Any]:
    """Returns the outputs of a request as arrays of the signature's types, strings as lists.

    Args:
      outputs: nested lists from JSON, or arrays, by name.
      signature: the signature that the server announced.
      num_rows: number of rows in the request.
      server: address of the server, for messages.

    Raises:
      ServingError: if an output is missing, has another type or shape, or is not finite.
    """
    arrays = {}
    for name, spec in sorted(signature["outputs"].items()):
        if name not in outputs:
            raise _unexpected(server, "outputs", list(outputs), f"{name} as well")
        try:
            array = _to_output(outputs[name], spec["dtype"])
            _check_shape(array.shape, spec, num_rows)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            form = f"{spec['dtype']} {shape_of(spec)} for {num_rows} rows"
            raise _unexpected(server, f"{name} ({error})", outputs[name], form) from None
        arrays[name] = array.tolist() if array.dtype == object else array
    return arrays


def _to_output(values: npt.ArrayLike, kind: str) -> np.ndarray:
    """Returns nested lists of JSON, or an array of gRPC, as an array; strings as an object array.

    Raises:
      ValueError: if they have another type, or are not finite.
    """
    if kind == "DT_STRING":
        return np.asarray(np.frompyfunc(_decode, 1, 1)(_nested(values)), object)
    given = np.asarray(values)
    if not given.size:
        return given.astype(DTYPES.get(kind, given.dtype))
    if kind not in KINDS_OF_NUMBERS:
        return given
    if given.dtype.kind not in KINDS_OF_NUMBERS[kind]:
        raise ValueError("of another type")
    with np.errstate(over="ignore"):  # An overflow gives infinity, which is rejected below.
        array = given.astype(DTYPES.get(kind, given.dtype))
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("not finite")
    # A cast to a shorter integer type wraps around silently.
    if array.dtype.kind in "iu" and (array != given).any():
        raise ValueError("out of range")
    return array


def _nested(values: npt.ArrayLike) -> np.ndarray:
    """Returns nested lists of strings, or of objects with bytes, as an object array."""
    # Lists of different lengths become an array of lists.
    array = np.array(values, object)
    if any(isinstance(value, list) for value in array.ravel().tolist()):
        raise ValueError("rows of different lengths")
    return array


def _decode(value: object) -> str:
    """Returns a string output as text: str, the bytes of gRPC, or {"b64": ...} of JSON."""
    if isinstance(value, dict) and set(value) == {"b64"} and isinstance(value["b64"], str):
        value = base64.b64decode(value["b64"], validate=True)
    if isinstance(value, bytes):
        return value.decode("utf8", "replace")
    if not isinstance(value, str):
        raise ValueError("of another type")
    return value


def _check_shape(shape: tuple[int, ...], spec: Spec, num_rows: int) -> None:
    """Raises ValueError if an output does not have the announced shape, in which -1 is any size."""
    if shape[:1] != (num_rows,):
        raise ValueError(f"its shape is {list(shape)}")
    expected = shape_of(spec)
    is_any = not expected and not is_number(spec)
    if is_any or not num_rows:  # JSON has no second axis where the first is empty.
        return
    fits = len(shape) == len(expected)
    # `zip` ends with the shorter shape; their lengths are compared above.
    for size, announced in zip(shape, expected, strict=False):
        fits &= announced in (-1, size)
    if not fits:
        raise ValueError(f"its shape is {list(shape)}")


def _unexpected(server: str, name: str, value: object, expected: str) -> ServingError:
    shown = one_line(repr(value)[:MAX_MESSAGE_LENGTH])
    message = f"{server} sent {one_line(name)}: {shown}; expected {expected}."
    return ServingError(f"{message} Is this TensorFlow Serving?", "INTERNAL")


def is_number(spec: Spec) -> bool:
    """Returns whether an input is a single number for the whole batch."""
    shape = spec.get("tensor_shape")
    return shape is not None and not shape.get("dim") and not shape.get("unknown_rank")


def to_array(name: str, values: npt.ArrayLike, spec: Spec) -> np.ndarray:
    """Returns one input as an array of its type; strings as an object array of bytes.

    Raises:
      ValueError: if the values have another type or shape.
    """
    kind = spec["dtype"]
    shape = shape_of(spec)
    try:
        if kind == "DT_STRING":
            array = np.frompyfunc(_encode, 1, 1)(np.array(values, object))
        else:
            given = np.array(values)
            # The casting rule rejects floats for integers.
            array = given.astype(DTYPES.get(kind, given.dtype), casting="same_kind")
            # The cast to a shorter integer type wraps around silently.
            if array.dtype.kind != "f" and (array != given).any():
                raise ValueError
        if (shape or is_number(spec)) and np.ndim(array) != len(shape):
            raise ValueError
    except (ValueError, TypeError, AttributeError):
        raise ValueError(
            f"{name} takes {kind} in rows of one length, of shape {shape} with -1 for any size; "
            f"received {str(values)[:80]!r}."
        ) from None
    return array


def _encode(value: str | bytes) -> bytes:
    # Python turns bytes of a command line that are not UTF-8 into lone surrogates.
    return value if isinstance(value, bytes) else value.encode("utf8", "surrogateescape")


def one_line(message: object) -> str:
    """Returns a server's message as one short line, without the names of graph nodes.

    Control characters are escaped, because a terminal would execute them.
    """
    line = " ".join(re.sub(r"\[\[.*?\]\]", " ", str(message), flags=re.DOTALL).split())
    line = escaped(line)
    return line if len(line) <= MAX_MESSAGE_LENGTH else line[:MAX_MESSAGE_LENGTH] + "..."
