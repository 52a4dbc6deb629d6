"""Unicode normalization form NFC as in Hugging Face's tokenizers 0.23.

That library knows fewer characters than Python. It treats those of `_UNKNOWN` like letters: they
are neither sorted nor composed, and they separate the characters on both sides.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator

from bert_tf.text.byte_level import read_ranges

# Marks and composed characters added to Unicode after 8.0: first and last code points of ranges.
_UNKNOWN = """
    5c8-5c9 7fd 897-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1af0 1df6-1dfa a82c 105c9 105e4
    10d24-10d27 10d69-10d6d 10eab-10eac 10ecb-10ecf 10ef0-10efb 10efd-10eff 10f46-10f50 10f82-10f85
    11070 1133b 11383 11385 1138e 11391 113b8 113bb 113c2 113c5 113c7-113c9 113ce-113d0 1145e
    11839-1183a 11930 11938 1193d-1193e 11943 119e0 11a34 11a47 11a99 11d42 11d44-11d45 11d97
    11f41-11f42 1611e-1611f 16120-16129 1612f 16d67-16d6a 16ff0-16ff1 1d127-1d128 1d250-1d252
    1d25b-1d25c 1d25f 1d280-1d281 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef 1e6e3
    1e6e6 1e6ee-1e6ef 1e6f5
"""


def normalize(text: str) -> str:
    """Returns the text in NFC."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text
    segments = (text[start:end] for start, end in segment(text))
    return "".join(unicodedata.normalize("NFC", part) for part in segments)


def segment(text: str) -> Iterator[tuple[int, int]]:
    """Yields start and end of the shortest segments that NFC can change independently."""
    return (match.span() for match in _segment_pattern().finditer(text))


@functools.cache
def unknown_characters() -> frozenset[str]:
    """Returns the characters that are treated like letters."""
    characters: set[str] = set()
    for first, last in read_ranges(_UNKNOWN):
        characters.update(map(chr, range(first, last + 1)))
    return frozenset(characters)


@functools.cache
def composing_characters() -> frozenset[str]:
    """Returns the characters that may be sorted or composed with the characters before them.

    These are the marks with a combining class, the second characters of canonical decompositions,
    Hangul's vowels and final consonants, and characters whose decomposition starts with one.
    """
    hangul = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
    composing = set(map(chr, hangul))
    for char in map(chr, range(0x20000)):
        parts = unicodedata.decomposition(char).split()
        if unicodedata.combining(char):
            composing.add(char)
        if len(parts) == 2 and not parts[0].startswith("<"):
            composing.add(chr(int(parts[1], 16)))
    composing |= {
        char
        for char in map(chr, range(0x20000))
        if unicodedata.normalize("NFD", char)[0] in composing
    }
    return frozenset(composing - unknown_characters())


@functools.cache
def _segment_pattern() -> re.Pattern:
    unknown = "".join(sorted(map(re.escape, unknown_characters())))
    composing = "".join(sorted(map(re.escape, composing_characters())))
    # An unknown character alone, or any character with those that may compose with it.
    return re.compile(f"[{unknown}]|[\\s\\S][{composing}]*")
