"""Writes files whole or not at all, locks between processes, reads JSON and text files."""

import contextlib
import fcntl
import glob
import json
import os
import pathlib
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator
from typing import IO, Any

from absl import logging

from bert_tf import bounded_files
from bert_tf.printable import show

NEWLINE = b"\n"


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "w") -> Iterator[IO]:
    """Opens a temporary file beside `path` and renames it to `path` when the block ends well.

    If the block raises, the temporary file is deleted and `path` stays unchanged.
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


def place_for(folder: str | os.PathLike, remedy: str = "name a new folder") -> pathlib.Path:
    """Returns where a new folder will stand that is made beside it and renamed when it is whole.

    Args:
      folder: its path; ~ is expanded and links are followed, for a rename does neither.
      remedy: what to do if it exists.

    Raises:
      ValueError: if something is there already, or a mount point, to which nothing can be renamed.
    """
    path = pathlib.Path(folder).expanduser().resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} exists already; {remedy}.")
    if path.is_mount():
        raise ValueError(
            f"{path} is a mount point, where no folder can appear whole; name a new folder in it."
        )
    return path


@contextlib.contextmanager
def new_folder(folder: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a hidden folder, which is renamed to the new folder when the block ends well.

    If the block raises, or the process is killed, the new folder does not appear. Remains
    of a killed process are deleted by the next one that writes the same folder.

    Args:
      folder: its path; the hidden one has the same name, in another folder.

    Raises:
      ValueError: see `place_for`, or if another process is writing the folder.
    """
    path = place_for(folder)
    with exclusive(path.with_name(f".{path.name}.lock"), flag="output") as is_ours:
        if not is_ours:
            raise ValueError(f"Another process is writing {path}; wait until it ends.")
        for remains in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            shutil.rmtree(remains, ignore_errors=True)
        hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            inner = hidden / path.name
            inner.mkdir(parents=True)
            yield inner
            inner.replace(path)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)


def check_writable(path: str | os.PathLike, flag: str) -> None:
    """Finds out whether a file can be written, before the hours that make its content.

    Raises:
      ValueError: naming the flag, if it is a folder, or its folder cannot be written.
    """
    path = pathlib.Path(path).expanduser()
    reason = "is a folder"
    if not path.is_dir():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path.parent):
                return
        except OSError as error:
            reason = f"cannot be written ({error.strerror})"
    raise ValueError(f"--{flag}={path} {reason}; name a file in a writable folder.")


def cache_folder(output_dir: str | os.PathLike) -> pathlib.Path:
    """Returns where runs beside each other share prepared data: OUTPUT_DIR/../bert_tf_cache."""
    return pathlib.Path(os.path.normpath(pathlib.Path(output_dir, "..", "bert_tf_cache")))


@contextlib.contextmanager
def exclusive(
    path: str | os.PathLike, waits: bool = False, flag: str = "output_dir"
) -> Iterator[bool]:
    """Locks a file and yields whether it succeeded; the file is deleted when the block ends.

    The system releases the lock when a process ends in any way; the next process reuses its file.

    Args:
      path: the lock file; its folder is made.
      waits: whether to wait while another process has the lock. If not, yields false then.
      flag: what the user passes to name another folder.

    Raises:
      ValueError: if the file cannot be written.
    """
    path = pathlib.Path(path)
    while True:
        with _open_lock(path, flag) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not waits:
                    yield False
                    return
                logging.info("Another process is using %s; waiting for it.", path.parent)
                fcntl.flock(file, fcntl.LOCK_EX)
            if _is_same(file, path):  # else its holder deleted it while we waited
                try:
                    yield True
                finally:
                    path.unlink(missing_ok=True)  # before the lock is freed, so that it is ours
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
    """Reads a file that holds one JSON object, within the limits of `bounded_files`.

    Raises:
      ValueError: if it is not JSON, not an object, too large, or not a regular file.
    """
    return as_object(bounded_files.parse_json(bounded_files.read_bytes(path), path), path)


def read_optional_json(path: str | os.PathLike) -> dict[str, Any]:
    """Reads a file as `read_json` does; {} if it does not exist."""
    return read_json(path) if pathlib.Path(path).exists() else {}


def read_json_data(path: str | os.PathLike) -> dict[str, Any]:
    """Reads data that are one JSON object, of any size, from a pipe as well.

    Raises:
      ValueError: if it is not JSON, or not an object.
    """
    try:
        values = json.loads(pathlib.Path(path).expanduser().read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}.") from None
    return as_object(values, path)


def as_object(values: Any, path: str | os.PathLike) -> dict[str, Any]:
    """Returns parsed JSON.

    Raises:
      ValueError: if it is not an object.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a JSON object, but holds a {type(values).__name__}.")
    return values


def write_json(path: str | os.PathLike, values: Any) -> None:
    """Writes JSON whole or not at all."""
    text = json.dumps(values, indent=2, ensure_ascii=False)
    try:
        text.encode("utf8")
    except UnicodeEncodeError:  # The name of a file that is not UTF-8.
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
) -> Any:
    """Returns a field of a JSON object; None if it is missing.

    Args:
      values: the object.
      key: name of the field.
      kind: its type; a boolean is not an int.
      path: of the file, for messages.
      nullable: whether null means the same as a missing field. Programs that write these files
        often treat the two differently, so null is an error by default.

    Raises:
      ValueError: if it has another type.
    """
    if key not in values:
        return None
    value = values[key]
    if value is None and nullable:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        shown = "null" if value is None else f"{value!r:.200}"
        raise ValueError(f"{path}: {key} is {shown}, expected a {kind.__name__}.")
    return value


def read_lines(path: str | os.PathLike, *, is_bounded: bool = False) -> list[str]:
    """Reads the lines of a UTF-8 file; only a newline ends one.

    Args:
      path: of the file.
      is_bounded: whether the limits of `bounded_files` apply: for files of a model folder.

    Raises:
      ValueError: if it is not UTF-8, or beyond the limits.
    """
    if is_bounded:
        content = bounded_files.read_bytes(path)
        bounded_files.check_lines(content, path)
    else:
        content = pathlib.Path(path).expanduser().read_bytes()
    try:
        text = content.decode("utf8")
    except UnicodeDecodeError as error:
        where = f"{path}, line {1 + content.count(NEWLINE, 0, error.start)}"
        raise not_utf8(where, path, error) from None
    return text.removesuffix("\n").split("\n")


def not_utf8(
    where: str, path: str | os.PathLike, error: UnicodeDecodeError, offset: int | None = None
) -> ValueError:
    """Returns the error for text in another encoding.

    Args:
      where: the file, with the line as far as it is known.
      path: the file.
      error: the decoding error.
      offset: offset of the decoded bytes in the file, if known.
    """
    # Windows-1252: all characters of Latin-1, and curly quotes where that has control characters.
    is_utf16 = error.object[:2] in (b"\xff\xfe", b"\xfe\xff")
    bad, encoding = error.object[error.start : error.start + 1], "UTF-16" if is_utf16 else "CP1252"
    at = "" if offset is None else f" at offset {offset + error.start}"
    return ValueError(
        f"{where}: byte {bad!r}{at} is not UTF-8; convert the file, for instance: "
        f"iconv -f {encoding} -t UTF-8 {path} > new{pathlib.Path(path).suffix}"
    )


def typed_lines(prompt: str) -> Iterator[str]:
    """Yields what is typed line by line, or stands in standard input, to the first empty line."""
    if sys.stdin.isatty():
        show(prompt)
    for line in sys.stdin:
        if not line.strip():
            return
        yield line.strip()
