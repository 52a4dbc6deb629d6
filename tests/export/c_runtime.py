"""Answers requests to a SavedModel with TensorFlow's C library, as TensorFlow Serving does.

    python tests/export/c_runtime.py JOB ANSWERS

The process loads neither TensorFlow's Python nor this project: a model that answers here needs no
Python. The libraries are those of the wheels that belong to the interpreter: TensorFlow's, and of
tensorflow-text only those that the job names. Nothing is freed, as the process ends.

Reference: tensorflow/c/c_api.h, tf_tensor.h, tf_tstring.h.
"""

import ctypes
import importlib.util
import math
import pathlib
import pickle
import sys
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import numpy as np

LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
STRING = 7  # TF_STRING
STRING_BYTES = 24  # sizeof(TF_TString)
DTYPES = {1: np.float32, 3: np.int32, 9: np.int64, 10: np.bool_}
# The result of each function, then its arguments.
FUNCTIONS = {
    "TF_Version": [c_char_p],
    "TF_NewStatus": [c_void_p],
    "TF_GetCode": [c_int, c_void_p],
    "TF_Message": [c_char_p, c_void_p],
    "TF_LoadLibrary": [c_void_p, c_char_p, c_void_p],
    "TF_NewSessionOptions": [c_void_p],
    "TF_NewGraph": [c_void_p],
    "TF_GraphOperationByName": [c_void_p, c_void_p, c_char_p],
    "TF_LoadSessionFromSavedModel": [
        *(c_void_p, c_void_p, c_void_p, c_char_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p),
    ],
    "TF_SessionRun": [
        *(None, c_void_p, c_void_p),
        *(c_void_p, c_void_p, c_int),  # inputs
        *(c_void_p, c_void_p, c_int),  # outputs
        *(c_void_p, c_int, c_void_p, c_void_p),
    ],
    "TF_AllocateTensor": [c_void_p, c_int, c_void_p, c_int, c_size_t],
    "TF_TensorData": [c_void_p, c_void_p],
    "TF_TensorType": [c_int, c_void_p],
    "TF_NumDims": [c_int, c_void_p],
    "TF_Dim": [c_int64, c_void_p, c_int],
    "TF_StringInit": [None, c_void_p],
    "TF_StringCopy": [None, c_void_p, c_char_p, c_size_t],
    "TF_StringGetDataPointer": [c_void_p, c_void_p],
    "TF_StringGetSize": [c_size_t, c_void_p],
}


class Output(ctypes.Structure):
    """TF_Output: a tensor of the graph."""

    _fields_ = [("operation", c_void_p), ("index", c_int)]


class CError(Exception):
    """An error of the library: its code and its message."""


def package(name: str) -> pathlib.Path:
    """Returns the folder of an installed package, without importing the package."""
    return pathlib.Path(importlib.util.find_spec(name).submodule_search_locations[0])


