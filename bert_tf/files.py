"""Files that are either whole or absent: written to a temporary name, then renamed; JSON files."""

import contextlib
import fcntl
import json
import os
import pathlib
import uuid
from collections.abc import Iterator
from typing import IO, Any


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "w") -> Iterator[IO]:
    """Opens a temporary file beside `path` and renames it to `path` when the block ends well.

    If the block raises, the temporary file is deleted and whatever `path` held stays.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not the process id alone: hosts that share a folder may use the same one.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    encoding = None if "b" in mode else "utf8"
    try:
        with temporary.open(mode, encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def exclusive(path: str | os.PathLike) -> Iterator[bool]:
    """Locks a file, made if missing, and yields whether that worked: false if another has it.

    The system frees the lock of a process that ends, however it ends.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = True
        except BlockingIOError:
            is_ours = False
        yield is_ours


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    """Reads a file that holds one JSON object.

    Raises:
      ValueError: if it is no JSON, or something else than an object.
    """
    try:
        values = json.loads(pathlib.Path(path).read_text(encoding="utf8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}.") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds no JSON object but a {type(values).__name__}.")
    return values


def json_field(values: dict[str, Any], key: str, kind: type, path: str | os.PathLike) -> Any:
    """Returns a field of a JSON object; None if it is missing or null.

    Raises:
      ValueError: if it is of another kind.
    """
    value = values.get(key)
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"{path}: {key} is {value!r}, expected a {kind.__name__}.")
    return value


def read_lines(path: str | os.PathLike) -> list[str]:
    """Reads the lines of a UTF-8 file; only a newline ends one.

    Raises:
      ValueError: if it is not UTF-8.
    """
    try:
        text = pathlib.Path(path).read_bytes().decode("utf8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}.") from None
    return text.removesuffix("\n").split("\n")
