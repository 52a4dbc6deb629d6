"""Reads the small files of model folders and archives within limits on type, size and memory.

A model folder may come from an untrusted source. Its files must be regular files, so that no pipe
or device blocks the reader, and their sizes are checked before they are read or parsed.
"""

import contextlib
import io
import json
import os
import pathlib
import stat
import sys
import time
import zipfile
from collections.abc import Iterator
from typing import IO, Any

import regex

# The largest tokenizer file in use has 35 MB.
MAX_BYTES = 64 << 20
# A parsed value takes about 100 bytes; the largest tokenizer in use has two million values.
MAX_JSON_VALUES = 4_000_000
MAX_LINES = 4_000_000  # of a vocabulary
# Limit of the compression ratio of an archive. Vocabularies are compressed to a fifth.
MAX_RATIO = 20
# Sizes that are allowed at any ratio.
FREE_MEMBER_BYTES = 1 << 20
FREE_ARCHIVE_BYTES = 64 << 20
READ_BYTES = 1 << 20
# The table of contents of a zip file is read before anything is known about it.
MAX_MEMBERS = 10_000
MAX_CONTENTS_BYTES = 4 << 20
KERAS_CONFIGS = ("config.json", "metadata.json")


def check_regular(path: str | os.PathLike) -> None:
    """Raises ValueError unless a path is a regular file or a link to one.

    Raises:
      OSError: if there is no such file.
    """
    _check_mode(path, pathlib.Path(path).stat().st_mode)


def _check_mode(path: str | os.PathLike, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    kind = kinds.get(stat.S_IFMT(mode), "a device")
    raise ValueError(f"{path} is {kind}; expected a regular file.")


def read_bytes(path: str | os.PathLike, most: int = MAX_BYTES) -> bytes:
    """Reads a regular file of at most `most` bytes.

    Raises:
      ValueError: if it is larger, or not a regular file.
      OSError: if there is no such file, or it cannot be read.
    """
    path = pathlib.Path(path).expanduser()
    check_regular(path)  # Check first, because opening a device may have side effects.
    # O_NONBLOCK: opening does not wait if the path has become a pipe since the check.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123  (a descriptor)
        # The opened file counts: the path may have been replaced since the check.
        status = os.fstat(descriptor)
        _check_mode(path, status.st_mode)
        size = status.st_size
        parts = []
        # Count the bytes as well, because some files have no size and others grow.
        while size <= most and (part := file.read(READ_BYTES)):
            parts.append(part)
            size = max(size, sum(map(len, parts)))
    if size > most:
        raise ValueError(f"{path} has {size} bytes or more; expected at most {most}.")
    return b"".join(parts)


def read_text(path: str | os.PathLike, errors: str = "strict", most: int = MAX_BYTES) -> str:
    """Reads a UTF-8 file; see `read_bytes` and `bytes.decode`, also for the errors."""
    return read_bytes(path, most).decode("utf-8-sig", errors=errors)


def read_optional_text(path: str | os.PathLike) -> str:
    """Reads a file as `read_text` does; "" if it is missing."""
    if not pathlib.Path(path).is_file():
        return ""
    return read_text(path)


def check_lines(content: bytes, source: str | os.PathLike) -> None:
    """Raises ValueError if a vocabulary has more than `MAX_LINES` lines."""
    lines = content.count(b"\n")
    if lines > MAX_LINES:
        raise ValueError(f"{source} has {lines} lines; expected at most {MAX_LINES}.")


def parse_json(content: bytes, source: str | os.PathLike) -> Any:
    """Parses JSON that has at most `MAX_JSON_VALUES` values; `source` names it in messages.

    Raises:
      ValueError: if it has more values, or is not JSON.
    """
    # Counted without parsing: nearly every value follows a comma or an opening bracket.
    count = content.count(b",") + content.count(b"[") + content.count(b"{")
    if count > MAX_JSON_VALUES:
        raise ValueError(f"{source} has {count} values; expected at most {MAX_JSON_VALUES}.")
    try:
        return json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source} is not JSON: {error}.") from None


@contextlib.contextmanager
def open_zip(path: str | os.PathLike, file: IO[bytes] | None = None) -> Iterator[zipfile.ZipFile]:
    """Opens a zip file of at most `MAX_MEMBERS` members, whose table of contents is small.

    `file` is the open file; None: the path is opened here.

    Raises:
      ValueError: if it has more members, or is not a regular file.
      zipfile.BadZipFile: if it is no zip file.
    """
    check_regular(path)
    with contextlib.ExitStack() as stack:
        limited = _ShortReads(file or stack.enter_context(pathlib.Path(path).open("rb")))
        archive = stack.enter_context(zipfile.ZipFile(limited))
        limited.most = sys.maxsize
        count = len(archive.infolist())
        if count > MAX_MEMBERS:
            raise ValueError(f"{path} has {count} members; expected at most {MAX_MEMBERS}.")
        yield archive


