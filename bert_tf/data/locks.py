"""One process at a time works on a set of files."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator
from typing import IO

from absl import logging


@contextlib.contextmanager
def locked(path: pathlib.Path, flag: str) -> Iterator[None]:
    """Waits for the lock file `path`, holds it during the block and deletes it.

    The system frees the lock of a killed process; its file is taken over.

    Args:
      path: the lock file; its folder is made.
      flag: what the user passes to name another folder.

    Raises:
      ValueError: if the file cannot be written.
    """
    while True:
        file = _open(path, flag)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logging.info("Another process prepares data in %s; waiting for it.", path.parent)
            fcntl.flock(file, fcntl.LOCK_EX)
        if _is_same(file, path):
            break
        file.close()  # the holder deleted the file while we waited: what we locked is nobody's
    with file:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # before the lock is freed, so that it is ours


def _open(path: pathlib.Path, flag: str) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w")
    except OSError as error:
        raise ValueError(
            f"Cannot write in the folder {path.parent} ({error.strerror}); name one that you may "
            f"write in with --{flag}."
        ) from error


def _is_same(file: IO[str], path: pathlib.Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
