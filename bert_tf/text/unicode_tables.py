"""The rules of google-research/bert's tokenization.py for each Unicode character, as tables.

The rules are derived from Python's `unicodedata`, so the plain-Python tokenizer and the one in the
TensorFlow graph have the same Unicode version. The first matching kind applies:

  deleted      U+0000, U+FFFD and the categories Cc and Cf (tab, newline, return are white space)
  white space  tab, newline, return and Zs; also U+2028 and U+2029, at which `str.split` splits
  isolated     a word by itself: CJK ideograph, ASCII that is no letter or digit, or category P
  ordinary     everything else, including unassigned and private-use characters

The uncased rules first replace a character by its lower case, decomposed (NFD, so a Hangul
syllable becomes its jamo) and without marks (Mn). All steps except two consider one character
alone: the lower case of a capital sigma depends on its neighbours, and NFD sorts consecutive marks.
Some models' tokenizers do only one of both, lower-casing or decomposing without marks.
"""

import functools
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

ORDINARY, SPACE, ISOLATED, MARK = range(4)
CAPITAL_SIGMA = 0x3A3
FINAL_SIGMA = 0x3C2
CASED = 1
CASE_IGNORABLE = 2

NUM_CODE_POINTS = 0x110000
PAGE_SIZE = 128
# A value of CodePointTables.expansion is a distance, or from here on the index of a long expansion.
LONG = 1 << 22

_CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
# The joiners, and circled or squared letters, which Unicode counts as alphabetic symbols.
_OTHER_WORD_CHARACTERS = (
    (0x200C, 0x200D),
    (0x24B6, 0x24E9),
    (0x1F130, 0x1F149),
    (0x1F150, 0x1F169),
    (0x1F170, 0x1F189),
)


def is_deleted(char: str) -> bool:
    """Returns whether the character is deleted, so that its neighbours become adjacent."""
    if char in "\t\n\r":
        return False
    return char in "\x00\ufffd" or unicodedata.category(char) in ("Cc", "Cf")


def is_whitespace(char: str) -> bool:
    """Returns whether a character that is not deleted separates words."""
    return char in "\t\n\r\u2028\u2029" or unicodedata.category(char) == "Zs"


def is_cjk(char: str) -> bool:
    """Returns whether the character is in the original's eight ranges of ideographs."""
    return any(first <= ord(char) <= last for first, last in _CJK_RANGES)


def is_punctuation(char: str) -> bool:
    """Returns whether the character is in category P or an ASCII symbol."""
    # ASCII symbols such as $ and + are not in category P, but the original splits at them.
    if "!" <= char <= "~":
        return not char.isalnum()
    return unicodedata.category(char).startswith("P")


def is_isolated(char: str) -> bool:
    """Returns whether the character is always a word by itself."""
    return is_cjk(char) or is_punctuation(char)


def is_word_character(char: str) -> bool:
    r"""Returns whether the character matches \w in Rust's regular expressions.

    These are letters, marks, decimal digits, connectors such as the underscore, joiners and circled
    letters.
    """
    category = unicodedata.category(char)
    if category[0] in "LM" or category in ("Nd", "Nl", "Pc"):
        return True
    return any(first <= ord(char) <= last for first, last in _OTHER_WORD_CHARACTERS)


class _LazyTable(dict):
    """Table for `str.translate` that computes an entry when it is first used."""

    def __init__(self, rule: Callable[[str], str]):
        super().__init__()
        self._rule = rule

    def __missing__(self, code_point: int) -> str:
        self[code_point] = value = self._rule(chr(code_point))
        return value


def _clean(char: str) -> str:
    if is_cjk(char):
        return f" {char} "
    return _clean_only(char)


def _clean_only(char: str) -> str:
    if is_deleted(char):
        return ""
    return " " if is_whitespace(char) else char


def _part(char: str) -> str:
    return f" {char} " if is_punctuation(char) else char


def _part_and_strip(char: str) -> str:
    return "" if unicodedata.category(char) == "Mn" else _part(char)


CLEAN = _LazyTable(_clean)
CLEAN_ONLY = _LazyTable(_clean_only)  # Ideographs are not separated.
PART = _LazyTable(_part)
PART_AND_STRIP = _LazyTable(_part_and_strip)
STRIP = _LazyTable(lambda char: "" if unicodedata.category(char) == "Mn" else char)


class PagedTable(NamedTuple):
    """One value per code point; equal pages are stored once.

    The value of code point c is `pages[page_of[c // PAGE_SIZE] * PAGE_SIZE + c % PAGE_SIZE]`.
    """

    page_of: np.ndarray  # int32 [NUM_CODE_POINTS / PAGE_SIZE]
    pages: np.ndarray  # [unique pages * PAGE_SIZE], flat

    @classmethod
    def pack(cls, values: np.ndarray) -> "PagedTable":
        """Packs one value per code point, [NUM_CODE_POINTS]."""
        # `np.unique` sorts the pages, which takes 50 times as long.
        indices: dict[bytes, int] = {}
        page_of = []
        for page in values.reshape(-1, PAGE_SIZE):
            page_of.append(indices.setdefault(page.tobytes(), len(indices)))
        pages = np.frombuffer(b"".join(indices), values.dtype)
        return cls(np.array(page_of, np.int32), pages)


