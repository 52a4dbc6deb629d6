"""Packs folders of golden files into archives, and unpacks each archive once for all tests.

    python tests/golden/archives.py unpack families/roberta /tmp
    python tests/golden/archives.py pack /tmp/roberta families/roberta

The same files give the same archive, byte for byte. Arrays are compressed twice as well by LZMA as
by the ZIP format, so that `.npz` files are stored without compression in an archive.
"""

import contextlib
import functools
import hashlib
import io
import lzma
import os
import pathlib
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
SUFFIX = ".tar.xz"
# The first suits text. The second predicts a byte from the bytes four positions apart: float32.
FILTERS = ({"lc": 3, "lp": 0, "pb": 2}, {"lc": 0, "lp": 2, "pb": 2})
LARGEST_DISTANCE = 1 << 26
DATE = 1 << 30  # In 2004; archives have no dates, and zip files none before 1980.


def pack(folder: pathlib.Path, archive: pathlib.Path) -> None:
    """Writes the files of a folder to an archive, below the name that the archive has."""
    name = archive.name.removesuffix(SUFFIX)
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as opened:
        # Files of the same kind side by side repeat each other.
        for path in sorted(folder.rglob("*"), key=lambda path: (path.suffix, path.as_posix())):
            if path.is_file():
                content = path.read_bytes()
                if path.suffix == ".npz":
                    content = without_compression(content)
                member = tarfile.TarInfo(f"{name}/{path.relative_to(folder).as_posix()}")
                member.size = len(content)
                opened.addfile(member, io.BytesIO(content))
    candidates = []
    for options in FILTERS:
        lzma2 = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, **options}
        lzma2["dict_size"] = LARGEST_DISTANCE
        candidates.append(lzma.compress(tar.getvalue(), filters=[lzma2]))
    archive.write_bytes(min(candidates, key=len))


def without_compression(content: bytes) -> bytes:
    """Returns the same `.npz` file, stored and without dates."""
    stored = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as source,
        zipfile.ZipFile(stored, "w", zipfile.ZIP_STORED) as target,
    ):
        for name in sorted(source.namelist()):
            target.writestr(zipfile.ZipInfo(name), source.read(name))
    return stored.getvalue()


@functools.cache
def unpacked(archive: pathlib.Path) -> pathlib.Path:
    """Returns the folder that an archive holds; the first caller of all processes unpacks it."""
    content = archive.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    name = archive.name.removesuffix(SUFFIX)
    # Bazel's sandbox lets a test write to TEST_TMPDIR only.
    cache = pathlib.Path(os.environ.get("TEST_TMPDIR", ROOT / "build"), "golden")
    target = cache / f"{name}-{digest}"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = pathlib.Path(tempfile.mkdtemp(prefix="partial-", dir=cache))
        try:
            unpack(archive, partial)
            # A folder appears complete or not at all, also where two processes unpack it at once.
            partial.rename(target)
        except OSError:
            if not target.exists():
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return target / name


@contextlib.contextmanager
def edited(archive: pathlib.Path, write: bool) -> Iterator[pathlib.Path]:
    """Gives a copy of the folder that an archive holds; packs it again afterwards if `write`."""
    with tempfile.TemporaryDirectory() as temporary:
        unpack(archive, pathlib.Path(temporary))
        folder = pathlib.Path(temporary, archive.name.removesuffix(SUFFIX))
        yield folder
        if write:
            pack(folder, archive)


def unpack(archive: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes the files of an archive below a folder, with a date that zip files can have."""

    def dated(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
        return tarfile.data_filter(member, path).replace(mtime=DATE)

    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter=dated)


def main() -> None:
    if sys.argv[1:2] == ["pack"] and len(sys.argv) == 4:
        pack(pathlib.Path(sys.argv[2]), FOLDER / f"{sys.argv[3]}{SUFFIX}")
    elif sys.argv[1:2] == ["unpack"] and len(sys.argv) == 4:
        unpack(FOLDER / f"{sys.argv[2]}{SUFFIX}", pathlib.Path(sys.argv[3]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
