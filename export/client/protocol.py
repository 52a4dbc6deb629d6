"""What TensorFlow Serving's models take and give, and the errors of both ways to ask them."""

import re
from typing import Any, NamedTuple

import numpy as np

TYPES: dict[str, Any] = {
    **{"DT_FLOAT": np.float32, "DT_DOUBLE": np.float64, "DT_HALF": np.float16},
    **{"DT_INT8": np.int8, "DT_INT16": np.int16, "DT_INT32": np.int32, "DT_INT64": np.int64},
    **{"DT_UINT8": np.uint8, "DT_UINT32": np.uint32, "DT_UINT64": np.uint64},
    **{"DT_BOOL": np.bool_, "DT_STRING": object},
}
MAX_MESSAGE_LENGTH = 500
MAX_ANSWER_BYTES = 1 << 28  # 32 rows of 512 vectors of 1,024 numbers are 190 MB of JSON.


class ServingError(OSError):
    """A request without an answer, or with an error as the answer.

    Attributes:
      code: of gRPC, as INVALID_ARGUMENT; UNAVAILABLE where no server answered.
      may_pass: whether the same request may succeed a little later.
    """

    def __init__(self, message: str, code: str, may_pass: bool = False) -> None:
        super().__init__(printable(message))
        self.code, self.may_pass = code, may_pass


class TensorSpec(NamedTuple):
    """An input or output; -1 is a dimension of any size, shape None of any rank."""

    dtype: str
    shape: tuple[int, ...] | None


class Signature(NamedTuple):
    """What one way to call a model takes and gives, by name."""

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]


def read_signatures(definitions: dict[str, Any]) -> dict[str, Signature]:
    """Reads a SignatureDefMap in JSON, as both transports give it."""

    def read_specs(tensors: dict[str, Any]) -> dict[str, TensorSpec]:
        specs = {}
        for name, tensor in sorted(tensors.items()):
            form = tensor.get("tensor_shape", {})
            shape = tuple(int(axis.get("size", 0)) for axis in form.get("dim", []))
            specs[name] = TensorSpec(tensor["dtype"], None if form.get("unknown_rank") else shape)
        return specs

    return {
        name: Signature(read_specs(definition["inputs"]), read_specs(definition["outputs"]))
        for name, definition in sorted(definitions.items())
        if not name.startswith("__")  # __saved_model_init_op is no signature.
    }


def as_array(name: str, values: Any, spec: TensorSpec) -> np.ndarray:
    """Returns one input as an array of its type; strings as an object array of bytes.

    Raises:
      ValueError: if the values are of another type or form.
    """
    try:
        if spec.dtype == "DT_STRING":
            array = np.frompyfunc(_encode, 1, 1)(np.array(values, object))
        else:
            given = np.array(values)
            array = given.astype(TYPES[spec.dtype], casting="same_kind")
            if array.dtype.kind != "f" and (array != given).any():
                raise ValueError
        if spec.shape is not None and np.ndim(array) != len(spec.shape):
            raise ValueError
    except (ValueError, TypeError, AttributeError):
        raise ValueError(
            f"{name} takes {spec.dtype} in rows of one length, of shape {spec.shape} with -1 for "
            f"any size; received {str(values)[:80]!r}."
        ) from None
    return array


def _encode(value: Any) -> bytes:
    # A command line that is not UTF-8 comes with its bytes as lone surrogates.
    return value if isinstance(value, bytes) else value.encode("utf8", "surrogateescape")


def as_text(value: Any) -> Any:
    """Returns a string of the server as str, or as bytes where it is not UTF-8; lists of them."""
    if isinstance(value, list):
        return [as_text(item) for item in value]
    try:
        return value.decode("utf8")
    except UnicodeDecodeError:
        return value


def empty_output(spec: TensorSpec) -> Any:
    """Returns an output of a batch of no rows."""
    shape = [0, *(max(size, 0) for size in (spec.shape or ())[1:])]
    return [] if spec.dtype == "DT_STRING" else np.zeros(shape, TYPES[spec.dtype])


def printable(message: str) -> str:
    """Returns a message with control characters as escapes: terminals obey them."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)


def one_line(message: Any) -> str:
    """Returns what a server says on one line, not too long, without the names of graph nodes."""
    line = " ".join(re.sub(r"\[\[.*?\]\]", " ", str(message), flags=re.DOTALL).split())
    return line if len(line) <= MAX_MESSAGE_LENGTH else line[:MAX_MESSAGE_LENGTH] + "..."
