"""Reads the cells of Excel files (.xlsx) by openpyxl, within limits that it lacks.

A workbook is a zip file of XML. openpyxl keeps all texts of its cells in memory, yields each row
that a row number passes over, and fills rows up to the column that a cell names.
"""

import datetime
import pathlib
import re
import zipfile
from collections.abc import Iterator
from typing import IO

from bert_tf.system.bounded_files import MAX_RATIO, READ_BYTES, open_zip
from bert_tf.system.extras import install_hint

FREE_BYTES = 8 << 20  # unpacked, at any ratio of compression
MAX_BYTES = 2 << 30
MAX_TEXTS = 2_000_000
MAX_ROWS = 1 << 20  # Excel's own limit
MAX_CELLS = 50_000_000
_TEXT = re.compile(rb"<(?:\w{1,20}:)?si[\s/>]")
_LONGEST_MATCH = 30
# openpyxl yields all rows up to the number of the next one: the last row is 1,048,576.
_FAR_ROW = re.compile(rb"\br\s{0,5}=\s{0,5}[\"'][A-Z]{0,3}\d{8}")
# Declarations may define names whose text is gigabytes long.
_DECLARATION = re.compile(rb"<!(?:DOCTYPE|ENTITY)")


def read_workbook(path: str) -> Iterator[tuple[str, list[str]]]:
    """Yields (location, cells) of the rows of the first sheet that are not empty.

    Raises:
      ValueError: if openpyxl is not installed, or the file is damaged, too large or empty.
    """
    width = 0
    num_cells = 0
    for number, values in enumerate(_sheet_rows(path), 1):
        num_cells += len(values)
        if number > MAX_ROWS or num_cells > MAX_CELLS:
            raise ValueError(
                f"{path} line {number}: the sheet has more than {MAX_ROWS} rows or {MAX_CELLS} "
                "cells; save it as CSV (UTF-8)."
            )
        cells = list(map(_cell_text, values))
        # Empty cells after the last column, which were only formatted, are not data.
        while len(cells) > width and not cells[-1]:
            cells.pop()
        if any(cells):
            # The first row has the names, so it determines the width.
            width = width or len(cells)
            yield f"{path} line {number}", cells + [""] * (width - len(cells))
    if not width:
        raise ValueError(f"{path} is empty; expected a row of cells on each line.")


def _sheet_rows(path: str) -> Iterator[tuple[object, ...]]:
    """Yields the values of each row of the first sheet."""
    try:
        import openpyxl
    except ImportError:
        raise ValueError(
            f"{path} is an Excel file, which openpyxl reads: {install_hint('excel')}, or save the "
            "sheet as CSV (UTF-8)."
        ) from None
    # Faults of the zip file, of its XML, and of openpyxl, which has no class of errors for them.
    try:
        _check_size(path)
        # data_only: the values of formulas instead of the formulas.
        with pathlib.Path(path).open("rb") as file:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            if not book.worksheets:
                raise ValueError("it has no sheet of cells")
            yield from book.worksheets[0].iter_rows(values_only=True)
    except Exception as error:
        reason = (str(error).split("\n")[0] or type(error).__name__).rstrip(".")[:300]
        raise ValueError(f"{path} cannot be read as an Excel file: {reason}.") from None


def _check_size(path: str) -> None:
    """Raises ValueError for a workbook that unpacks to far more than its size."""
    with open_zip(path) as archive:
        members = archive.infolist()
        packed = sum(member.compress_size for member in members)
        most = min(MAX_BYTES, FREE_BYTES + MAX_RATIO * packed)
        total = sum(member.file_size for member in members)
        if total > most:
            raise ValueError(f"it unpacks to {total} bytes; expected at most {most}")
        num_texts = 0
        for member in members:
            # For other methods zipfile has no limit on memory.
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{member.filename!r} is not compressed by deflate")
            with archive.open(member) as file:
                num_texts += _count_texts(file, member.filename)
        if num_texts > MAX_TEXTS:
            raise ValueError(f"it has {num_texts} texts; expected at most {MAX_TEXTS}")


def _count_texts(file: IO[bytes], name: str) -> int:
    """Returns the number of texts that a member defines."""
    count = 0
    rest = file.read(4)
    if rest[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in rest and b"<" in rest:
        raise ValueError(f"{name!r} is not in UTF-8")
    while part := file.read(READ_BYTES):
        window = rest + part
        if _DECLARATION.search(window):
            raise ValueError(f"{name!r} has declarations, which workbooks do not need")
        if _FAR_ROW.search(window):
            raise ValueError(f"{name!r} has a row beyond {MAX_ROWS}")
        # A match in the overlap was counted with the part before.
        rest = window[-_LONGEST_MATCH:]
        count += sum(1 for _ in _TEXT.finditer(window)) - sum(1 for _ in _TEXT.finditer(rest))
    return count + sum(1 for _ in _TEXT.finditer(rest))


def _cell_text(value: object) -> str:
    """Returns a cell's value as Excel writes it into a CSV file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        if isinstance(value, datetime.datetime):
            return value.isoformat(" ")
        return value.isoformat()
    return str(value)
