"""Reads a pytorch_model.bin as NumPy arrays, without torch and without running its contents.

Since torch 1.6 such a file is a zip: STEM/data.pkl is a pickle of the state dict, in which each
tensor names one of STEM/data/0, STEM/data/1, ..., where the numbers are. Older files are five
pickles in a row (magic number, protocol, facts of the machine, state dict, keys of the storages)
and then, for each key, the number of elements as int64 and the elements.

Unpickling calls whatever a pickle names, so `_Unpickler` imports nothing: a name that torch writes
becomes a `_Name`, and any other is refused. It is a subclass of the standard library's unpickler
in Python, because the one in C crashes the process at a key of deeply nested tuples, and fills the
memory at one large index.

Reference: torch/serialization.py, torch/_utils.py, Lib/pickle.py.
"""

import contextlib
import dataclasses
import io
import os
import pathlib
import pickle
import zipfile
from collections.abc import Callable, Iterator
from typing import IO, Any, NoReturn

import numpy as np

from bert_tf.system.bounded_files import open_zip

# By the names in the pickle. NumPy has no bfloat16: its bits are read, then widened.
DTYPES = {
    "torch.FloatStorage": "<f4",
    "torch.HalfStorage": "<f2",
    "torch.BFloat16Storage": "<u2",
    "torch.DoubleStorage": "<f8",
    "torch.LongStorage": "<i8",
    "torch.IntStorage": "<i4",
    "torch.ShortStorage": "<i2",
    "torch.CharStorage": "i1",
    "torch.ByteStorage": "u1",
    "torch.BoolStorage": "u1",
}
ORDERED_DICT = "collections.OrderedDict"
TENSOR = "torch._utils._rebuild_tensor_v2"
TENSOR_V1 = "torch._utils._rebuild_tensor"  # before torch 0.4
PARAMETER = "torch._utils._rebuild_parameter"
KNOWN_NAMES = {ORDERED_DICT, TENSOR, TENSOR_V1, PARAMETER, *DTYPES}

# Opcodes that torch writes; see Lib/pickle.py.
OPCODES = b"".join(
    (
        *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK),
        *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
        *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.BINFLOAT),
        *(pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.BINUNICODE8),
        *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
        *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS),
        *(pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS),
        *(pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE, pickle.BINGET, pickle.LONG_BINGET),
        *(pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.REDUCE, pickle.BINPERSID, pickle.BUILD),
    )
)

# BERT-large needs 60 KB. Each byte may take a microsecond and become a container of 100 bytes.
MAX_PICKLE_BYTES = 4 << 20
MAX_DIMENSIONS = 32

ZIP_START = b"PK\x03\x04"
OLD_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
OLD_MAGIC_BYTES = OLD_MAGIC_NUMBER.to_bytes(10, "little")
OLD_MAGIC_END = 32  # It is pickled before this byte by every protocol.
OLD_PROTOCOL = 1001
GIT_LFS_START = b"version https://git-lfs"
HOW_TO_CONVERT = (
    "Expected a file written by torch.save(model.state_dict(), path). If you "
    "trust its source, convert it where torch is installed: "
    "safetensors.torch.save_file({name: value.clone() for name, value in torch.load(path, "
    "weights_only=True).items()}, 'model.safetensors'), or load the model in transformers and call "
    "model.save_pretrained(folder, safe_serialization=True)."
)
# A damaged file may hold names of megabytes.
MAX_REASON_LENGTH = 500


@dataclasses.dataclass(frozen=True)
class _Name:
    """A class or function that the pickle names; it stays a name."""

    name: str


@dataclasses.dataclass(frozen=True)
class _Storage:
    """The numbers of one or more tensors: an entry of the zip."""

    kind: str
    key: str
    size: int


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """A view of a storage; offset and strides count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_torch_weights(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads the tensors of a state dict by name, in the order of the file.

    The arrays are read-only views, as the tensors were: tied weights share memory, and transposed
    or expanded ones have their strides. bfloat16 becomes float32; other types stay.

    Raises:
      ValueError: if the file is damaged, of another form, or holds or asks for anything but tensors
        of those types; with the reason and how to convert it.
      OSError: if there is no such file.
    """
    path = pathlib.Path(path)
    with path.open("rb") as file, _explained(path):
        if OLD_MAGIC_BYTES in file.peek(OLD_MAGIC_END)[:OLD_MAGIC_END]:
            return _read_old_file(file)
        with _open_zip(path, file) as zipped:
            return _read_archive(zipped)


