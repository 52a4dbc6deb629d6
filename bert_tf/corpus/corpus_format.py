"""Detects from the first bytes of a file its compression and its form of text."""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import pathlib
import re
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import regex

from bert_tf.corpus.sentences import split_sentences
from bert_tf.corpus.tfrecords import length_crc
from bert_tf.corpus.unspaced_text import columns
from bert_tf.system.bounded_files import FREE_ARCHIVE_BYTES, LimitedFile, check_regular
from bert_tf.system.file_kinds import HEAD_BYTES, check_text

SENTENCE_END = regex.compile(r"[\p{SB=ST}.:;…．：；][\"'”’»)\]*_」』】）〕〉》｣]*$")
_MAGIC: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"BZh": bz2.open,
}
COMPRESSED = (".gz", ".xz", ".bz2")  # endings of the names of compressed files
# The largest compression ratio of a file of text. Texts are compressed to a third, log files to a
# fiftieth; gzip's limit is a thousandth.
MAX_TEXT_RATIO = 200
JSON_OBJECT = re.compile(r'\{\s*"')  # how the first line of JSON Lines begins
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a]")
# The largest share of control bytes in a text, which may have a bell. Compressed data has 9 %.
MAX_CONTROL_SHARE = 0.01


@contextlib.contextmanager
def open_decompressed(path: str) -> Iterator[io.BufferedReader]:
    """Opens a file for reading bytes, through gzip, xz or bzip2 if its first bytes say so.

    Raises:
      ValueError: if it cannot be read, is not a regular file, or its first bytes are those of
        another format than text or TFRecords; while reading, if it is damaged, or its compression
        ratio is too high.
    """
    try:
        with _decompressed(path) as file:
            yield file
    except EOFError as error:
        raise ValueError(f"{path}: the compressed file is truncated; download it again.") from error
    except (lzma.LZMAError, zlib.error, OSError) as error:
        # An error of the operating system, such as a missing permission, is not of the content.
        if getattr(error, "errno", None):
            raise ValueError(f"{path} cannot be read: {error}.") from error
        raise ValueError(f"{path}: the compressed file is damaged: {error}.") from error


@contextlib.contextmanager
def _decompressed(path: str) -> Iterator[io.BufferedReader]:
    check_regular(path)  # Opening a pipe would wait for its writer.
    with pathlib.Path(path).open("rb") as file:
        head = file.peek(6)
        opener = next((opener for magic, opener in _MAGIC.items() if head.startswith(magic)), None)
        if opener is None:
            check_text(file.peek(HEAD_BYTES)[:HEAD_BYTES], path)
            yield file
            return
        with opener(file) as stream:
            limited: Any = _LimitedRatio(stream, file, path)
            with io.BufferedReader(limited, 1 << 18) as buffered:
                check_text(buffered.peek(HEAD_BYTES)[:HEAD_BYTES], path)
                yield buffered


class _LimitedRatio(LimitedFile):
    """A decompressed stream that ends with an error if its content is far larger than the file."""

    def __init__(self, stream: Any, file: IO[bytes], path: str) -> None:
        super().__init__(stream)
        self._compressed = file
        self._size = os.fstat(file.fileno()).st_size
        self._most = FREE_ARCHIVE_BYTES + MAX_TEXT_RATIO * self._size
        self._path = path

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)  # type: ignore[attr-defined]
        if self._file.tell() > self._most:
            raise ValueError(
                f"{self._path} unpacks to more than {self._most} bytes, over {MAX_TEXT_RATIO} "
                "times its size; if this is right, decompress it first."
            )
        # bz2 and lzma leave out what follows a damaged part.
        if not count and self._compressed.tell() < self._size:
            raise OSError(f"{self._size - self._compressed.tell()} bytes at its end are not read")
        return count


def without_compression(path: str | os.PathLike) -> pathlib.PurePath:
    """Returns a file's path without the ending of its compression."""
    name = pathlib.PurePath(path)
    if name.suffix.lower() in COMPRESSED:
        return name.with_suffix("")
    return name


