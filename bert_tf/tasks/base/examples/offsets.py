"""Offsets in a text that another program counted in other units than Unicode's code points.

JavaScript counts UTF-16 units (two for an emoji), Go and Rust count bytes of UTF-8; programs
that write files on Windows count two characters for a line break, and others one.
"""

from collections.abc import Callable

from absl import logging


def _utf16(text: str, offset: int) -> int:
    return len(text.encode("utf-16-le")[: 2 * offset].decode("utf-16-le"))


def _utf8(text: str, offset: int) -> int:
    return len(text.encode("utf8")[:offset].decode("utf8"))


def _two_for_a_break(text: str, offset: int) -> int:
    head = text.replace("\n", "\r\n")[:offset]
    return len(head) - head.count("\r\n")


def _one_for_a_break(text: str, offset: int) -> int:
    head = text.replace("\r\n", "\n")[:offset]
    return len(head) + head.count("\n")


_COUNTS = {
    "UTF-16 units": _utf16,
    "bytes of UTF-8": _utf8,
    "characters, two for a line break": _two_for_a_break,
    "characters, one for a line break": _one_for_a_break,
}
_SIZES: dict[str, Callable[[str], int]] = {
    "UTF-16 units": lambda text: len(text.encode("utf-16-le")) // 2,
    "bytes of UTF-8": lambda text: len(text.encode("utf8")),
    "characters, two for a line break": lambda text: len(text.replace("\n", "\r\n")),
    "characters, one for a line break": lambda text: len(text.replace("\r\n", "\n")),
}


def find_unit(count_wrong: Callable[[str], int], source: str) -> str:
    """Returns the unit in which the fewest offsets of a file are wrong; "" for code points.

    Args:
      count_wrong: returns how many are wrong in a unit.
      source: the file, for the log.
    """
    found = ""
    fewest = count_wrong("")
    for unit in _COUNTS:
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
    if not 0 <= offset <= _SIZES[unit](text):
        raise ValueError(f"offset {offset} is outside of the text")
    try:
        return _COUNTS[unit](text, offset)
    except UnicodeDecodeError:
        raise ValueError(f"offset {offset} is within a character") from None
