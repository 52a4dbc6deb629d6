"""Runs SavedModels in TensorFlow's C library, with the same loader as TensorFlow Serving.

Nothing of TensorFlow's Python is loaded: a model that runs here needs no Python. The libraries are
those of the wheels: libtensorflow_cc.so.2, and for operations of tensorflow-text one of its own.
Nothing is freed: the process ends with its last request (`apart.py`).

Reference: tensorflow/c/c_api.h, tf_tensor.h, tf_tstring.h.
"""

import ctypes
import importlib.util
import math
import pathlib
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import numpy as np

LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
OP_LIBRARIES = {
    "FastWordpieceTokenizeWithOffsets": "python/ops/_fast_wordpiece_tokenizer.so",
    "NormalizeUTF8": "python/ops/_normalize_ops.so",
}
STRING, STRING_BYTES = 7, 24  # TF_STRING, sizeof(TF_TString)
DTYPES = {1: np.float32, 2: np.float64, 3: np.int32, 9: np.int64, 10: np.bool_}
TYPES = {"v": None, "p": c_void_p, "s": c_char_p, "i": c_int, "l": c_int64, "z": c_size_t}
# Result and arguments, letters of `TYPES`.
FUNCTIONS: dict[str, str] = {
    **{"TF_NewStatus": "p", "TF_GetCode": "ip", "TF_Message": "sp", "TF_LoadLibrary": "psp"},
    **{"TF_NewSessionOptions": "p", "TF_NewGraph": "p", "TF_GraphOperationByName": "pps"},
    "TF_LoadSessionFromSavedModel": "pppspippp",
    "TF_SessionRun": "vppppippipipp",
    **{"TF_AllocateTensor": "pipiz", "TF_TensorData": "pp", "TF_TensorType": "ip"},
    **{"TF_NumDims": "ip", "TF_Dim": "lpi", "TF_StringInit": "vp", "TF_StringCopy": "vpsz"},
    **{"TF_StringGetDataPointer": "pp", "TF_StringGetSize": "zp"},
}


class _Output(ctypes.Structure):
    """TF_Output: a tensor of the graph."""

    _fields_ = [("operation", c_void_p), ("index", c_int)]


class CError(ValueError):
    """An error of the library.

    Attributes:
      code: its number; 3 is INVALID_ARGUMENT.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def has_library() -> bool:
    """Returns whether the C library is where this module looks for it (on Linux)."""
    return all((_package("tensorflow") / name).is_file() for name in LIBRARIES)


def _package(name: str) -> pathlib.Path:
    """Returns the folder of an installed package, without loading the package."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise OSError(f"{name} is not installed.")
    return pathlib.Path(spec.submodule_search_locations[0])


class Library:
    """The C library in this process."""

    def __init__(self) -> None:
        for name in LIBRARIES:
            self._c = ctypes.CDLL(str(_package("tensorflow") / name), ctypes.RTLD_GLOBAL)
        for name, kinds in FUNCTIONS.items():
            function = getattr(self._c, name)
            function.restype, *function.argtypes = [TYPES[kind] for kind in kinds]

    def foreign_ops(self, ops: Sequence[str]) -> list[str]:
        """Returns which of these operations have a library of their own."""
        return sorted(set(ops) & set(OP_LIBRARIES))

    def load(self, job: dict[str, Any], foreign_ops: Sequence[str]) -> Callable:
        """Loads a SavedModel; returns a function of a signature's name and of inputs by name.

        It returns outputs by name, or an error's code and message. Strings are object arrays of
        bytes.

        Raises:
          CError: if it cannot be loaded.
        """
        for op in foreign_ops:
            path = str(_package("tensorflow_text") / OP_LIBRARIES[op]).encode()
            self._checked(self._c.TF_LoadLibrary, path)
        graph, options = self._c.TF_NewGraph(), self._c.TF_NewSessionOptions()
        session = self._checked(
            self._c.TF_LoadSessionFromSavedModel,
            *(options, None, job["folder"].encode(), (c_char_p * 1)(b"serve"), 1, graph, None),
        )

        def outputs_of(tensors: list[str]) -> Any:
            found = []
            for tensor in tensors:
                name, _, index = tensor.rpartition(":")
                operation = self._c.TF_GraphOperationByName(graph, name.encode())
                if not operation:
                    raise ValueError(f"The graph has no operation {name}.")
                found.append(_Output(operation, int(index)))
            return (_Output * len(found))(*found)

        def call(signature: str, inputs: dict[str, np.ndarray]) -> Any:
            of_input, of_output = job["signatures"][signature]
            feeds = outputs_of([of_input[name] for name in inputs])
            fetches = outputs_of(list(of_output.values()))
            given = (c_void_p * len(inputs))(*map(self._write, inputs.values()))
            made = (c_void_p * len(of_output))()
            try:
                self._checked(
                    self._c.TF_SessionRun,
                    *(session, None, feeds, given, len(inputs), fetches, made, len(of_output)),
                    *(None, 0, None),
                )
            except CError as error:
                return error.code, str(error)
            return {name: self._read(tensor) for name, tensor in zip(of_output, made, strict=True)}

        return call

    def _checked(self, function: Any, *arguments: Any) -> Any:
        """Calls a function whose last argument is a TF_Status."""
        status = self._c.TF_NewStatus()
        result = function(*arguments, status)
        if code := self._c.TF_GetCode(status):
            raise CError(code, self._c.TF_Message(status).decode(errors="replace"))
        return result

    def _write(self, value: np.ndarray) -> int:
        """Makes a TF_Tensor of an array."""
        dims, is_string = (c_int64 * value.ndim)(*value.shape), value.dtype == object
        number = STRING if is_string else next(n for n, t in DTYPES.items() if value.dtype == t)
        size = STRING_BYTES * value.size if is_string else value.nbytes
        tensor = self._c.TF_AllocateTensor(number, dims, value.ndim, size)
        start = self._c.TF_TensorData(tensor)
        if not is_string:
            ctypes.memmove(start, np.ascontiguousarray(value).tobytes(), size)
            return tensor
        for place, string in enumerate(value.ravel()):
            self._c.TF_StringInit(start + place * STRING_BYTES)
            self._c.TF_StringCopy(start + place * STRING_BYTES, string, len(string))
        return tensor

    def _read(self, tensor: int) -> np.ndarray:
        """Makes an array of a TF_Tensor."""
        shape = [self._c.TF_Dim(tensor, axis) for axis in range(self._c.TF_NumDims(tensor))]
        number, start = self._c.TF_TensorType(tensor), self._c.TF_TensorData(tensor)
        if number != STRING:
            dtype = np.dtype(DTYPES[number])
            size = math.prod(shape) * dtype.itemsize
            content = ctypes.string_at(start, size) if size else b""
            return np.frombuffer(content, dtype).reshape(shape)
        strings = np.empty(math.prod(shape), object)
        for place in range(strings.size):
            string = start + place * STRING_BYTES
            content = self._c.TF_StringGetDataPointer(string)
            strings[place] = ctypes.string_at(content, self._c.TF_StringGetSize(string))
        return strings.reshape(shape)
