"""The order of marks after a letter in Unicode's normal forms, as `tokenizers` sorts them."""

import functools
import sys
import unicodedata

import tokenizers

_LOWEST = "\u0334"  # of class 1
_HIGH = "\u0315"  # of class 232


@functools.cache
def combining_classes() -> dict[str, int]:
    """Returns the combining class of each mark, where it is not 0.

    Marks of a Unicode version that `tokenizers` does not know are left out: it does not sort them.
    """
    classes = {}
    for code in range(sys.maxunicode + 1):
        found = unicodedata.combining(chr(code))
        if found:
            classes[chr(code)] = found
    lines = []
    expected = []
    for mark, number in classes.items():
        low, high = (_LOWEST, mark) if number > 1 else (mark, _HIGH)
        lines.append(f"a{high}{low}")
        expected.append(f"a{low}{high}")
    sorted_lines = tokenizers.normalizers.NFKD().normalize_str("\n".join(lines)).split("\n")
    known = {}
    for mark, line, text in zip(classes, sorted_lines, expected, strict=True):
        if line == text:
            known[mark] = classes[mark]
    return known
