"""Checksums of prepared files, which a later run checks before it uses the files.

The CRC-32C of a finished file is stored in a hidden file in the same folder:

    part-00000.tokens     .part-00000.tokens.crc32c

This detects bit flips on disks and in copies; it does not protect against attackers.
"""

import concurrent.futures
import pathlib
from collections.abc import Iterable

import google_crc32c
from absl import logging

from bert_tf.system.files import atomic_write

BLOCK_BYTES = 1 << 20
READERS = 4  # threads: one computes while others wait for the disk


def file_crc(path: pathlib.Path) -> str:
    """Returns the CRC-32C of a file, 8 hex digits."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            crc = google_crc32c.extend(crc, block)
    return f"{crc:08x}"


def write_checksum(path: pathlib.Path) -> None:
    """Writes the checksum of a finished file."""
    with atomic_write(_checksum_file(path)) as file:
        file.write(file_crc(path) + "\n")


def is_whole(path: pathlib.Path) -> bool:
    """Returns whether a file exists and matches its checksum; a damaged file is deleted."""
    if not (path.is_file() and _checksum_file(path).is_file()):
        return False
    if _has_checksum(path, file_crc(path)):
        return True
    drop(path)
    return False


def drop_damaged(paths: Iterable[pathlib.Path]) -> None:
    """Deletes files that do not match their checksum, and logs their names.

    A file without a checksum is also deleted: it is unfinished.
    """
    unfinished: list[pathlib.Path] = []
    # Hidden files are the checksums themselves, and unfinished files.
    files = sorted(path for path in paths if path.is_file() and not path.name.startswith("."))
    for path, crc in zip(files, file_crcs(files), strict=True):
        if not _checksum_file(path).exists():
            unfinished.append(path)
        elif not _has_checksum(path, crc):
            drop(path)
    for path in unfinished:
        path.unlink()
    if unfinished:
        logging.info(
            "%s: %d files are unfinished or have no checksum; making them again.",
            unfinished[0].parent,
            len(unfinished),
        )


def file_crcs(paths: Iterable[pathlib.Path]) -> list[str]:
    """Returns the checksums of several files, read in parallel."""
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(file_crc, paths))


def drop(path: pathlib.Path) -> None:
    """Deletes a damaged file, so that it is made again."""
    logging.warning("%s is damaged: its checksum differs. Making it again.", path)
    path.unlink(missing_ok=True)  # Another process may have deleted it.


def _has_checksum(path: pathlib.Path, crc: str) -> bool:
    return _checksum_file(path).read_bytes() == f"{crc}\n".encode()


def _checksum_file(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name}.crc32c")
