"""Hidden files and folders next to a path: locked while written, deleted after a kill.

The system releases the lock of a process that ends in any way, so a temporary that can be locked
has no writer. Names begin with a mark of the host, because locks do not reach other hosts on every
shared file system: what another host wrote is left alone.
"""

import contextlib
import fcntl
import functools
import glob
import hashlib
import os
import pathlib
import shutil
import socket
import uuid
from collections.abc import Iterator

_MARK_LENGTH = 8


@functools.cache
def _host_mark() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:_MARK_LENGTH]


@contextlib.contextmanager
def temporary(path: pathlib.Path, is_folder: bool = False) -> Iterator[pathlib.Path]:
    """Creates and locks a hidden .NAME.ID.tmp next to a path, and deletes it if it is still there.

    The temporaries of killed processes of this host for the same path are deleted first.
    """
    delete_abandoned(path)
    while True:
        name = f".{path.name}.{_host_mark()}{uuid.uuid4().hex[_MARK_LENGTH:]}.tmp"
        hidden = path.with_name(name)
        if is_folder:
            hidden.mkdir(parents=True)
        else:
            hidden.touch()
        try:
            descriptor = os.open(hidden, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # Another process found it before it was locked.
            continue
        try:
            with contextlib.suppress(OSError):  # Some file systems have no locks.
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not hidden.exists():
                continue
            try:
                yield hidden
            finally:
                _delete(hidden)
            return
        finally:
            os.close(descriptor)


def delete_abandoned(path: pathlib.Path) -> None:
    """Deletes the temporaries of a path whose writers on this host have ended."""
    pattern = f".{glob.escape(path.name)}.{_host_mark()}*.tmp"
    for hidden in path.parent.glob(pattern):
        with contextlib.suppress(OSError):
            descriptor = os.open(hidden, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _delete(hidden)
            finally:
                os.close(descriptor)


def _delete(hidden: pathlib.Path) -> None:
    if hidden.is_dir():
        shutil.rmtree(hidden, ignore_errors=True)
    else:
        hidden.unlink(missing_ok=True)
