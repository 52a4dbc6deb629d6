"""What TensorFlow Serving's models take and give, and the errors of both ways to ask them.

`serving_rest.py` and `serving_grpc.py` are the two ways; they carry the same arrays and raise the
same errors. `serving_client.py` adds checks, retries and files.
"""

import re
from typing import Any, NamedTuple, Protocol

import numpy as np

TYPES: dict[str, Any] = {
    "DT_FLOAT": np.float32,
    "DT_DOUBLE": np.float64,
    "DT_HALF": np.float16,
    "DT_INT8": np.int8,
    "DT_INT16": np.int16,
    "DT_INT32": np.int32,
    "DT_INT64": np.int64,
    "DT_UINT8": np.uint8,
    "DT_UINT32": np.uint32,
    "DT_UINT64": np.uint64,
    "DT_BOOL": np.bool_,
}
LONGEST_MESSAGE = 500


class ServingError(OSError):
    """A request without an answer, or with an error as the answer.

    Attributes:
      code: of gRPC, as INVALID_ARGUMENT; UNAVAILABLE where no server answered.
      may_pass: whether the same request may succeed a little later.
    """

    def __init__(self, message: str, code: str, may_pass: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.may_pass = may_pass


class TensorSpec(NamedTuple):
    """An input or output; -1 is a dimension of any size, shape None of any rank."""

    dtype: str
    shape: tuple[int, ...] | None


class Signature(NamedTuple):
    """What one way to call a model takes and gives, by name."""

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]


class Transport(Protocol):
    """A way to the server; the methods raise ServingError."""

    def predict(
        self, name: str, signature: Signature, inputs: dict[str, np.ndarray], timeout: float
    ) -> dict[str, Any]:
        """Returns the outputs: arrays, and nested lists for strings."""

    def metadata(self, timeout: float) -> dict[str, Any]:
        """Returns the SignatureDefs as JSON."""

    def status(self, timeout: float) -> dict[str, Any]:
        """Returns the GetModelStatusResponse as JSON, of all versions."""

    def close(self) -> None:
        """Closes the connection."""


def read_signatures(metadata: dict[str, Any]) -> dict[str, Signature]:
    """Returns the signatures in the metadata that either transport gives."""

    def read_specs(tensors: dict[str, Any]) -> dict[str, TensorSpec]:
        specs = {}
        for name, tensor in sorted(tensors.items()):
            form = tensor.get("tensor_shape", {})
            sizes = tuple(int(axis.get("size", 0)) for axis in form.get("dim", []))
            specs[name] = TensorSpec(
                tensor.get("dtype", ""), None if form.get("unknown_rank") else sizes
            )
        return specs

    return {
        name: Signature(
            read_specs(definition.get("inputs", {})), read_specs(definition.get("outputs", {}))
        )
        for name, definition in sorted(metadata.items())
        if not name.startswith("__")  # __saved_model_init_op is no signature.
    }


def as_array(name: str, values: Any, spec: TensorSpec) -> np.ndarray:
    """Returns one input as an array of its type; strings as an object array of bytes.

    Raises:
      ValueError: if the values are of another type or form.
    """
    if spec.dtype == "DT_STRING":
        array = _string_array(name, values)
    elif spec.dtype in TYPES:
        array = _number_array(name, values, spec.dtype)
    else:
        raise ValueError(f"{name} is of type {spec.dtype}; known are DT_STRING and {list(TYPES)}.")
    if spec.shape is not None and array.ndim != len(spec.shape):
        raise ValueError(
            f"{name} takes values of {len(spec.shape)} axes, the batch's first; received "
            f"{str(values)[:80]!r} of {array.ndim}."
        )
    return array


def _string_array(name: str, values: Any) -> np.ndarray:
    given = np.array(values, object)
    coded = np.empty(given.size, object)
    coded[:] = [_as_bytes(name, value) for value in given.reshape(-1).tolist()]
    return coded.reshape(given.shape)


def _number_array(name: str, values: Any, dtype: str) -> np.ndarray:
    kind = np.dtype(TYPES[dtype])
    try:
        given = np.array(values)
        with np.errstate(invalid="ignore"):
            array = given.astype(kind)
        fits = given.dtype.kind in "biuf" and (kind.kind == "f" or np.array_equal(array, given))
    except (ValueError, TypeError, OverflowError):
        fits = False
    if not fits:
        raise ValueError(
            f"{name} takes {dtype} in rows of one length, received {str(values)[:80]}."
        )
    return array


def _as_bytes(name: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{name} takes strings, received {str(value)[:80]}.")
    try:
        # A command line that is not UTF-8 comes with its bytes as lone surrogates.
        return value.encode("utf8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds a lone surrogate: {value[:80]!r}.") from None


def as_text(value: bytes) -> str | bytes:
    """Returns a string of the server; as bytes where it is not UTF-8."""
    try:
        return value.decode("utf8")
    except UnicodeDecodeError:
        return value


def one_line(message: str) -> str:
    """Returns a server's message on one line, without the names of graph nodes."""
    message = re.sub(r"\[\[.*?\]\]", " ", message, flags=re.DOTALL)
    message = " ".join(message.split())
    return message if len(message) <= LONGEST_MESSAGE else message[:LONGEST_MESSAGE] + "..."


def empty_outputs(signature: Signature) -> dict[str, Any]:
    """Returns the outputs of a batch of no rows."""
    outputs: dict[str, Any] = {}
    for name, spec in signature.outputs.items():
        shape = [0, *(max(size, 0) for size in (spec.shape or ())[1:])]
        outputs[name] = np.zeros(shape, TYPES[spec.dtype]) if spec.dtype in TYPES else []
    return outputs