class Model:
    """A SavedModel in a session of the C library.

    Args:
      folder: folder of a version.
      text_libraries: files of tensorflow-text with operations that the model needs.

    Raises:
      CError: if it cannot be loaded.
    """

    def __init__(self, folder: str, text_libraries: list[str]) -> None:
        for name in LIBRARIES:
            self.c = ctypes.CDLL(str(package("tensorflow") / name), ctypes.RTLD_GLOBAL)
        for name, (result, *arguments) in FUNCTIONS.items():
            function = getattr(self.c, name)
            function.restype = result
            function.argtypes = arguments
        for name in text_libraries:
            path = package("tensorflow_text") / "python/ops" / name
            self.checked(self.c.TF_LoadLibrary, str(path).encode())
        self.graph = self.c.TF_NewGraph()
        self.session = self.checked(
            self.c.TF_LoadSessionFromSavedModel,
            self.c.TF_NewSessionOptions(),
            None,
            folder.encode(),
            (c_char_p * 1)(b"serve"),
            1,
            self.graph,
            None,
        )

    def checked(self, function: Any, *arguments: Any) -> Any:
        """Calls a function whose last argument is a TF_Status."""
        status = self.c.TF_NewStatus()
        result = function(*arguments, status)
        if code := self.c.TF_GetCode(status):
            raise CError(code, self.c.TF_Message(status).decode(errors="replace"))
        return result

    def answer(
        self,
        inputs: dict[str, np.ndarray],
        input_tensors: dict[str, str],
        output_tensors: dict[str, str],
    ) -> dict[str, np.ndarray] | tuple[int, str]:
        """Returns the outputs by name, or the code and the message of an error.

        Args:
          inputs: arrays by name; strings are object arrays of bytes.
          input_tensors, output_tensors: names of the graph's tensors, such as "call:0", by the
            names of the signature.
        """
        feeds = self.find([input_tensors[name] for name in inputs])
        fetches = self.find(list(output_tensors.values()))
        given = (c_void_p * len(feeds))(*map(self.write, inputs.values()))
        made = (c_void_p * len(fetches))()
        feed = (feeds, given, len(feeds))
        fetch = (fetches, made, len(fetches))
        try:
            run = self.c.TF_SessionRun
            self.checked(run, self.session, None, *feed, *fetch, None, 0, None)
        except CError as error:
            return error.args
        return {name: self.read(made[index]) for index, name in enumerate(output_tensors)}

    def find(self, tensors: list[str]) -> Any:
        """Returns an array of TF_Outputs."""
        outputs = []
        for tensor in tensors:
            name, _, index = tensor.rpartition(":")
            operation = self.c.TF_GraphOperationByName(self.graph, name.encode())
            outputs.append(Output(operation, int(index)))
        return (Output * len(outputs))(*outputs)

    def write(self, value: np.ndarray) -> int:
        """Makes a TF_Tensor of an array."""
        dims = (c_int64 * value.ndim)(*value.shape)
        if value.dtype != object:
            number = next(number for number, dtype in DTYPES.items() if value.dtype == dtype)
            tensor = self.c.TF_AllocateTensor(number, dims, value.ndim, value.nbytes)
            ctypes.memmove(self.c.TF_TensorData(tensor), value.tobytes(), value.nbytes)
            return tensor
        size = STRING_BYTES * value.size
        tensor = self.c.TF_AllocateTensor(STRING, dims, value.ndim, size)
        start = self.c.TF_TensorData(tensor)
        for index, string in enumerate(value.ravel()):
            self.c.TF_StringInit(start + index * STRING_BYTES)
            self.c.TF_StringCopy(start + index * STRING_BYTES, string, len(string))
        return tensor

    def read(self, tensor: int) -> np.ndarray:
        """Makes an array of a TF_Tensor."""
        shape = [self.c.TF_Dim(tensor, axis) for axis in range(self.c.TF_NumDims(tensor))]
        size = math.prod(shape)
        number = self.c.TF_TensorType(tensor)
        start = self.c.TF_TensorData(tensor)
        if number != STRING:
            dtype = np.dtype(DTYPES[number])
            content = ctypes.string_at(start, size * dtype.itemsize) if size else b""
            return np.frombuffer(content, dtype).reshape(shape)
        strings = np.empty(size, object)
        for index in range(size):
            string = start + index * STRING_BYTES
            content = self.c.TF_StringGetDataPointer(string)
            strings[index] = ctypes.string_at(content, self.c.TF_StringGetSize(string))
        return strings.reshape(shape)


def main(job_file: str, answers_file: str) -> None:
    """Reads a job, and writes the library's version and an answer to each request."""
    job = pickle.loads(pathlib.Path(job_file).read_bytes())
    model = Model(job["folder"], job["text_libraries"])
    answers = [model.answer(*request) for request in job["requests"]]
    if "tensorflow" in sys.modules:
        raise RuntimeError("TensorFlow's Python was loaded.")
    version = model.c.TF_Version().decode()
    pathlib.Path(answers_file).write_bytes(pickle.dumps((version, answers)))


if __name__ == "__main__":
    main(*sys.argv[1:])
