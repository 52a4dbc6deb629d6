"""Runs a SavedModel in TensorFlow's C library, where TensorFlow Serving's own loader stands too.

Nothing of TensorFlow's Python is loaded: a model that runs here needs no Python.

    model = CModel(load_library(), "serving/sst2/1", signatures)
    model.run("serving_default", {"text": np.array([b"A fine film."], object)})["label"]

The libraries are those of the wheels: libtensorflow_cc.so.2, and for operations of tensorflow-text
one of its own. Also a program, started by `export.checks.run_apart`:

    python -P c_api.py JOBS ANSWERS

Reference: tensorflow/c/c_api.h, tf_tensor.h, tf_tstring.h.
"""

import ctypes
import importlib.util
import math
import pathlib
import pickle
import sys
import time
from collections.abc import Iterable
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import numpy as np

# name: (outputs, inputs); inputs and outputs are names of tensors by key.
Signatures = dict[str, tuple[dict[str, str], dict[str, str]]]

LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
OP_LIBRARIES = {"FastWordpieceTokenizeWithOffsets": "python/ops/_fast_wordpiece_tokenizer.so"}
TAG = b"serve"
STRING, STRING_BYTES = 7, 24  # TF_STRING, sizeof(TF_TString)
DTYPES = {1: np.float32, 2: np.float64, 3: np.int32, 9: np.int64, 10: np.bool_}


class Output(ctypes.Structure):
    """TF_Output: a tensor of the graph."""

    _fields_ = [("operation", c_void_p), ("index", c_int)]


# Result and arguments of each function; pointers to what only the library knows are void.
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "TF_NewStatus": (c_void_p, ()),
    "TF_GetCode": (c_int, (c_void_p,)),
    "TF_Message": (c_char_p, (c_void_p,)),
    "TF_DeleteStatus": (None, (c_void_p,)),
    "TF_LoadLibrary": (c_void_p, (c_char_p, c_void_p)),
    "TF_NewSessionOptions": (c_void_p, ()),
    "TF_DeleteSessionOptions": (None, (c_void_p,)),
    "TF_NewGraph": (c_void_p, ()),
    "TF_DeleteGraph": (None, (c_void_p,)),
    "TF_LoadSessionFromSavedModel": (
        c_void_p,
        (
            *(c_void_p, c_void_p, c_char_p, POINTER(c_char_p), c_int),
            *(c_void_p, c_void_p, c_void_p),
        ),
    ),
    "TF_GraphOperationByName": (c_void_p, (c_void_p, c_char_p)),
    "TF_SessionRun": (
        None,
        (
            *(c_void_p, c_void_p, POINTER(Output), POINTER(c_void_p), c_int),
            *(POINTER(Output), POINTER(c_void_p), c_int),
            *(c_void_p, c_int, c_void_p, c_void_p),
        ),
    ),
    "TF_DeleteSession": (None, (c_void_p, c_void_p)),
    "TF_AllocateTensor": (c_void_p, (c_int, POINTER(c_int64), c_int, c_size_t)),
    "TF_DeleteTensor": (None, (c_void_p,)),
    "TF_TensorData": (c_void_p, (c_void_p,)),
    "TF_TensorType": (c_int, (c_void_p,)),
    "TF_NumDims": (c_int, (c_void_p,)),
    "TF_Dim": (c_int64, (c_void_p, c_int)),
    "TF_StringInit": (None, (c_void_p,)),
    "TF_StringCopy": (None, (c_void_p, c_char_p, c_size_t)),
    "TF_StringGetDataPointer": (c_void_p, (c_void_p,)),
    "TF_StringGetSize": (c_size_t, (c_void_p,)),
    "TF_StringDealloc": (None, (c_void_p,)),
}


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


def load_library(ops: Iterable[str] = ()) -> ctypes.CDLL:
    """Loads the C library into this process, and what brings operations that it lacks.

    Args:
      ops: names of operations; of them those in `OP_LIBRARIES` are brought.
    """
    for name in LIBRARIES:
        library = ctypes.CDLL(str(_package("tensorflow") / name), ctypes.RTLD_GLOBAL)
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    for op in sorted(set(ops) & set(OP_LIBRARIES)):
        path = _package("tensorflow_text") / OP_LIBRARIES[op]
        with _Status(library) as status:
            library.TF_LoadLibrary(str(path).encode(), status)
    return library


def _package(name: str) -> pathlib.Path:
    """Returns the folder of an installed package, without loading the package."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise OSError(f"{name} is not installed.")
    return pathlib.Path(spec.submodule_search_locations[0])


class _Status:
    """A TF_Status; at the end of the block an error in it is raised."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library, self._status = library, library.TF_NewStatus()

    def __enter__(self) -> int:
        return self._status

    def __exit__(self, kind: type | None, *_: object) -> None:
        code = self._library.TF_GetCode(self._status)
        message = self._library.TF_Message(self._status)
        self._library.TF_DeleteStatus(self._status)
        if code and kind is None:
            raise CError(code, message.decode(errors="replace"))


