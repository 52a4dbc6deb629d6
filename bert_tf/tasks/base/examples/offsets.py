"""Offsets in a text that another program counted in other units than Unicode's code points.

JavaScript counts UTF-16 units (two for an emoji), Go and Rust count bytes of UTF-8; programs
that write files on Windows count two characters for a line break, and others one.
"""

from collections.abc import Callable

from absl import logging

# Encoding, and bytes of a unit.
_ENCODINGS = {"UTF-16 units": ("utf-16-le", 2), "bytes of UTF-8": ("utf8", 1)}
# A line break of the text, and how the other program counted it.
_LINE_BREAKS = {
    "characters, two for a line break": ("\n", "\r\n"),
    "characters, one for a line break": ("\r\n", "\n"),
}


def find_unit(count_wrong: Callable[[str], int], source: str) -> str:
    """Returns the unit in which the fewest offsets of a file are wrong; "" for code points.

    `count_wrong` returns how many are wrong in a unit; `source` is the file, for the log.
    """
    found = ""
    fewest = count_wrong("")
    for unit in (*_ENCODINGS, *_LINE_BREAKS):
        # A single wrong offset does not make the others those of code points.
        if fewest and (wrong := count_wrong(unit)) < fewest:
            found = unit
            fewest = wrong
    if found:
        logging.info("%s: offsets are counted in %s, and are converted.", source, found)
    return found


def is_at(words: str, text: str, offset: int, unit: str) -> bool:
    """Returns whether words are at an offset of a text."""
    try:
        return text.startswith(words, code_points(text, offset, unit))
    except ValueError:
        return False


def code_points(text: str, offset: int, unit: str) -> int:
    """Returns an offset in code points.

    Raises:
      ValueError: if it is negative, behind the text, or within a character.
    """
    if not unit:
        return offset
    if unit in _ENCODINGS:
        encoding, num_bytes = _ENCODINGS[unit]
        counted: str | bytes = text.encode(encoding)
        end = num_bytes * offset
    else:
        counted = text.replace(*_LINE_BREAKS[unit])
        end = offset
    if not 0 <= end <= len(counted):
        raise ValueError(f"offset {offset} is outside of the text")
    before = counted[:end]
    if isinstance(before, str):
        return len(before.replace(*_LINE_BREAKS[unit][::-1]))
    try:
        return len(before.decode(encoding))
    except UnicodeDecodeError:
        raise ValueError(f"offset {offset} is within a character") from None
