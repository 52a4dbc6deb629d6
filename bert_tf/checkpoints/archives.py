"""Unpacks archives of checkpoints into a new folder: only plain files, of bounded size.

The table of contents is checked before anything is written. It is not trusted either: all reading
is subject to the limit. Files are written here and not by `extractall`, because links can lead some
versions of it outside the folder (CVE-2025-4517).
"""

import contextlib
import functools
import gzip
import io
import pathlib
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from bert_tf.system.bounded_files import LimitedFile, open_zip

ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")
# A BERT-large with Adam's slots has 5 GB; weights shrink by a tenth, by half if they were float16.
MAX_BYTES = 64 << 30
MAX_RATIO = 20
FREE_BYTES = 64 << 20
MAX_ENTRIES = 10_000  # files and folders
READ_BYTES = 1 << 18  # at once: headers in a tar may ask for gigabytes, packed in megabytes
HEADER_BYTES = MAX_ENTRIES * 4 * tarfile.BLOCKSIZE  # of all members of a tar

NO_FILE = "a link or a device (tar --dereference packs what links lead to)"
UNPACKING_ERRORS = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,  # NotImplementedError, and zipfile's error for a missing password.
)


class _Member(NamedTuple):
    """A file in an archive; `kind` is "" for a plain file, else its type."""

    name: str
    size: int
    kind: str
    open: Callable[[], Any]


@contextlib.contextmanager
def unpacked(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Unpacks an archive into a new folder, which is deleted afterwards.

    Raises:
      ValueError: if it cannot be read, holds links or devices, is too large, or has a name outside
        its folder.
    """
    # Small archives may compress better than MAX_RATIO allows.
    most = min(MAX_BYTES, FREE_BYTES + MAX_RATIO * path.stat().st_size)
    with tempfile.TemporaryDirectory(prefix="bert_tf_") as name:
        folder = pathlib.Path(name)
        try:
            with _open(path, most) as members:
                _check(members, most)
                for member in members:
                    target = folder / member.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with member.open() as source, target.open("wb") as file:
                        shutil.copyfileobj(source, file, READ_BYTES)
        except UNPACKING_ERRORS as error:
            reason = str(error).split("\n")[0].replace(f"{folder}/", "").rstrip(".")
            raise ValueError(f"{path} cannot be unpacked: {reason}.") from None
        yield folder


def _too_large(most: int) -> ValueError:
    return ValueError(
        f"unpacked it has more than {most} bytes; if you trust it, unpack it yourself and give the "
        "folder"
    )


def _too_many() -> ValueError:
    return ValueError(f"it holds more than {MAX_ENTRIES} files and folders")


def _check(members: Sequence[_Member], most: int) -> None:
    """Raises ValueError for members that do not belong in an archive of a checkpoint."""
    for name, _, kind, _ in members:
        if kind:
            raise ValueError(f"the member {name!r} is {kind}; expected files and folders")
        if name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise ValueError(f"the member {name!r} lies outside its folder")
    # One name may match many folders.
    if sum(len(pathlib.PurePosixPath(member.name).parts) for member in members) > MAX_ENTRIES:
        raise _too_many()
    if sum(member.size for member in members) > most:
        raise _too_large(most)


@contextlib.contextmanager
def _open(path: pathlib.Path, most: int) -> Iterator[list[_Member]]:
    """Opens an archive; folders are left out of its members."""
    with contextlib.ExitStack() as stack:
        if path.suffix == ".zip":
            archive = stack.enter_context(open_zip(path))
            zip_members = []
            for entry in archive.infolist():
                if entry.is_dir():
                    continue
                opener = functools.partial(archive.open, entry)
                kind = _zip_kind(entry)
                zip_members.append(_Member(entry.filename, entry.file_size, kind, opener))
            yield zip_members
            return
        stream: Any = stack.enter_context(path.open("rb"))
        if stream.peek(2)[:2] == b"\x1f\x8b":
            stream = stack.enter_context(gzip.open(stream))
        # Gzip is unpacked here and not by tarfile, whose output would not be bounded.
        bounded: Any = _Bounded(stream, most)
        tar = stack.enter_context(tarfile.open(fileobj=bounded, mode="r:"))
        members = []
        for number, info in enumerate(tar):
            if number >= MAX_ENTRIES:  # and no list of a thousand times as many
                raise _too_many()
            if not info.isdir():
                kind = "" if info.isreg() else NO_FILE
                content = functools.partial(tar.extractfile, info)
                members.append(_Member(info.name, info.size, kind, content))
        yield members


def _zip_kind(info: zipfile.ZipInfo) -> str:
    """Describes a member that is not a plain file; zipfile has no memory limit for some methods."""
    # The upper 16 bits are a Unix file mode, or 0 if another system made the archive.
    mode = stat.S_IFMT(info.external_attr >> 16)
    if mode not in (0, stat.S_IFREG):
        return NO_FILE
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "compressed by another method than deflate"
    return ""


class _Bounded(LimitedFile):
    """A stream with a limit on its bytes without headers, in short reads."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        super().__init__(file)
        self._most = most

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= READ_BYTES:
            raise ValueError(f"one of its headers has {size} bytes")
        if self.tell() > self._most + HEADER_BYTES:
            raise _too_large(self._most)
        return self._file.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if offset > self._most + HEADER_BYTES:
            raise _too_large(self._most)
        return super().seek(offset, whence)
