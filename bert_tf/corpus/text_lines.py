"""Reads the lines of a file from any offset, in bounded memory.

A line of text is split at each multiple of 256 KiB in the file if there is no line break in the 64
KiB before or after it. The split is after the next white space, or between two characters if the 64
KiB have no white space. So a line of up to 128 KiB is not split, and no chunk is longer than 384
KiB. A split depends only on the bytes around the multiple, so reading from the middle of the file
gives the same chunks.

Records (JSONL, tables) are never split; a line that is longer than any record is an error.
"""

import re
from collections.abc import Iterator
from typing import IO

from bert_tf.corpus.corpus_format import open_decompressed
from bert_tf.system.files import not_utf8

MAX_LINE_BYTES = 64 << 20  # The limit of a record; the longest book in JSONL has about a tenth.
BLOCK_BYTES = 1 << 18
# Chunks are reliable half a block after the start of reading. The chunk before `start` begins at
# most 1.5 blocks before it, and `corpus` needs the blank lines half a block before that.
LOOKBACK_BLOCKS = 3
_WHITE_SPACE = re.compile(rb"\s+")
_CHARACTER = re.compile(rb"[^\x80-\xbf]")  # The first byte of a UTF-8 character.


def read_lines(file: IO[bytes], path: str, start: int) -> Iterator[tuple[int, str]]:
    """Yields (byte offset, line) of all lines, or chunks, that start at `start` or later.

    Lines of the 768 KiB before `start` come first, as context for the caller. The first of these
    may be incomplete, and bytes that are not UTF-8 are replaced in them.

    Raises:
      ValueError: if a line at or after `start` is not UTF-8.
    """
    for offset, line in _cut_lines(file, max(0, start - LOOKBACK_BLOCKS * BLOCK_BYTES)):
        if offset >= start:
            yield offset, _decode(line, path, offset)
        else:
            yield offset, line.decode("utf8" if offset else "utf-8-sig", "replace")


def read_whole_lines(
    file: IO[bytes], path: str, start: int, stop: int
) -> Iterator[tuple[int, str]]:
    """Yields (byte offset, line) of the complete lines that start in `start`..`stop`.

    Raises:
      ValueError: if a line is not UTF-8, or is longer than MAX_LINE_BYTES.
    """
    # One byte early: if it is a line break, the line at `start` belongs to this part.
    offset = max(0, start - 1)
    line = b""
    if start:
        file.seek(offset)
        # Skip the rest of a line that belongs to an earlier part.
        while offset < stop and not line.endswith(b"\n"):
            line = file.readline(BLOCK_BYTES)
            if not line:
                return
            offset += len(line)
    while offset < stop and (line := file.readline(MAX_LINE_BYTES + 1)):
        if len(line) > MAX_LINE_BYTES:
            raise _too_long(path, line_number(path, offset))
        yield offset, _decode(line, path, offset)
        offset += len(line)


def numbered_lines(file: IO[bytes], path: str) -> Iterator[tuple[int, bytes]]:
    """Yields (line number, line with its end) from the current position of the file.

    Raises:
      ValueError: if a line is longer than MAX_LINE_BYTES.
    """
    number = 1
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise _too_long(path, number)
        yield number, line
        number += 1


def _too_long(path: str, number: int) -> ValueError:
    return ValueError(
        f"{path}, line {number} has more than {MAX_LINE_BYTES} bytes, the most of a line; put line "
        "breaks between its records or sentences (of a JSON list: jq -c '.[]')."
    )


def line_number(path: str, offset: int) -> int:
    """Returns the number of the line at `offset`; it reads the file again, only for errors."""
    number = 1
    with open_decompressed(path) as file:
        while offset > 0 and (block := file.read(min(offset, 1 << 20))):
            number += block.count(b"\n")
            offset -= len(block)
    return number


def _decode(line: bytes, path: str, offset: int) -> str:
    try:
        return line.decode("utf8" if offset else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(f"{path}, line {line_number(path, offset)}", path, error, offset) from None


def _cut_lines(file: IO[bytes], start: int) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, line or chunk) from `start`, as if a line started there."""
    if start:
        file.seek(start)
    # A line break this close to a multiple prevents a split there.
    window = BLOCK_BYTES // 4
    offset = line_start = start
    rest = b""
    while True:
        # The first multiple past `offset` that is at least a window past the start of the line.
        multiple = -(-max(offset + 1, line_start + window) // BLOCK_BYTES) * BLOCK_BYTES
        size = multiple + window - offset
        line = rest + file.readline(size - len(rest))
        rest = b""
        if not line:
            return
        if len(line) == size and not line.endswith(b"\n"):
            end = _end_of_chunk(line, multiple - offset)
            # The bytes read past the split begin the next chunk.
            rest = line[end:]
            line = line[:end]
        yield offset, line
        offset += len(line)
        if line.endswith(b"\n"):
            line_start = offset


def _end_of_chunk(line: bytes, position: int) -> int:
    """Returns the position of the split, at `position` or later."""
    if match := _WHITE_SPACE.search(line, position):
        return match.end()
    match = _CHARACTER.search(line, position)
    return match.start() if match else len(line)
