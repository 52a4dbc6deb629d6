"""Atomic writing of files and folders, locks between processes, reading of JSON and text."""

import contextlib
import fcntl
import glob
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Collection, Iterator
from typing import IO, Any

from absl import logging

from bert_tf.system import bounded_files
from bert_tf.system.file_kinds import HEAD_BYTES, check_text
from bert_tf.system.printable import show
from bert_tf.system.temporaries import temporary

NEWLINE = b"\n"
MAX_DATA_BYTES = 256 << 20  # of one JSON document, of which memory must hold all


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "w") -> Iterator[IO]:
    """Opens a temporary file next to `path`, and renames it to `path` after the block succeeds.

    If the block raises, the temporary file is deleted and `path` stays unchanged. After a kill the
    next process that writes `path` deletes it.
    """
    path = pathlib.Path(path)
    if path.exists():  # A rename would replace a device, even /dev/null, by a file.
        bounded_files.check_regular(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    encoding = None if "b" in mode else "utf8"
    with temporary(path) as hidden:
        with hidden.open(mode, encoding=encoding) as file:
            yield file
            # On the disk before the rename: after a crash the path never has a part of the content.
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)


def real_path(path: str | os.PathLike) -> pathlib.Path:
    """Returns an absolute path with ~ expanded and links followed.

    Raises:
      ValueError: if a link leads to itself, or ~ names an unknown user.
    """
    try:
        return pathlib.Path(path).expanduser().resolve()
    except RuntimeError as error:
        raise ValueError(f"{path} is no path: {error}; correct it.") from None


def new_folder_path(folder: str | os.PathLike, remedy: str = "name a new folder") -> pathlib.Path:
    """Checks and returns the path of a new folder that will be renamed into place.

    ~ is expanded and links are followed, as a rename does neither. `remedy` ends the message for a
    folder that exists.

    Raises:
      ValueError: if the path exists, or is a mount point, which a rename cannot replace.
    """
    path = real_path(folder)
    if path.is_symlink():  # Python 3.13 resolves links that lead to themselves.
        raise ValueError(f"{path} is a link that leads nowhere; {remedy}.")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} already exists; {remedy}.")
    if path.is_mount():
        raise ValueError(
            f"{path} is a mount point, which a finished folder cannot replace; name a folder in it."
        )
    return path