def plain_ending(path: str | os.PathLike) -> str:
    """Returns the ending of a file's name in lower case; that of a compression does not count."""
    return without_compression(path).suffix.lower()


def detect_format(path: str, sample: bytes, is_cut: bool) -> str:
    """Detects "tfrecord", "jsonl", "lines" or "prose" from the first bytes of a file, decompressed.

    `is_cut` tells whether the file continues after them.

    Raises:
      ValueError: if they are binary, UTF-16 or a JSON document of several lines.
    """
    if is_tfrecord(sample):
        return "tfrecord"
    check_text(sample[:HEAD_BYTES], path)
    _check_not_binary(path, sample)
    text = sample.decode("utf8", errors="replace").removeprefix("\ufeff")
    lines = text.split("\n")
    if is_cut and len(lines) > 1:
        # The sample ends somewhere in the last line.
        lines.pop()
    first = next((line.strip() for line in lines if line.strip()), "")
    if JSON_OBJECT.match(first):
        return "jsonl"
    if first in ("{", "[", "[{") or first.startswith('[{"'):
        raise ValueError(
            f"{path} is one JSON document; expected one object per line: jq -c '.[]' {path}"
        )
    return "prose" if _is_prose(lines) else "lines"


def _check_not_binary(path: str, sample: bytes) -> None:
    """Raises ValueError if there is a zero byte or there are many control bytes."""
    offsets = list(map(re.Match.start, _CONTROL.finditer(sample)))
    zero = sample.find(b"\0")
    if zero < 0 and len(offsets) <= 1 + MAX_CONTROL_SHARE * len(sample):
        return
    offset = zero if zero >= 0 else offsets[0]
    raise ValueError(
        f"{path} is neither text nor TFRecords: byte 0x{sample[offset]:02x} at offset {offset}, "
        f"{len(offsets)} control bytes in the first {len(sample)}. If it is text nevertheless, "
        f"pass --input_format=lines (or prose, jsonl)."
    )


def is_tfrecord(head: bytes) -> bool:
    """Returns whether `head` begins with a TFRecord header: uint64 length, its masked CRC-32C."""
    length, crc = (int.from_bytes(field, "little") for field in (head[:8], head[8:12]))
    return len(head) >= 12 and length_crc(length) == crc


def _is_prose(lines: list[str]) -> bool:
    """Distinguishes paragraphs from one sentence per line.

    Text is prose if lines are hard-wrapped, if many lines have several sentences, or if nearly
    every line is between blank lines, so that documents would be single sentences.
    """
    filled = [line.strip() for line in lines if line.strip()]
    blocks = 0
    for previous, line in zip(["", *lines], lines, strict=False):
        blocks += bool(line.strip() and not previous.strip())
    several = sum(len(split_sentences(line)) > 1 for line in filled)
    # A block is a run of lines without a blank one: here nearly each line is one.
    alone = len(filled) > 5 and blocks > 0.9 * len(filled)
    return is_wrapped(lines) or several > 0.4 * len(filled) or alone


def is_wrapped(lines: list[str]) -> bool:
    """Returns whether lines are hard-wrapped: long ones end in mid-sentence."""
    # In wrapped text a line before another one has the full width and mostly ends in mid-sentence.
    inner = [a.strip() for a, b in zip(lines, lines[1:], strict=False) if a.strip() and b.strip()]
    if len(inner) < 3:
        return False
    ended = sum(bool(SENTENCE_END.search(line)) for line in inner)
    lengths = sorted(map(columns, inner))
    # The 95th percentile: a few lines, such as URLs, may be longer than the text is wide.
    width = lengths[int(0.95 * (len(lengths) - 1))]
    full = sum(length > 0.75 * width for length in lengths)
    return ended < 0.4 * len(inner) and 40 <= width <= 120 and full > 0.6 * len(inner)