class LimitedFile(io.RawIOBase):
    """A seekable file whose subclass limits the bytes that are read from it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class _ShortReads(LimitedFile):
    """A file with a limit on single reads: zipfile reads the table of contents by one."""

    most = MAX_CONTENTS_BYTES

    def read(self, size: int = -1) -> bytes:
        if size > self.most:
            raise ValueError(
                f"its table of contents has {size} bytes; expected at most {self.most}"
            )
        # Without a size zipfile reads the last 64 KiB of the file.
        return self._file.read(self.most if size < 0 else size)


def read_member(archive: zipfile.ZipFile, name: str, source: str | os.PathLike) -> bytes:
    """Reads a member of a zip file of at most `MAX_BYTES` bytes; `source` is the archive's path.

    A member with too high a compression ratio is rejected; sizes are checked while it is read.

    Raises:
      ValueError: if it is larger, or its compression method has no memory limit.
      KeyError: if there is no such member.
    """
    info = archive.getinfo(name)
    _check_method(info, source)
    # The header may state any size, but no member is larger than its archive.
    packed = min(info.compress_size, pathlib.Path(source).stat().st_size)
    limit = min(MAX_BYTES, FREE_MEMBER_BYTES + MAX_RATIO * packed)
    if info.file_size > limit:
        raise ValueError(f"{source}: {name} has {info.file_size} bytes; expected at most {limit}.")
    with archive.open(info) as member:
        # One byte more than allowed shows that the header states too small a size.
        content = member.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"{source}: {name} has more than {limit} bytes.")
    return content


def check_keras_file(path: str | os.PathLike) -> None:
    """Checks a .keras file before Keras reads all of its members into memory.

    Raises:
      ValueError: if it is not a regular file, not a zip file, or its content is too large.
    """
    try:
        with open_zip(path) as archive:
            for info in archive.infolist():
                _check_method(info, path)
            most = FREE_ARCHIVE_BYTES + MAX_RATIO * pathlib.Path(path).stat().st_size
            total = sum(info.file_size for info in archive.infolist())
            if total > most:
                raise ValueError(f"{path} contains {total} bytes; expected at most {most}.")
            for name in KERAS_CONFIGS:
                if name in archive.namelist():
                    parse_json(read_member(archive, name, path), f"{path}: {name}")
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{path} is not a readable Keras model: {error}.") from None


def _check_method(info: zipfile.ZipInfo, source: str | os.PathLike) -> None:
    # For other methods zipfile has no limit on memory.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(
            f"{source}: {info.filename!r} is compressed by another method than deflate."
        )


MAX_CHARACTERS = 1000
SECONDS = 1.0
# Counted repetitions of repetitions multiply while an expression is compiled, and recursion takes a
# gigabyte a second: neither stops at the limit on the time.
_UNBOUNDED = regex.compile(r"\{[0-9]+|\(\?(?!:)")


class BoundedPatterns:
    """Matches texts with expressions of a file, all of which share a limit on the time."""

    def __init__(self, source: str | os.PathLike, seconds: float = SECONDS) -> None:
        self.source = source
        self._seconds = seconds

    def matches(self, pattern: str, text: str, key: str) -> bool:
        """Returns whether a text matches an expression as a whole; `key` names its setting.

        Raises:
          ValueError: if it is too long or no expression, counts, recurs, or the time is up.
        """
        where = f"{self.source}: {key} has {pattern!r:.100}"
        if len(pattern) > MAX_CHARACTERS or _UNBOUNDED.search(pattern):
            raise ValueError(
                f"{where}; expected an expression of at most {MAX_CHARACTERS} characters without "
                "counts in braces and (?."
            )
        start = time.monotonic()
        try:
            found = regex.fullmatch(pattern, text, timeout=max(self._seconds, 1e-3))
        except (regex.error, RecursionError) as error:
            raise ValueError(f"{where}, which is no regular expression: {error}.") from None
        except TimeoutError:
            raise ValueError(
                f"{where}, which takes too long; expected names, or names with .* for any text."
            ) from None
        finally:
            self._seconds -= time.monotonic() - start
        return found is not None
