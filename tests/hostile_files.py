"""Makers of small files that attack a reader, and the check of what a reader may do with them."""

import contextlib
import pathlib
import signal
import time
import tracemalloc
import zipfile
from collections.abc import Iterator

import numpy as np
import pytest

MEGABYTE = 1 << 20
SECONDS = 5
# Of a regular file there may be a few megabytes in memory more than once.
MOST_BYTES = 100 * MEGABYTE


@contextlib.contextmanager
def refuses(most: int = MOST_BYTES, seconds: float = SECONDS) -> Iterator[pytest.ExceptionInfo]:
    """Expects one clear error, soon and without much memory."""

    def fail(*_) -> None:
        raise AssertionError(f"it still reads after {4 * seconds} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(int(4 * seconds))  # Other work may slow the machine.
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises((ValueError, OSError)) as caught:
            yield caught
        message = str(caught.value)
        assert message and len(message) < 2000 and "\n" not in message
        assert tracemalloc.get_traced_memory()[1] < most
        assert time.process_time() - start < seconds
    finally:
        tracemalloc.stop()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def shared_trie(levels: int = 5, width: int = 255) -> bytes:
    """Returns a charsmap whose trie has `width` ** n strings of n bytes, in a block a level.

    All nodes of a level are one node: each of its labels leads to the next level.
    """
    num_blocks = levels + 2
    units = np.zeros(256 * num_blocks, np.uint32)
    units[0] = 256 << 10  # The root's children are in block 1.
    for block in range(1, num_blocks - 1):
        for label in range(1, width + 1):
            position = (256 * block) ^ label
            is_leaf = block == levels
            units[position] = label | is_leaf << 8 | (position ^ (256 * (block + 1))) << 10
    content = units.astype("<u4").tobytes()
    return len(content).to_bytes(4, "little") + content + b"x\0"


def write_zip(path: pathlib.Path, members: dict[str, bytes]) -> pathlib.Path:
    """Writes a compressed zip file."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path