class CModel:
    """A loaded SavedModel.

    Args:
      library: of `load_library`.
      folder: of the SavedModel.
      signatures: names of tensors in the graph.

    Raises:
      CError: if it cannot be loaded.
    """

    def __init__(self, library: ctypes.CDLL, folder: str, signatures: Signatures) -> None:
        self._library, self._signatures = library, signatures
        self._graph = library.TF_NewGraph()
        options = library.TF_NewSessionOptions()
        tags = (c_char_p * 1)(TAG)
        try:
            with _Status(library) as status:
                self._session = library.TF_LoadSessionFromSavedModel(
                    options, None, folder.encode(), tags, 1, self._graph, None, status
                )
        except CError:
            library.TF_DeleteGraph(self._graph)
            raise
        finally:
            library.TF_DeleteSessionOptions(options)

    def close(self) -> None:
        """Frees the model."""
        with _Status(self._library) as status:
            self._library.TF_DeleteSession(self._session, status)
        self._library.TF_DeleteGraph(self._graph)

    def run(self, signature: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature.

        Args:
          signature: its name.
          inputs: by name; strings as object arrays of bytes.

        Raises:
          CError: as the model does.
        """
        of_input, of_output = self._signatures[signature]
        names = sorted(of_output)
        feeds = (Output * len(inputs))(*(self._find(of_input[name]) for name in inputs))
        fetches = (Output * len(names))(*(self._find(of_output[name]) for name in names))
        given = (c_void_p * len(inputs))(*(self._write(value) for value in inputs.values()))
        made = (c_void_p * len(names))()
        try:
            with _Status(self._library) as status:
                self._library.TF_SessionRun(
                    *(self._session, None, feeds, given, len(inputs)),
                    *(fetches, made, len(names), None, 0, None, status),
                )
            return {name: self._read(tensor) for name, tensor in zip(names, made, strict=True)}
        finally:
            for tensor, value in zip(given, inputs.values(), strict=True):
                self._free_strings(tensor, value)
            for tensor in filter(None, (*given, *made)):
                self._library.TF_DeleteTensor(tensor)

    def _find(self, tensor: str) -> Output:
        name, _, index = tensor.rpartition(":")
        operation = self._library.TF_GraphOperationByName(self._graph, name.encode())
        if not operation:
            raise ValueError(f"The graph has no operation {name}.")
        return Output(operation, int(index))

    def _write(self, value: np.ndarray) -> int:
        """Makes a TF_Tensor of an array."""
        library, dims = self._library, (c_int64 * value.ndim)(*value.shape)
        if value.dtype != object:
            number = next(n for n, dtype in DTYPES.items() if value.dtype == dtype)
            tensor = library.TF_AllocateTensor(number, dims, value.ndim, value.nbytes)
            content = np.ascontiguousarray(value).tobytes()
            ctypes.memmove(library.TF_TensorData(tensor), content, value.nbytes)
            return tensor
        size = STRING_BYTES * value.size
        tensor = library.TF_AllocateTensor(STRING, dims, value.ndim, size)
        start = library.TF_TensorData(tensor)
        for place, string in enumerate(value.ravel()):
            library.TF_StringInit(start + place * STRING_BYTES)
            library.TF_StringCopy(start + place * STRING_BYTES, string, len(string))
        return tensor

    def _free_strings(self, tensor: int, value: np.ndarray) -> None:
        """Frees the content of strings, which stands outside of the tensor."""
        if value.dtype == object:
            start = self._library.TF_TensorData(tensor)
            for place in range(value.size):
                self._library.TF_StringDealloc(start + place * STRING_BYTES)

    def _read(self, tensor: int) -> np.ndarray:
        """Makes an array of a TF_Tensor."""
        library = self._library
        shape = [library.TF_Dim(tensor, axis) for axis in range(library.TF_NumDims(tensor))]
        number, start = library.TF_TensorType(tensor), library.TF_TensorData(tensor)
        if number != STRING:
            dtype = np.dtype(DTYPES[number])
            size = math.prod(shape) * dtype.itemsize
            content = ctypes.string_at(start, size) if size else b""
            return np.frombuffer(content, dtype).reshape(shape)
        strings = np.empty(math.prod(shape), object)
        for place in range(strings.size):
            string = start + place * STRING_BYTES
            content = library.TF_StringGetDataPointer(string)
            strings[place] = ctypes.string_at(content, library.TF_StringGetSize(string))
        return strings.reshape(shape)


def run_job(library: ctypes.CDLL, job: dict[str, Any]) -> dict[str, Any]:
    """Loads one model and runs its requests; as `run_job` of `export.checks.fresh_process`."""
    start = time.perf_counter()
    try:
        model = CModel(library, job["folder"], job["signatures"])
    except CError as error:
        return {"error": str(error)}
    loaded = time.perf_counter()
    answers: list[Any] = []
    first_seconds = 0.0
    for signature, inputs in job["requests"]:
        try:
            answers.append(model.run(signature, inputs))
        except CError as error:
            answers.append((error.code, str(error)))
        first_seconds = first_seconds or time.perf_counter() - loaded
    model.close()
    return {"load_seconds": loaded - start, "first_seconds": first_seconds, "answers": answers}


def main(jobs_file: str, answers_file: str) -> None:
    """Reads jobs, runs them in order and writes what came of each."""
    jobs = pickle.loads(pathlib.Path(jobs_file).read_bytes())
    results = [run_job(load_library(job["ops"]), job) for job in jobs]
    if "tensorflow" in sys.modules:
        raise RuntimeError("TensorFlow's Python was loaded.")
    pathlib.Path(answers_file).write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
