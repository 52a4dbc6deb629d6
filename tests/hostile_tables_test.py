"""Workbooks and arrays that attack: bombs, broken XML, rows without end, headers that lie."""

import io
import pathlib
import struct
import zipfile

import numpy as np
import openpyxl
import pytest

from bert_tf.search.strings import Strings, write
from bert_tf.search.token_vectors import TokenIndex
from bert_tf.system.bounded_arrays import map_array
from bert_tf.tasks.base.examples import workbooks
from bert_tf.tasks.base.examples.tables import read_cells
from tests.hostile_files import refuses, write_zip

SHEET = "xl/worksheets/sheet1.xml"
TEXTS = "xl/sharedStrings.xml"
NAMESPACE = b'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'


def workbook(path: pathlib.Path, changed: dict[str, bytes | None]) -> str:
    """Writes a workbook of two columns and two rows with other members; None leaves one out."""
    buffer = io.BytesIO()
    book = openpyxl.Workbook()
    book.active.append(["text", "label"])
    book.active.append(["a cat", "good"])
    book.save(buffer)
    members = {}
    with zipfile.ZipFile(buffer) as archive:
        for name in archive.namelist():
            content = changed.get(name, archive.read(name))
            if content is not None:
                members[name] = content
    members |= {name: content for name, content in changed.items() if content is not None}
    return str(write_zip(path / "table.xlsx", members))


def sheet(rows: bytes) -> dict[str, bytes | None]:
    start = b"<worksheet " + NAMESPACE + b"><sheetData>"
    return {SHEET: start + rows + b"</sheetData></worksheet>"}


def texts(content: bytes) -> dict[str, bytes | None]:
    return {TEXTS: b"<sst " + NAMESPACE + b">" + content + b"</sst>"}


def test_the_workbook_of_these_tests_can_be_read(tmp_path):
    rows = [row for _, row in read_cells(workbook(tmp_path, {}))]
    assert rows == [["text", "label"], ["a cat", "good"]]


INLINE = b'<c r="A1" t="inlineStr"><is><t>x</t></is></c>'
CASES = {
    "large": {"xl/other.xml": bytes(100 << 20)},
    "cut XML": {SHEET: b"<worksheet"},
    "no XML": {SHEET: b"x"},
    "empty sheet": {SHEET: b""},
    "no sheet": {SHEET: None},
    "no workbook": {"xl/workbook.xml": b"<workbook/>"},
    "deep workbook": {"xl/workbook.xml": b"<workbook>" + b"<a>" * 100_000},
    "no types": {"[Content_Types].xml": b""},
    "far text": sheet(b'<row r="1"><c r="A1" t="s"><v>99</v></c></row>'),
    "negative text": sheet(b'<row r="1"><c r="A1" t="s"><v>-99</v></c></row>'),
    "no number": sheet(b'<row r="1"><c r="A1"><v>x</v></c></row>'),
    "far row": sheet(b'<row r="1">' + INLINE + b'</row><row r="99999999999"/>'),
    "odd row": sheet(b'<row r="x">' + INLINE + b"</row>"),
    "odd column": sheet(b'<row r="1"><c r="AAAAAAAAAA1"><v>1</v></c></row>'),
    "declarations": {TEXTS: b'<!DOCTYPE x [<!ENTITY a "aaaa">]><sst ' + NAMESPACE + b">&a;</sst>"},
    "UTF-16": {TEXTS: "<sst><si/></sst>".encode("utf-16")},
}


@pytest.mark.parametrize("case", CASES)
def test_workbooks_that_are_refused(tmp_path, case):
    path = workbook(tmp_path, CASES[case])
    with refuses():
        for _ in read_cells(path):
            pass


def test_limits_on_texts_and_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(workbooks, "MAX_TEXTS", 1000)
    monkeypatch.setattr(workbooks, "READ_BYTES", 1000)
    with refuses():
        list(read_cells(workbook(tmp_path, texts(b"<si><t/></si>" * 1001))))
    # Each is counted once, wherever the parts of the file end.
    list(workbooks.read_workbook(workbook(tmp_path, texts(b"<si><t>text</t></si>" * 1000))))
    monkeypatch.setattr(workbooks, "MAX_CELLS", 1000)
    rows = b'<row><c r="XFD1"/></row>'
    with refuses():
        list(read_cells(workbook(tmp_path, sheet(rows))))


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\3\4" + bytes(100), b"\x80\4N."])
def test_workbooks_that_are_no_zip_files(tmp_path, content):
    path = tmp_path / "table.xlsx"
    path.write_bytes(content)
    with refuses():
        list(read_cells(str(path)))


@pytest.mark.slow
def test_ten_million_texts(tmp_path):
    path = workbook(tmp_path, texts(b"<si/>" * 10_000_000))
    with refuses():
        list(read_cells(path))


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def numbers(shape: str, kind: str = "<f4") -> bytes:
    return header(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n")


ARRAYS = {
    "empty": b"",
    "negative": numbers("(-1, 4)") + bytes(16),
    "twice negative": numbers("(-1, -4)") + bytes(16),
    "huge": numbers("(10000000000000, 4)") + bytes(16),
    "beyond integers": numbers(f"({10**30},)") + bytes(16),
    "objects": numbers("(1,)", "|O") + b"\x80\4N.",
    "short": numbers("(4,)") + bytes(15),
    "long": numbers("(4,)") + bytes(17),
    "no shape": header("5"),
    "deep": header("(" * 5000),
    "a header of gigabytes": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31),
    "a zip": b"PK\3\4" + bytes(50),
    "a pickle": b"\x80\4N.",
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_that_are_refused(tmp_path, case):
    path = tmp_path / "ids.ends.npy"
    path.write_bytes(ARRAYS[case])
    (tmp_path / "ids.utf8").write_bytes(b"")
    for read in (map_array, lambda file: Strings(file.parent, "ids")):
        with refuses() as caught:
            read(path)
        assert path.name in str(caught.value)


@pytest.mark.parametrize("case", [case for case in ARRAYS if case != "long"])
def test_files_of_arrays_that_are_refused(tmp_path, case):
    path = tmp_path / "tokens.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vectors.npy", ARRAYS[case])
    with refuses() as caught:
        TokenIndex.load(path)
    assert path.name in str(caught.value)


def test_a_file_of_arrays_that_unpacks_to_gigabytes(tmp_path):
    content = numbers("(200000000,)", "|i1") + bytes(200_000_000)
    path = write_zip(tmp_path / "tokens.npz", {"vectors.npy": content})
    with refuses() as caught:
        TokenIndex.load(path)
    assert path.name in str(caught.value)


def test_arrays_that_are_read(tmp_path):
    path = tmp_path / "x.npy"
    for array in (np.ones([3, 2], np.float32), np.zeros([0, 4]), np.array(["a", "bc"])):
        np.save(path, array)
        assert map_array(path).dtype == array.dtype
        np.testing.assert_array_equal(map_array(path), array)
    write(tmp_path, "ids", ["a", "\u00e4"])
    assert list(Strings(tmp_path, "ids")) == ["a", "\u00e4"]
