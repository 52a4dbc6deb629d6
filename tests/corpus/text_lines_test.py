"""Lines from any offset of a file; long ones in the same pieces wherever reading begins."""

import io
import random
import re

import pytest

from bert_tf.corpus import text_lines
from bert_tf.corpus.text_lines import (
    line_number,
    numbered_lines,
    read_lines,
    read_whole_lines,
)


def slow_lines(data: bytes, block: int) -> list[tuple[int, str]]:
    """Finds all places where lines begin in the whole file at once, and cuts there."""
    window = block // 4
    begins = {0} | {match.end() for match in re.finditer(b"\n", data)}
    for multiple in range(block, len(data) - window + 1, block):
        if b"\n" not in data[multiple - window : multiple + window]:
            following = data[multiple : multiple + window]
            space = re.search(rb"\s+", following)
            character = re.search(rb"[\x00-\x7f\xc0-\xff]", following)
            begins.add(multiple + (space.end() if space else character.start()))
    cuts = sorted(begins | {len(data)})
    return [(a, data[a:b].decode()) for a, b in zip(cuts, cuts[1:], strict=False)]


@pytest.mark.parametrize("seed", range(8))
def test_equals_cutting_the_whole_wherever_reading_begins(monkeypatch, seed) -> None:
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 64)
    rng = random.Random(seed)
    pieces = [
        rng.choice("aé今") * rng.choice([1, 3, 30]) + rng.choice(" \t\n\r") for _ in range(90)
    ]
    data = "".join(pieces).encode()
    expected = slow_lines(data, 64)
    assert max(len(line.encode()) for _, line in expected) <= 96
    for start in range(len(data) + 1):
        found = list(read_lines(io.BytesIO(data), "a", start))
        assert [item for item in found if item[0] >= start] == (
            [item for item in expected if item[0] >= start]
        )
        # A line from before tells what precedes.
        if start:
            before = max(item for item in expected if item[0] < start)
            assert before in found


def test_where_a_long_line_is_cut() -> None:
    block = text_lines.BLOCK_BYTES
    assert block == 256 << 10
    # 12 bytes a word with its space; 262,144 = 12 * 21,845 + 4, so the word there ends at
    # 12 * 21,846 = 262,152; and the last multiple has less than 64 KiB behind it.
    line = b"elevenbytes " * 50_000
    offsets = [offset for offset, _ in read_lines(io.BytesIO(line), "a", 0)]
    assert offsets == [0, 262_152, 524_292]
    whole = b"\n" * (block - 65_000) + b"x" * 130_000  # ends in the 64 KiB behind the multiple
    assert [offset for offset, _ in read_lines(io.BytesIO(whole), "a", 0)][-1] == block - 65_000
    # Without white space: between characters of three bytes; 262,144 = 3 * 87,381 + 1.
    ideographs = "今".encode() * 200_000
    assert [offset for offset, _ in read_lines(io.BytesIO(ideographs), "a", 0)] == (
        [0, 262_146, 524_289]
    )


def test_line_break_of_two_bytes_is_not_parted() -> None:
    block = text_lines.BLOCK_BYTES
    data = b"x" * (block - 1) + b" \r\n" + b"y" * 100_000
    assert [line[0] for _, line in read_lines(io.BytesIO(data), "a", 0)] == ["x", "y"]


def test_whole_lines_begin_between_start_and_stop() -> None:
    data = b"one\ntwo" + b"o" * 50 + b"\n\nfour"
    expected = [(0, "one\n"), (4, "tw" + "o" * 51 + "\n"), (58, "\n"), (59, "four")]
    for start in range(len(data) + 1):
        for stop in range(start, len(data) + 1):
            found = list(read_whole_lines(io.BytesIO(data), "a", start, stop))
            assert found == [item for item in expected if start <= item[0] < stop]


def test_a_line_that_is_too_long_for_a_record(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(text_lines, "MAX_LINE_BYTES", 50)
    good, bad = b"x" * 49 + b"\n", b"y" * 51
    (tmp_path / "a").write_bytes(good + bad)
    path, file = str(tmp_path / "a"), io.BytesIO(good + bad)
    message = "/a, line 2 .* 50 bytes"
    with pytest.raises(ValueError, match=message):
        list(read_whole_lines(file, path, 0, 99))
    file.seek(0)
    with pytest.raises(ValueError, match=message):
        list(numbered_lines(file, path))
    assert [number for number, _ in numbered_lines(io.BytesIO(good * 3), path)] == [1, 2, 3]


def test_the_rest_of_a_long_line_is_not_read_beyond_the_part() -> None:
    file = io.BytesIO(b"x" * (8 << 20) + b"\ny")
    assert list(read_whole_lines(file, "a", 1 << 20, 2 << 20)) == []
    assert file.tell() <= (2 << 20) + text_lines.BLOCK_BYTES


def test_line_number(tmp_path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo\n\nfour")
    assert [line_number(str(tmp_path / "a"), offset) for offset in (0, 3, 4, 8, 9)] == (
        [1, 1, 2, 3, 4]
    )
