"""Recognizes files that are not UTF-8 text by their first bytes."""

import os
import pathlib
import re

HEAD_BYTES = 262  # to the end of a tar archive's mark
_UNPACK = "give a file that it contains"
_CONVERT = "convert it, for instance by pandas, to CSV or JSON Lines"
# The first bytes of files, with the name of the format and the remedy.
_KINDS = {
    b"PK\x03\x04": ("a zip archive", f"{_UNPACK}; Excel's workbooks are named .xlsx"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", _UNPACK),
    b"Rar!": ("a RAR archive", _UNPACK),
    b"\x1f\x8b": ("compressed by gzip", "decompress it"),
    b"\xfd7zXZ\x00": ("compressed by xz", "decompress it"),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "decompress it, or compress it by gzip"),
    b"PAR1": ("a Parquet file", _CONVERT),
    b"ARROW1": ("an Arrow file", _CONVERT),
    b"FEA1": ("a Feather file", _CONVERT),
    b"SQLite format 3\x00": ("an SQLite database", _CONVERT),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": (
        "an old file of Excel or Word",
        "save it as .xlsx or text",
    ),
    b"%PDF-": ("a PDF file", "extract its text"),
    b"\x93NUMPY": ("an array of NumPy", "give a file of text"),
    b"\x89HDF\r\n": ("an HDF5 file", "give a file of text"),
    b"version https://git-lfs.": ("a pointer of Git LFS", "download the file itself: git lfs pull"),
    **dict.fromkeys(
        [bytes([0x80, protocol]) for protocol in range(2, 6)], ("a pickle of Python", _CONVERT)
    ),
}
_ENCODINGS = {
    b"\xff\xfe\x00\x00": "UTF-32",  # before UTF-16, whose mark is the beginning of this one
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


# How pages and other documents with marks begin.
_MARKUP = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:(<!doctype\s+html|<html[\s>])|<\?xml\s|<mediawiki\s|\{\\rtf)",
    re.IGNORECASE,
)


def check_text(head: bytes, path: str | os.PathLike) -> None:
    """Checks that a file may be text.

    Args:
      head: the first `HEAD_BYTES` bytes, decompressed.

    Raises:
      ValueError: naming its format or encoding, if it is not UTF-8 text.
    """
    for start, (kind, remedy) in _KINDS.items():
        if head.startswith(start):
            raise ValueError(f"{path} is {kind}, expected text; {remedy}.")
    if match := _MARKUP.match(head):
        kind = "an HTML page" if match[1] else "a document with marks (XML or RTF)"
        raise ValueError(f"{path} is {kind}, expected plain text; extract its text.")
    # The last byte may begin a line end of Windows. The lengths in TFRecords have zero bytes.
    if b"\r" in head[:-1] and b"\n" not in head and b"\0" not in head:
        raise ValueError(
            f"{path} line 1: lines end in a carriage return (\\r) alone, as on old Macintoshes, "
            f"expected \\n: tr '\\r' '\\n' < {path} > new{pathlib.Path(path).suffix}"
        )
    if head[257:262] == b"ustar":
        raise ValueError(f"{path} is a tar archive, expected text; {_UNPACK}.")
    if encoding := _encoding(head):
        suffix = pathlib.Path(path).suffix
        raise ValueError(
            f"{path} line 1: the file is {encoding}, expected UTF-8; convert it: "
            f"iconv -f {encoding} -t UTF-8 {path} > new{suffix}"
        )


def _encoding(head: bytes) -> str:
    """Returns the name of a wide encoding of the file; "": none."""
    for mark, encoding in _ENCODINGS.items():
        if head.startswith(mark):
            return encoding
    # Latin letters in UTF-16 without a mark: every second byte is zero.
    even, odd = set(head[:32:2]), set(head[1:32:2])
    if len(head) >= 4 and odd == {0} and 0 not in even:
        return "UTF-16LE"
    if len(head) >= 4 and even == {0} and 0 not in odd:
        return "UTF-16BE"
    return ""
