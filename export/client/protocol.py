"""Inputs of TensorFlow Serving's models, and the errors of both protocols."""

import re
from typing import Any

import numpy as np

from bert_tf.printable import escaped

# Of the models that this project exports; others are left to NumPy.
DTYPES: dict[str, Any] = {
    **{"DT_FLOAT": np.float32, "DT_INT32": np.int32, "DT_INT64": np.int64, "DT_STRING": object},
}
MAX_MESSAGE_LENGTH = 500
MAX_ANSWER_BYTES = 1 << 28  # 32 rows of 512 vectors of 1,024 numbers are 190 MB of JSON.
# A TensorInfo, or a SignatureDef, in JSON.
Spec = dict[str, Any]


class ServingError(OSError):
    """A request without an answer, or with an error as the answer.

    Attributes:
      code: of gRPC, as INVALID_ARGUMENT; UNAVAILABLE where no server answered.
      may_pass: whether the same request may succeed a little later.
    """

    def __init__(self, message: str, code: str, may_pass: bool = False) -> None:
        super().__init__(message)
        self.code, self.may_pass = code, may_pass


def shape_of(spec: Spec) -> list[int]:
    """Returns the shape of an input or output; -1 is any size, and no sizes are any rank."""
    return [int(axis.get("size", 0)) for axis in spec.get("tensor_shape", {}).get("dim", [])]


def is_number(spec: Spec) -> bool:
    """True for an input that is one number for the whole batch."""
    shape = spec.get("tensor_shape")
    return shape is not None and not shape.get("dim") and not shape.get("unknown_rank")


def to_array(name: str, values: Any, spec: Spec) -> np.ndarray:
    """Returns one input as an array of its type; strings as an object array of bytes.

    Raises:
      ValueError: if the values are of another type or form.
    """
    kind, shape = spec["dtype"], shape_of(spec)
    try:
        if kind == "DT_STRING":
            array = np.frompyfunc(_encode, 1, 1)(np.array(values, object))
        else:
            given = np.array(values)
            array = given.astype(DTYPES.get(kind, given.dtype), casting="same_kind")
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


def _encode(value: Any) -> bytes:
    # A command line that is not UTF-8 comes with its bytes as lone surrogates.
    return value if isinstance(value, bytes) else value.encode("utf8", "surrogateescape")


def one_line(message: Any) -> str:
    """Returns what a server says on one line, not too long, without the names of graph nodes.

    Control characters come as escapes: terminals obey them.
    """
    line = " ".join(re.sub(r"\[\[.*?\]\]", " ", str(message), flags=re.DOTALL).split())
    line = escaped(line)
    return line if len(line) <= MAX_MESSAGE_LENGTH else line[:MAX_MESSAGE_LENGTH] + "..."