class CodePointTables(NamedTuple):
    """The rules for one casing, for use in a TensorFlow graph.

    A code point c becomes c + d where its `expansion` d is below LONG; otherwise the characters
    `long_values[long_splits[i] : long_splits[i + 1]]` with i = d - LONG (none: it is deleted).
    """

    expansion: PagedTable  # int32
    long_values: np.ndarray  # int32, with a 0 at the end, so that it is never empty
    long_splits: np.ndarray  # int32
    kind: PagedTable  # uint8, of an expanded code point: ORDINARY SPACE ISOLATED MARK
    combining_class: PagedTable  # uint8, of an expanded code point; 0 where its order is fixed
    casing: PagedTable  # uint8, CASED or CASE_IGNORABLE or 0, the neighbours of a sigma


@functools.cache
def assigned_code_points() -> list[int]:
    """Returns the code points with a meaning of their own in Unicode, a quarter of all.

    Left out are unassigned, private-use and surrogate code points, which no rule changes.
    """
    codes = []
    for code_point in range(NUM_CODE_POINTS):
        if unicodedata.category(chr(code_point)) not in ("Cn", "Co", "Cs"):
            codes.append(code_point)
    return codes


@functools.cache
def code_point_tables(
    do_lower_case: bool, strip_accents: bool, splits_ideographs: bool = True
) -> CodePointTables:
    """Builds the tables of one set of rules (half a second, once a process)."""
    expansion = np.zeros(NUM_CODE_POINTS, np.int32)
    kind = np.full(NUM_CODE_POINTS, ORDINARY, np.uint8)
    combining = np.zeros(NUM_CODE_POINTS, np.uint8)
    casing = np.zeros(NUM_CODE_POINTS, np.uint8)
    rows: dict[str, int] = {}
    for code_point in assigned_code_points():
        char = chr(code_point)
        category = unicodedata.category(char)
        expanded = _expand(char, do_lower_case, strip_accents)
        if len(expanded) == 1:
            expansion[code_point] = ord(expanded) - code_point
        else:
            expansion[code_point] = LONG + rows.setdefault(expanded, len(rows))
        if is_whitespace(char):
            kind[code_point] = SPACE
        elif is_punctuation(char):
            kind[code_point] = ISOLATED
        elif strip_accents and category == "Mn":
            kind[code_point] = MARK
        # Marks of category Mn were removed, or have class 0 and keep their position.
        if strip_accents and category != "Mn":
            combining[code_point] = unicodedata.combining(char)
        if do_lower_case:
            casing[code_point] = _casing(char)
    if splits_ideographs:
        for first, last in _CJK_RANGES:  # including unassigned code points
            kind[first : last + 1] = ISOLATED
    return CodePointTables(
        expansion=PagedTable.pack(expansion),
        long_values=np.array([*map(ord, "".join(rows)), 0], np.int32),
        long_splits=np.cumsum([0, *map(len, rows)], dtype=np.int32),
        kind=PagedTable.pack(kind),
        combining_class=PagedTable.pack(combining),
        casing=PagedTable.pack(casing),
    )


@functools.cache
def word_characters(with_ideographs: bool) -> PagedTable:
    """Returns bool values, true for `is_word_character`; ideographs only where asked for."""
    values = np.zeros(NUM_CODE_POINTS, np.bool_)
    for code_point in assigned_code_points():
        values[code_point] = is_word_character(chr(code_point))
    if not with_ideographs:
        for first, last in _CJK_RANGES:
            values[first : last + 1] = False
    return PagedTable.pack(values)


def _expand(char: str, do_lower_case: bool, strip_accents: bool) -> str:
    """Returns the replacement of a character before marks are sorted.

    A mark (Mn) of combining class 0 is kept: marks are not sorted across it, so it can be removed
    only after sorting.
    """
    if is_deleted(char):
        return ""
    if do_lower_case:
        char = char.lower()
    if not strip_accents:
        return char
    kept = []
    for part in unicodedata.normalize("NFD", char):
        if unicodedata.category(part) != "Mn" or unicodedata.combining(part) == 0:
            kept.append(part)
    return "".join(kept)


def _casing(char: str) -> int:
    """Returns the role of a character in Python's rule for the final sigma.

    A sigma is final after a cased letter, unless a cased letter follows; ignorable characters are
    skipped.
    """
    if is_deleted(char):
        return CASE_IGNORABLE  # deleted before lower-casing
    # Python's own rule, applied to a capital sigma behind the character.
    if (char + "\u03a3").lower()[-1] == "\u03c2":
        return CASED
    return CASE_IGNORABLE if ("a" + char + "\u03a3").lower()[-1] == "\u03c2" else 0