@contextlib.contextmanager
def new_folder(folder: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a hidden folder, which is renamed to the new folder after the block succeeds.

    If the block raises, or the process is killed, the new folder does not appear. The next process
    that writes the same folder deletes the files of a killed one.

    Raises:
      ValueError: see `new_folder_path`, or if another process is writing the folder.
    """
    path = new_folder_path(folder)
    lock = exclusive(path.with_name(f".{path.name}.lock"), f"writing {path}", flag="output")
    with lock, temporary(path, is_folder=True) as hidden:
        # The folder has its final name from the start, because a model card contains it.
        inner = hidden / path.name
        inner.mkdir()
        yield inner
        inner.replace(path)


def check_writable(path: str | os.PathLike, flag: str) -> None:
    """Checks that a file can be written, before its content is computed.

    Raises:
      ValueError: naming the flag, if it is a folder, or its folder cannot be written.
    """
    path = pathlib.Path(path).expanduser()
    fault = output_fault(path)
    if path.is_dir():
        fault = "is a folder"
    if fault:
        raise ValueError(f"--{flag}={path} {fault}; name a file in a writable folder.")


def output_fault(path: str | os.PathLike) -> str:
    """Returns why a file or folder cannot be written at a path; "": it can. Nothing is created."""
    path = pathlib.Path(path).expanduser().absolute()
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            return "is neither a file nor a folder"
        folder = path if path.is_dir() else path.parent
        while not folder.exists():
            folder = folder.parent
        # Permissions do not show everything: the disk may be read-only.
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"cannot be written ({error.strerror})"


def cache_folder(output_dir: str | os.PathLike) -> pathlib.Path:
    """Returns the folder of prepared data that runs share: OUTPUT_DIR/../bert_tf_cache."""
    return pathlib.Path(os.path.normpath(pathlib.Path(output_dir, "..", "bert_tf_cache")))


@contextlib.contextmanager
def exclusive(path: str | os.PathLike, work: str = "", flag: str = "output_dir") -> Iterator[None]:
    """Locks a file during the block, and deletes it afterwards.

    The system releases the lock when a process ends in any way; the next process reuses its file.

    Args:
      work: the work of the process with the lock, for the message; "": waits until it ends.
      flag: the one by which the user can name another folder.

    Raises:
      ValueError: if the file cannot be written, or another process does this work.
    """
    path = pathlib.Path(path)
    while True:
        with _open_lock(path, flag) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if work:
                    raise ValueError(
                        f"Another process is {work}; wait until it has finished."
                    ) from None
                logging.info("Another process is using %s; waiting for it.", path.parent)
                fcntl.flock(file, fcntl.LOCK_EX)
            # The previous process may have deleted the file while this one waited for the lock.
            if _is_same(file, path):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)  # While locked: no other process can own it.
                return


def _open_lock(path: pathlib.Path, flag: str) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w")
    except OSError as error:
        raise ValueError(
            f"Cannot write in the folder {path.parent} ({error.strerror}); name a writable folder "
            f"with --{flag}."
        ) from error


def _is_same(file: IO[str], path: pathlib.Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    """Reads a JSON object from a file, within the limits of `bounded_files`.

    Raises:
      ValueError: if it is not JSON, not an object, too large, or not a regular file.
    """
    return as_object(bounded_files.parse_json(bounded_files.read_bytes(path), path), path)


def read_optional_json(path: str | os.PathLike) -> dict[str, Any]:
    """Reads a file as `read_json` does; {} if it does not exist."""
    return read_json(path) if pathlib.Path(path).exists() else {}


def read_json_data(path: str | os.PathLike) -> dict[str, Any]:
    """Reads a JSON object of at most `MAX_DATA_BYTES` and any number of values; see `read_json`."""
    text = _decoded(bounded_files.read_bytes(path, MAX_DATA_BYTES), path)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}.") from None
    return as_object(values, path)


def as_object(values: object, path: str | os.PathLike) -> dict[str, Any]:
    """Returns parsed JSON; raises ValueError if it is not an object."""
    if not isinstance(values, dict):
        raise ValueError(
            f"{path} must contain a JSON object, but contains a {type(values).__name__}."
        )
    return values


def write_json(path: str | os.PathLike, values: object) -> None:
    """Writes JSON atomically."""
    text = json.dumps(values, indent=2, ensure_ascii=False)
    try:
        text.encode("utf8")
    except UnicodeEncodeError:  # A file name that is not UTF-8.
        text = json.dumps(values, indent=2)
    with atomic_write(path) as file:
        file.write(f"{text}\n")


def json_field(
    values: dict[str, Any],
    key: str,
    kind: type,
    path: str | os.PathLike,
    *,
    nullable: bool = False,
    least: int | None = None,
    choices: Collection[str] | None = None,
    default: Any = None,
) -> Any:
    """Returns a field of a JSON object; `default` if it is missing, or null and `nullable`.

    The programs that write these files often distinguish null from a missing field, so null is an
    error by default. A boolean is not an int. `least` is the smallest number that is allowed,
    `choices` are all values that are.

    Raises:
      ValueError: naming the file `path`, if the field has another type than `kind`, or a value that
        is not allowed.
    """
    value: Any = values.get(key)
    if value is None and (nullable or key not in values):
        return default
    is_kind = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    if not is_kind or (choices is not None and value not in choices):
        shown = "null" if value is None else f"{value!r:.200}"
        expected = kind.__name__ if choices is None else f"one of {list(choices)}"
        raise ValueError(f"{path}: {key} is {shown}, expected {expected}.")
    if least is not None and value < least:
        raise ValueError(f"{path}: {key} is {value}, expected at least {least}.")
    return value


def read_lines(path: str | os.PathLike, *, is_bounded: bool = False) -> list[str]:
    """Reads the lines of a UTF-8 file; only a newline ends a line.

    Args:
      is_bounded: whether the limits of `bounded_files` apply, as for files of a model folder.

    Raises:
      ValueError: if it is not UTF-8, or exceeds the limits.
    """
    if is_bounded:
        content = bounded_files.read_bytes(path)
        bounded_files.check_lines(content, path)
    else:
        content = pathlib.Path(path).expanduser().read_bytes()
    # `splitlines` also splits at other characters, such as U+2028.
    return _decoded(content, path).removesuffix("\n").split("\n")


def _decoded(content: bytes, path: str | os.PathLike) -> str:
    """Decodes the content of a file; ValueError if it is not UTF-8 text."""
    check_text(content[:HEAD_BYTES], path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"{path}, line {1 + content.count(NEWLINE, 0, error.start)}"
        raise not_utf8(where, path, error) from None


def not_utf8(
    where: str, path: str | os.PathLike, error: UnicodeDecodeError, offset: int | None = None
) -> ValueError:
    """Returns the error for text in another encoding.

    `where` is the file, with the line if it is known; `offset` is that of the decoded bytes in the
    file, if known.
    """
    # CP1252 has all printable characters of Latin-1, and curly quotes instead of control
    # characters. UTF-16 has been refused by `check_text`.
    bad = error.object[error.start : error.start + 1]
    at = "" if offset is None else f" at offset {offset + error.start}"
    return ValueError(
        f"{where}: byte {bad!r}{at} is not UTF-8; convert the file, for instance: "
        f"iconv -f CP1252 -t UTF-8 {path} > new{pathlib.Path(path).suffix}"
    )


def matching_files(name: str, flag: str) -> list[str]:
    """Returns the files of a name or a glob, sorted; ~ is expanded.

    Raises:
      ValueError: naming the flag, if no file matches.
    """
    name = os.path.expanduser(name)  # noqa: PTH111
    # A name with [ or ? in it may also be that of a file.
    matches = sorted(filter(os.path.isfile, glob.glob(name)))  # noqa: PTH113, PTH207
    if not matches and pathlib.Path(name).is_file():
        matches = [name]
    if not matches:
        is_folder = pathlib.Path(name).is_dir()
        remedy = f"it is a folder: write {name}/*" if is_folder else "check the path"
        raise ValueError(f"{flag}: no file matches {name!r} ({remedy}; datasets: tfds:NAME).")
    return matches


def typed_lines(prompt: str) -> Iterator[str]:
    """Yields the lines of the terminal or of standard input, up to the first empty line."""
    if sys.stdin.isatty():
        show(prompt)
    for line in sys.stdin:
        if not line.strip():
            return
        yield line.strip()
