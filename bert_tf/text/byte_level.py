"""Splits text into words for byte-level BPE, and maps bytes to characters (GPT-2's encoder.py).

A word is the longest match of

    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+

so the concatenation of a text's words is the text. \\p{L}, \\p{N} and \\s are defined as in the
installed version of Hugging Face's `tokenizers`, and not as in the running Python or in RE2.
"""

import functools
import re

import tokenizers

# The characters with Unicode's property White_Space.
SPACES = (
    "".join(map(chr, (*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B))))
    + "\u2028\u2029\u202f\u205f\u3000"
)
OTHER, LETTER, NUMBER, SPACE = range(4)
# Planes 0 to 3; the others have neither letters nor numbers.
_LAST = 0x3FFFF

# A space, as it is written in tokens; the first token of a word starts with it.
SPACE_MARK = "Ġ"


def _list_byte_characters() -> str:
    """Returns the character that represents each byte: itself, or one from U+0100 on."""
    # The visible characters of Latin-1: all but spaces, controls and the soft hyphen (U+00AD).
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    characters = []
    for byte in range(256):
        characters.append(chr(byte if byte in printable else next(others)))
    return "".join(characters)


BYTE_CHARACTERS = _list_byte_characters()
BYTE_OF_CHARACTER = {char: byte for byte, char in enumerate(BYTE_CHARACTERS)}

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def split_words(text: str) -> list[str]:
    """Splits text into words; a word includes the space before it, as in " a".

    Example: split_words("It's 10  o'clock") == ["It", "'s", " 10", " ", " o", "'", "clock"].
    """
    if text.isascii():
        return _word_pattern(0x7F).findall(text)
    return _word_pattern(0x10FFFF if _ASTRAL.search(text) else 0xFFFF).findall(text)


def replace_surrogates(text: str) -> str:
    """Returns the text with U+FFFD instead of lone surrogates, which have no UTF-8."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


@functools.cache
def code_point_ranges(kind: int, last: int = _LAST) -> list[tuple[int, int]]:
    """Returns first and last code points of the ranges of a kind up to `last`, in order."""
    if kind == SPACE:
        return [(ord(char), ord(char)) for char in SPACES if ord(char) <= last]
    others = tokenizers.Regex(r"\P{L}" if kind == LETTER else r"\P{N}")
    characters = _SURROGATE.sub("\0", "".join(map(chr, range(min(last, _LAST) + 1))))
    kept = tokenizers.normalizers.Replace(others, "\0").normalize_str(characters)
    return [(match.start(), match.end() - 1) for match in re.finditer("[^\0]+", kept)]


def read_ranges(table: str) -> list[tuple[int, int]]:
    """Returns first and last of the hexadecimal code points in a table such as "41-5a aa"."""
    ranges = []
    for item in table.split():
        first, _, last = item.partition("-")
        ranges.append((int(first, 16), int(last or first, 16)))
    return ranges


@functools.cache
def _word_pattern(last: int) -> re.Pattern:
    """Returns the pattern of a word for texts without characters beyond `last`.

    One pattern for all texts would be slow: `re` has a table for characters of the first plane, but
    tries the ranges beyond it one by one, for every character that is in no range.
    """
    letter = _character_class(LETTER, last)
    number = _character_class(NUMBER, last)
    space = _character_class(SPACE, last)
    # Letters come first because most words consist of them. The kinds do not overlap.
    return re.compile(
        f" ?[{letter}]+|'(?:[stmd]|re|ve|ll)| ?[{number}]+| ?[^{space}{letter}{number}]+"
        f"|[{space}]+(?![^{space}])|[{space}]+"
    )


def _character_class(kind: int, last: int) -> str:
    """Returns the ranges of a kind up to `last` for a character class of `re`."""
    ranges = []
    for first, end in code_point_ranges(kind, last):
        ranges.append(f"{re.escape(chr(first))}-{re.escape(chr(end))}")
    return "".join(ranges)
