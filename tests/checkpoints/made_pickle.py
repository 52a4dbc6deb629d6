"""Files of torch.save, assembled instruction by instruction, so that lies can be told."""

import pathlib
import pickle
import struct
import zipfile

REBUILD = "torch._utils._rebuild_tensor_v2"
FLOATS = {"0": struct.pack("<6f", *range(6))}


def text(value: str) -> bytes:
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def number(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    encoded = pickle.encode_long(value)
    return b"\x8a" + bytes([len(encoded)]) + encoded


def tuple_of(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def numbers(*values: int) -> bytes:
    return tuple_of(*map(number, values))


def name(dotted: str) -> bytes:
    module, last = dotted.rsplit(".", 1)
    return f"c{module}\n{last}\n".encode()


def call(dotted: str, *arguments: bytes) -> bytes:
    return name(dotted) + tuple_of(*arguments) + b"R"


EMPTY = call("collections.OrderedDict")


def storage(size: int, kind: str = "torch.FloatStorage", key: str = "0") -> bytes:
    described = tuple_of(text("storage"), name(kind), text(key), text("cpu"), number(size))
    return described + b"Q"


def tensor(stored: bytes, shape: tuple, strides: tuple, offset: int = 0) -> bytes:
    view = (number(offset), numbers(*shape), numbers(*strides))
    return call(REBUILD, stored, *view, b"\x89", EMPTY)


def state_dict(items: dict[str, bytes]) -> bytes:
    pairs = b"".join(text(key) + value for key, value in items.items())
    return b"\x80\x02" + EMPTY + b"(" + pairs + b"u."


SIX = state_dict({"a": tensor(storage(6), (6,), (1,))})


def write(
    path: pathlib.Path, pickled: bytes = SIX, storages: dict = FLOATS, **others: bytes
) -> pathlib.Path:
    entries = {"data.pkl": pickled, "version": b"3\n", "byteorder": b"little"} | others
    entries |= {f"data/{key}": content for key, content in storages.items()}
    with zipfile.ZipFile(path, "w") as zipped:
        for entry, content in entries.items():
            zipped.writestr(f"model/{entry}", content)
    return path


class Hostile:
    """Makes a file as it is unpickled."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def __reduce__(self):
        return exec, (f"open({str(self.path)!r}, 'w').close()",)
