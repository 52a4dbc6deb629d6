"""Damage to files, for the tests of their readers."""

import pathlib


def flip_a_bit(path: pathlib.Path, offset: int | None = None) -> None:
    """Flips a bit of a byte of a file, by default of the one in its middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if offset is None else offset] ^= 1
    path.write_bytes(content)
