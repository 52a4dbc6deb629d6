"""Checksums of prepared files, which a later run checks before it uses the files.

The CRC-32C of a finished file is stored in a hidden file in the same folder:

    made-00003-00001.json     .made-00003-00001.json.crc32c

This detects bit flips on disks and in copies; it does not protect against attackers.
"""

import concurrent.futures
import hashlib
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


def file_sha256(path: pathlib.Path) -> str:
    """Returns the SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksum(path: pathlib.Path) -> None:
    """Writes the checksum of a finished file."""
    with atomic_write(_checksum_file(path)) as file:
        file.write(file_crc(path) + "\n")


def is_whole(path: pathlib.Path) -> bool:
    """Returns whether a file exists and matches its checksum; a damaged file is deleted."""
    if not (path.is_file() and _checksum_file(path).is_file()):
        return False
    if _checksum_file(path).read_bytes() == f"{file_crc(path)}\n".encode():
        return True
    drop(path)
    return False


def file_crcs(paths: Iterable[pathlib.Path]) -> list[str]:
    """Returns the checksums of several files, read in parallel."""
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(file_crc, paths))


def drop(path: pathlib.Path) -> None:
    """Deletes a damaged file, so that it is made again."""
    logging.warning("%s is damaged: its checksum differs. Making it again.", path)
    path.unlink(missing_ok=True)  # Another process may have deleted it.


def _checksum_file(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name}.crc32c")
