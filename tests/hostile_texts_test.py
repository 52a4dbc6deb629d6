"""Users' texts that attack: pipes, devices, loops of links, bombs, JSON that is deep or endless."""

import bz2
import gzip
import lzma
import os
import pathlib

import pytest

from bert_tf.corpus import corpus_format
from bert_tf.corpus.corpus import list_parts, read_documents
from bert_tf.corpus.corpus_format import open_decompressed
from bert_tf.search.documents import read_file
from bert_tf.system.files import read_json_data
from bert_tf.tasks.base.examples.tables import read_cells, read_json_rows
from bert_tf.tasks.question_answering.sources import read_paragraphs
from tests.hostile_files import MEGABYTE, MOST_BYTES, refuses


def read_compressed(path: str) -> bytes:
    with open_decompressed(path) as file:
        return file.read(1)


ENDINGS = {"cells": ".csv", "passages": ".txt"}
READERS = {
    "text": read_compressed,
    "cells": read_cells,
    "rows": read_json_rows,
    "document": read_json_data,
    "questions": read_paragraphs,
    "passages": read_file,
}


def read_all(name: str, path: pathlib.Path) -> None:
    for _ in READERS[name](str(path)):
        pass


def pipe(path: pathlib.Path) -> pathlib.Path:
    os.mkfifo(path)
    return path


def loop(path: pathlib.Path) -> pathlib.Path:
    path.symlink_to(path)
    return path


def folder(path: pathlib.Path) -> pathlib.Path:
    path.mkdir()
    return path


def device(path: pathlib.Path) -> pathlib.Path:
    path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("make", [pipe, loop, folder, device])
@pytest.mark.parametrize("reader", READERS)
def test_only_regular_files_are_read(tmp_path, reader, make):
    path = make(tmp_path / f"data{ENDINGS.get(reader, '.json')}")
    with refuses():
        read_all(reader, path)


@pytest.mark.parametrize("make", [pipe, loop, folder, device])
def test_only_regular_files_are_a_corpus(tmp_path, make):
    with refuses():
        list_parts(str(make(tmp_path / "data.txt")))


def bomb(path: pathlib.Path, line: bytes, opener, megabytes: int = 100) -> pathlib.Path:
    options = {"preset": 0} if opener is lzma.open else {"compresslevel": 9}
    block = line * (MEGABYTE // len(line))
    with opener(path, "wb", **options) as file:
        for _ in range(megabytes):
            file.write(block)
    return path


@pytest.mark.parametrize(
    ("ending", "opener"),
    [
        (".gz", gzip.open),
        (".xz", lzma.open),
        (".bz2", bz2.open),
    ],
)
def test_bombs_are_refused(tmp_path, monkeypatch, ending, opener):
    """Lines of which each is fine: the ratio tells."""
    monkeypatch.setattr(corpus_format, "FREE_ARCHIVE_BYTES", MEGABYTE)
    path = bomb(tmp_path / f"table.csv{ending}", b"x\n", opener, megabytes=10)
    with refuses(), open_decompressed(str(path)) as file:
        while file.read(MEGABYTE):
            pass


def test_a_line_without_an_end(tmp_path):
    path = bomb(tmp_path / "table.csv.gz", b"x", gzip.open)
    with refuses(most=3 * MOST_BYTES):
        read_all("cells", path)


def test_large_texts_that_are_compressed_as_texts_are(tmp_path):
    """More than any size that is allowed without a look at the ratio."""
    path = tmp_path / "text.gz"
    # Bytes without a line feed may look like a text with other line ends.
    block = b"\n" + os.urandom(MEGABYTE // 8) + bytes(MEGABYTE - MEGABYTE // 8 - 1)
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(80):
            file.write(block)
    size = 0
    with open_decompressed(str(path)) as file:
        while part := file.read(MEGABYTE):
            size += len(part)
        assert size == 80 * MEGABYTE
        file.seek(5)
        assert file.read(3) == block[5:8] and file.tell() == 8


JSON = {
    "deep list": b"[" * 100_000,
    "deep object": b'{"data": ' * 100_000,
    "integer": b'{"data": 1' + b"0" * 1_000_000 + b"}",
    "integer in a list": b'[{"data": 1' + b"0" * 1_000_000 + b"}]",
}


@pytest.mark.parametrize("reader", ["rows", "document", "questions"])
@pytest.mark.parametrize("case", JSON)
def test_json_without_bounds(tmp_path, case, reader):
    path = tmp_path / "data.json"
    path.write_bytes(JSON[case])
    with refuses():
        read_all(reader, path)


@pytest.mark.parametrize("case", JSON)
def test_json_lines_without_bounds_as_a_corpus(tmp_path, case):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"text": "a cat"}\n' + JSON[case] + b"\n")
    with refuses():
        for part in list_parts(str(path)):
            for _ in read_documents(part):
                pass


@pytest.mark.parametrize("reader", ["document", "questions", "rows"])
def test_a_huge_document_is_not_parsed(tmp_path, reader):
    path = tmp_path / "data.json"
    with path.open("wb") as file:
        file.write(b'{"data": "')
        file.truncate(500 * MEGABYTE)  # Takes no room on the disk.
    with refuses(most=8 * MOST_BYTES):
        read_all(reader, path)