@contextlib.contextmanager
def _explained(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    # The bytes decide which error of zipfile, pickle or NumPy a damaged file leads to.
    except Exception as error:
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        # EOFError has no text.
        reason = f"{kind}{str(error) or 'its pickle is cut short'}"[:MAX_REASON_LENGTH].rstrip(".")
        raise ValueError(f"{path} cannot be read: {reason}. {HOW_TO_CONVERT}") from error


@contextlib.contextmanager
def _open_zip(path: pathlib.Path, file: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Opens the zip file and checks its table of contents."""
    start = file.read(len(GIT_LFS_START))
    if start == GIT_LFS_START:
        raise ValueError("it is a git-lfs pointer; `git lfs pull` downloads the file itself")
    if not start.startswith(ZIP_START):
        raise ValueError(f"it is not a zip file: it begins with {start[:8]!r}")
    with contextlib.ExitStack() as stack:
        try:
            zipped = stack.enter_context(open_zip(path, file))
        except Exception as error:  # of many kinds, as above
            raise ValueError(
                f"it begins as a zip file, but is cut short or damaged ({error})"
            ) from None
        _check_entries(zipped.infolist(), os.fstat(file.fileno()).st_size)
        yield zipped


def _check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    """Raises ValueError for entries that are compressed, or claim more than the file's size."""
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
            raise ValueError(f"{entry.filename!r} in it is compressed, but torch does not compress")
    # Entries that share bytes would let a small file fill the memory.
    claimed = sum(entry.file_size for entry in entries)
    if claimed > size:
        raise ValueError(f"its entries claim {claimed} bytes, but the whole file has {size}")


def _read_archive(zipped: zipfile.ZipFile) -> dict[str, np.ndarray]:
    """Reads the zip file that torch writes since 1.6."""
    names = zipped.namelist()
    pickles = [name for name in names if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise ValueError(f"expected one data.pkl in it, received {len(pickles)}")
    # Everything is in one folder: the stem of the path under which the file was first written.
    folder = pickles[0].split("/")[0]

    def read(name: str, most: int | None = None) -> bytes:
        """Returns the bytes of an entry; zipfile compares the checksum."""
        entry = zipped.getinfo(f"{folder}/{name}")
        if most is not None and entry.file_size > most:
            raise ValueError(f"{name} in it has {entry.file_size} bytes, expected at most {most}")
        return zipped.read(entry)

    if f"{folder}/byteorder" in names:  # since torch 2.1; little before
        order = read("byteorder", most=16)
        if order != b"little":
            raise ValueError(f"its byte order is {order!r}, expected b'little'")
    state_dict = _Unpickler(io.BytesIO(read("data.pkl", MAX_PICKLE_BYTES))).load()
    return _views(state_dict, lambda storage: read(f"data/{storage.key}"))


def _read_old_file(file: IO[bytes]) -> dict[str, np.ndarray]:
    """Reads the file that torch wrote before 1.6: pickles, then the storages. No checksums."""
    pickles = io.BytesIO(file.read(MAX_PICKLE_BYTES))
    magic_number = _Unpickler(pickles).load()
    protocol = _Unpickler(pickles).load()
    machine = _Unpickler(pickles).load()
    if (magic_number, protocol) != (OLD_MAGIC_NUMBER, OLD_PROTOCOL):
        raise ValueError(f"its protocol is {protocol!r}, expected {OLD_PROTOCOL}")
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise ValueError("it was written on a machine with another byte order")
    unpickler = _Unpickler(pickles)
    state_dict = unpickler.load()
    keys = _Unpickler(pickles).load()
    if not isinstance(keys, list):
        raise ValueError(f"its list of storages is {_kind(type(keys))}, expected list")
    starts = _find_storages(file, keys, unpickler.storages, pickles.tell())

    def read(storage: _Storage) -> bytes:
        file.seek(starts[storage.key])
        return file.read(storage.size * np.dtype(DTYPES[storage.kind]).itemsize)

    return _views(state_dict, read)


def _find_storages(
    file: IO[bytes], keys: list[Any], storages: dict[str, _Storage], position: int
) -> dict[str, int]:
    """Returns where the elements of each storage begin, as byte of the file."""
    size = os.fstat(file.fileno()).st_size
    starts = {}
    for key in keys:
        storage = storages.get(key) if isinstance(key, str) else None
        if storage is None:
            raise ValueError(f"no tensor uses its storage {key!r}")
        file.seek(position)
        count = int.from_bytes(file.read(8), "little")
        if count != storage.size:
            raise ValueError(f"storage {key!r} has {count} elements, expected {storage.size}")
        starts[key] = position + 8
        position += 8 + count * np.dtype(DTYPES[storage.kind]).itemsize
        if position > size:
            raise ValueError(f"it is cut short: storage {key!r} ends beyond its {size} bytes")
    return starts


def _views(state_dict: object, read: Callable[[_Storage], bytes]) -> dict[str, np.ndarray]:
    """Returns the tensors of a state dict as views of storages, each of which is read once."""
    storages: dict[str, tuple[_Storage, np.ndarray]] = {}
    views = {}
    for name, tensor in _tensors_of(state_dict).items():
        storage = tensor.storage
        if storage.key not in storages:
            storages[storage.key] = storage, _numbers_of(storage, read(storage))
        known, numbers = storages[storage.key]
        if storage != known:
            raise ValueError(f"one storage is used as {known} and as {storage}")
        views[name] = _view(tensor, numbers)
    return views


def _view(tensor: _Tensor, numbers: np.ndarray) -> np.ndarray:
    """Returns a tensor as a read-only view of its storage."""
    # No element is read, so offset and strides do not matter.
    if 0 in tensor.shape:
        return np.empty(tensor.shape, numbers.dtype)
    sides = zip(tensor.shape, tensor.strides, strict=True)
    # The index of the last element: a view beyond the storage would read other memory.
    last = tensor.offset + sum((size - 1) * stride for size, stride in sides)
    if last >= len(numbers):
        raise ValueError(
            f"a tensor of shape {list(tensor.shape)} needs element {last} of storage "
            f"{tensor.storage.key!r}, which has {len(numbers)}"
        )
    width = numbers.itemsize
    strides = [stride * width for stride in tensor.strides]
    return np.ndarray(tensor.shape, numbers.dtype, numbers, tensor.offset * width, strides)


def _numbers_of(storage: _Storage, content: bytes) -> np.ndarray:
    """Returns the elements of a storage, read-only."""
    numbers = np.frombuffer(content, DTYPES[storage.kind])
    if len(numbers) != storage.size:
        raise ValueError(
            f"storage {storage.key!r} has {len(numbers)} elements of {storage.kind}, expected "
            f"{storage.size}"
        )
    if storage.kind == "torch.BoolStorage":
        numbers = numbers != 0
    if storage.kind == "torch.BFloat16Storage":
        # bfloat16 is the upper half of a float32.
        bits = numbers.astype("<u4")
        bits <<= 16
        numbers = bits.view("<f4")
    numbers.flags.writeable = False
    return numbers


def _tensors_of(value: object) -> dict[str, _Tensor]:
    """Returns the state dict, checked to be one."""
    if not isinstance(value, dict):
        raise ValueError(f"expected a dict of tensors in it, received {_kind(type(value))}")
    for name, tensor in value.items():
        if isinstance(tensor, dict):
            raise ValueError(f"{name!r} in it is a dict: the state dict must not be inside another")
        if not isinstance(tensor, _Tensor):
            raise ValueError(f"{name!r} in it is {_kind(type(tensor))}, expected a tensor")
    return value


def _kind(kind: type) -> str:
    """Returns a name for messages: dict, str, tensor, storage, ..."""
    return kind.__name__.strip("_").lower()


class _Dict(dict):
    """A dict with names of tensors as keys; it ignores the attributes that torch adds to it."""

    def __setitem__(self, key: object, value: object) -> None:
        # Computing the hash of deeply nested tuples would overflow the stack of the process.
        if type(key) is not str:
            raise ValueError(f"a dict in it has a key of type {_kind(type(key))}, expected str")
        super().__setitem__(key, value)


class _Opcodes(dict):
    """The methods of an unpickler by opcode."""

    def __missing__(self, code: int) -> NoReturn:
        raise ValueError(f"its pickle has the opcode {bytes([code])!r}, which torch does not write")


class _Unpickler(pickle._Unpickler):
    """Reads the next pickle of a file; names, storages and tensors become descriptions.

    Attributes:
      stack: the values since the last mark; an attribute of the base class.
      storages: those that tensors use, by key.
    """

    stack: list[Any]
    dispatch = _Opcodes({code: pickle._Unpickler.dispatch[code] for code in OPCODES})

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> _Name:
        if f"{module}.{name}" not in KNOWN_NAMES:
            raise ValueError(
                f"it asks for '{module}.{name}', expected nothing but tensors of common types"
            )
        return _Name(f"{module}.{name}")

    def persistent_load(self, pid: object) -> _Storage:
        storage = _storage_of(pid)
        self.storages[storage.key] = storage
        return storage

    def load_empty_dictionary(self) -> None:
        self.stack.append(_Dict())

    dispatch[pickle.EMPTY_DICT[0]] = load_empty_dictionary

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        callee = self.stack.pop()
        if not isinstance(callee, _Name):
            raise ValueError(f"its pickle calls {_kind(type(callee))}, expected a name")
        self.stack.append(_made_by(callee.name, arguments))

    dispatch[pickle.REDUCE[0]] = load_reduce

    def load_build(self) -> None:
        """Drops the versions of the layers, which torch writes as attributes of the state dict."""
        self.stack.pop()
        if not isinstance(self.stack[-1], _Dict):
            kind = _kind(type(self.stack[-1]))
            raise ValueError(f"its pickle sets attributes of {kind}, expected dict")

    dispatch[pickle.BUILD[0]] = load_build


def _storage_of(description: object) -> _Storage:
    """Returns the storage that ("storage", class, key, device, number of elements) describes.

    Before torch 1.6 there is a sixth item, None unless the storage is part of another one.
    """
    match description:
        case ("storage", _Name(kind), str(key), str(), int(size), *rest):
            if kind in DTYPES and rest in ([], [None]):
                return _Storage(kind, key, size)
    raise ValueError("its pickle describes a storage in a way that torch does not")


def _made_by(callee: str, arguments: object) -> _Dict | _Tensor:
    """Returns the description of a call's result."""
    match arguments:
        case () if callee == ORDERED_DICT:
            return _Dict()
        case (_Tensor() as tensor, _, _) if callee == PARAMETER:
            return tensor
        # A seventh argument would say that the numbers are to be negated or conjugated.
        case (_Storage() as storage, start, tuple(shape), tuple(strides), _, _) if callee == TENSOR:
            if view := _tensor_of(storage, start, shape, strides):
                return view
        case (_Storage() as storage, start, tuple(shape), tuple(strides)) if callee == TENSOR_V1:
            if view := _tensor_of(storage, start, shape, strides):
                return view
    raise ValueError(f"its pickle calls {callee!r} with other arguments than torch writes")


def _tensor_of(storage: _Storage, start: object, shape: tuple, strides: tuple) -> _Tensor | None:
    """Returns a view of a storage; None if offset, shape or strides cannot be one."""
    if len(shape) != len(strides) or len(shape) > MAX_DIMENSIONS:
        return None
    # Not by isinstance: True is an int as well.
    if type(start) is not int or start < 0:
        return None
    for index in (*shape, *strides):
        if type(index) is not int or index < 0:
            return None
    return _Tensor(storage, start, shape, strides)
