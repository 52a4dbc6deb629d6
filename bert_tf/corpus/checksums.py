"""Checksums of prepared files, checked when a later run uses them again.

The CRC-32C of a file is stored in a hidden file beside it, written when the file is finished:

    part-00000.tokens     .part-00000.tokens.crc32c

This detects disks and copies that flip bits; it does not protect against attackers.
"""

import concurrent.futures
import pathlib
from collections.abc import Iterable

import google_crc32c
from absl import logging

from bert_tf.files import atomic_write

BLOCK_BYTES = 1 << 20
READERS = 4  # threads: one computes while others wait for the disk


def file_crc(path: pathlib.Path) -> str:
    """Returns the CRC-32C of a file, 8 hex digits."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            crc = google_crc32c.extend(crc, block)
    return f"{crc:08x}"


def seal(path: pathlib.Path) -> None:
    """Writes the checksum of a finished file."""
    with atomic_write(_seal_of(path)) as file:
        file.write(file_crc(path) + "\n")


def is_whole(path: pathlib.Path) -> bool:
    """True if a sealed file is as it was written; one that is damaged is deleted."""
    if not (path.is_file() and _seal_of(path).is_file()):
        return False
    if _is_sealed_with(path, file_crc(path)):
        return True
    drop(path)
    return False


def drop_damaged(paths: Iterable[pathlib.Path]) -> None:
    """Deletes sealed files that have changed since they were written, and logs their names.

    A file without a checksum is deleted, too: it is unfinished, or from an earlier release.
    """
    unsealed: list[pathlib.Path] = []
    found = sorted(path for path in paths if path.is_file() and not path.name.startswith("."))
    for path, crc in zip(found, file_crcs(found), strict=True):
        if not _seal_of(path).exists():
            unsealed.append(path)
        elif not _is_sealed_with(path, crc):
            drop(path)
    for path in unsealed:
        path.unlink()
    if unsealed:
        logging.info(
            "%s: %d files are unfinished or have no checksum (older releases wrote none); making "
            "them again.",
            *(unsealed[0].parent, len(unsealed)),
        )


def file_crcs(paths: Iterable[pathlib.Path]) -> list[str]:
    """Returns the checksums of several files, read in parallel."""
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(file_crc, paths))


def drop(path: pathlib.Path) -> None:
    """Deletes a damaged file, so that it is made again."""
    logging.warning("%s is damaged: its checksum differs. Making it again.", path)
    path.unlink(missing_ok=True)  # another process may have found it too


def _is_sealed_with(path: pathlib.Path, crc: str) -> bool:
    return _seal_of(path).read_bytes() == f"{crc}\n".encode()


def _seal_of(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name}.crc32c")
