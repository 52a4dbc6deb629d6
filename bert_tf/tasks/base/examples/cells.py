"""Reads lists that are written as text in a cell of a table, as pandas and NumPy write them.

['joy', 'love']    ["joy", "love"]    ['joy' 'love']    [0, 1, 1]    ('a', 'b')    {'a'}
[]    set()
"""

import contextlib
import json
import re
from typing import Any, TypeGuard

_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_ITEM = re.compile(
    r"""[\s,]*(?:
        (?P<text>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
        |(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
        |(?P<word>True|False|None|true|false|null|nan|NaN)
    )(?=[\s,]|$)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_WORDS = {"True": True, "true": True, "False": False, "false": False}


def looks_like_list(cell: object) -> TypeGuard[str]:
    """Returns whether a cell is a text that begins and ends with square brackets."""
    return isinstance(cell, str) and cell.strip()[:1] == "[" and cell.strip()[-1:] == "]"


def read_list(cell: str) -> list[Any] | None:
    """Returns the items of a list that is written out; None if the cell is not such a list.

    Items are quoted texts, numbers, true, false and None; NaN is None. A list in brackets of
    another kind is a tuple or a set: a single number in round brackets is neither.
    """
    text = cell.strip()
    if text == "set()":  # How Python writes an empty set.
        return []
    opening = text[:1]
    if opening not in _BRACKETS or len(text) < 2 or text[-1] != _BRACKETS[opening]:
        return None
    # A comma may follow the last item, as in (1,).
    inner = text[1:-1].rstrip(" \t\r\n,")
    items: list[Any] = []
    end = 0
    while end < len(inner):
        match = _ITEM.match(inner, end)
        if match is None:
            return None
        items.append(_read_item(match))
        end = match.end()
    has_comma = text[:-1].rstrip().endswith(",")
    if opening == "(" and (len(items) == 1) and not has_comma or opening == "{" and not items:
        return None  # (1) is a number in brackets, and {} an empty object.
    return items


def as_list(value: object) -> Any:
    """Returns the value of a column of lists: one that is written out in a cell as a list."""
    if not looks_like_list(value):
        return value
    items: Any = read_list(value)
    if items is None and value.strip()[1:].lstrip()[:1] in ("{", "["):
        # Lists of spans, which Label Studio and doccano write as JSON.
        with contextlib.suppress(ValueError, RecursionError):
            items = json.loads(value)
    return value if items is None else items


def _read_item(match: re.Match[str]) -> Any:
    if text := match["text"]:
        unescaped = _ESCAPE.sub(_unescape, text[1:-1])
        # JSON writes a character beyond \uffff as two halves.
        return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if number := match["number"]:
        if re.fullmatch(r"[+-]?\d+", number):
            return int(number)
        return float(number)
    return _WORDS.get(match["word"])


def _unescape(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code:
        if int(code, 16) < 0x110000:
            return chr(int(code, 16))
        return "\ufffd"
    return _ESCAPED.get(match[4], match[4])
