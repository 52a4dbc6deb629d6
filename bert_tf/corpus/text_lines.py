"""Reads the lines of a file from any offset on, in bounded memory.

In text a line is cut at each multiple of 256 KiB in the file that has no line break in the 64 KiB
before it nor in those after it: behind the first white space that follows, or, where none does in
64 KiB, between two characters. So a line up to 128 KiB stays whole, no piece is longer than 384
KiB, and the bytes around a multiple tell all: reading from the middle of the file finds the same
pieces.

Records (JSONL, tables) are never cut; a line that is longer than any record is an error.
"""

import re
from collections.abc import Iterator
from typing import IO

from bert_tf.corpus.corpus_format import open_decompressed
from bert_tf.files import not_utf8

MAX_LINE_BYTES = 64 << 20  # of a record; the longest book in JSONL has about a tenth
BLOCK_BYTES = 1 << 18
# Half a block on from where reading begins the pieces are certain. The one before `start` begins at
# most 1.5 blocks before it, and `corpus` wants to know of blank lines half a block before that.
LOOKBACK_BLOCKS = 3
_WHITE_SPACE = re.compile(rb"\s+")
_CHARACTER = re.compile(rb"[^\x80-\xbf]")  # the first byte of one


def read_lines(file: IO[bytes], path: str, start: int) -> Iterator[tuple[int, str]]:
    """Yields (byte offset, line) of all lines, or pieces, that start at `start` or later.

    Lines of the 768 KiB before `start` come first, so that the caller knows what precedes it; of
    those the first may lack its beginning, and bytes that are not UTF-8 are replaced.

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
    """Yields (byte offset, line) of the lines, whole, that start in `start`..`stop`.

    Raises:
      ValueError: if a line is not UTF-8, or is longer than MAX_LINE_BYTES.
    """
    offset, line = max(0, start - 1), b""
    if start:
        file.seek(offset)
        while offset < stop and not line.endswith(b"\n"):  # the rest of a line of an earlier part
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
    """Yields (line number, line with its end) of all lines from where the file stands.

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
    """Counts the lines before `offset` again: only errors need the number."""
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
    """Yields (offset, line or piece) from `start` on, as if a line began there."""
    if start:
        file.seek(start)
    window = BLOCK_BYTES // 4
    offset = line_start = start
    rest = b""
    while True:
        multiple = -(-max(offset + 1, line_start + window) // BLOCK_BYTES) * BLOCK_BYTES
        size = multiple + window - offset
        line = rest + file.readline(size - len(rest))
        rest = b""
        if not line:
            return
        if len(line) == size and not line.endswith(b"\n"):
            end = _end_of_piece(line, multiple - offset)
            line, rest = line[:end], line[end:]
        yield offset, line
        offset += len(line)
        if line.endswith(b"\n"):
            line_start = offset


def _end_of_piece(line: bytes, position: int) -> int:
    """Returns where to cut, at `position` or later."""
    if match := _WHITE_SPACE.search(line, position):
        return match.end()
    match = _CHARACTER.search(line, position)
    return match.start() if match else len(line)
