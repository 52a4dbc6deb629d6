"""Finds ends of sentences in scripts other than Latin, and cuts text that has no spaces.

The rules are those of Unicode, through the properties of `regex`:

  terminals   A character of UAX 29's class STerm ends a sentence, including what closes behind it:
              `。` `！` `？` `｡` `؟` `۔` `।` `॥` `።` `។` and others. No space needs to follow, but a
              comma or a dash continues the sentence. `!`, `?` and `.`, which need a space after
              other letters, end a sentence between two characters of a script without spaces (`.`
              only after Hiragana).
  long runs   The scripts of UAX 14's class SA (Thai, Lao, Khmer, Burmese ...) and Tibetan put
              spaces between phrases and have few or no terminals. A run that is too long is cut at
              its last space, otherwise after a comma, otherwise between two graphemes.
"""

import bisect
from collections.abc import Sequence

import regex

Span = tuple[int, int]

# Scripts without spaces between words, and the marks that only they use. Hangul has spaces.
_EAST_ASIAN = r"\p{Han}\p{Hiragana}\p{Katakana}ー"
UNSPACED = rf"{_EAST_ASIAN}\p{{LB=SA}}"
_PHRASED = r"\p{LB=SA}\p{Tibetan}"  # Tibetan marks the ends of syllables.
_WORD = regex.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
_WIDE = regex.compile(rf"[{_EAST_ASIAN}\u3000-\u303f\ufe10-\ufe1f\ufe30-\ufe4f\uff00-\uff60]")
# Western marks need a space. U+104A is of the class STerm, but a comma in Burmese.
_NOT_TERMINAL = "!?‼‽⁇⁈⁉⸮၊"
_SCRIPT_TERMINAL = rf"[\p{{SB=ST}}--[{_NOT_TERMINAL}]]"
_OPENER = r"[\p{Ps}\p{Pi}\"'¿¡]"
_TERMINAL = regex.compile(
    rf"{_SCRIPT_TERMINAL}[\p{{SB=ST}}.…--၊]*"
    rf"|(?<=[{_EAST_ASIAN}{_PHRASED}])[!?‼‽⁇⁈⁉]+(?=[\p{{Pe}}\p{{Pf}}\"']*{_OPENER}*[{_EAST_ASIAN}{_PHRASED}])"
    # After other letters than Hiragana it may be part of a name or an item number.
    rf"|(?<=\p{{Hiragana}})[.．](?=[\p{{Pe}}\p{{Pf}}]*(?:\s|{_OPENER}*[{_EAST_ASIAN}]))",
    regex.V1,
)
_CLOSERS = regex.compile(r"[\p{Pe}\p{Pf}*_]+")
_CONTINUES = regex.compile(r"[\p{SB=SC}―]")
_STRAIGHT_QUOTES = "\"'"

# The longest run without a terminal, in characters of these scripts: two or three lines of print.
LONGEST_RUN = 100
_PHRASED_CHARACTER = regex.compile(rf"[{_PHRASED}]")
# A space before a sign of repetition or abbreviation is part of the word.
_SPACE = regex.compile(r"\s++(?![ๆฯໆຯៗ])")
_AFTER_COMMA = regex.compile(
    r"(?<=[\p{SB=SC}\p{SB=ST}་།၊\p{Pe}\p{Pf}])(?![\p{SB=SC}\p{SB=ST}།\p{Pe}\p{Pf}])"
)
# Thai and Lao write some vowels before their consonant.
_GRAPHEME = regex.compile(r"[\u0e40-\u0e44\u0ec0-\u0ec4]?\X")


def word_spans(text: str) -> list[Span]:
    """Returns start and end of each word: text between spaces, or one character without spaces.

    Example: word_spans("An 東京") == [(0, 2), (3, 4), (4, 5)]
    """
    return [match.span() for match in _WORD.finditer(text)]


def split_at_terminals(text: str, span: Span) -> list[Span]:
    """Splits `text[start:end]` after the terminals of its script; together the parts are all of it.

    Example: split_at_terminals("今日は。明日は", (0, 7)) == [(0, 4), (4, 7)]
    """
    start, stop = span
    spans: list[Span] = []
    for match in _TERMINAL.finditer(text, start, stop):
        end = _closed(text, start, match.end(), stop)
        if end == stop or _CONTINUES.match(text, end):
            continue
        spans.append((start, end))
        start = end
    spans.append((start, stop))
    return spans


def _closed(text: str, start: int, end: int, stop: int) -> int:
    """Returns the end of the quotes and brackets that close at `end` in a sentence from `start`."""
    while end < stop:
        if closers := _CLOSERS.match(text, end, stop):
            end = closers.end()
        elif text[end] in _STRAIGHT_QUOTES and text.count(text[end], start, end) % 2:
            end += 1
        else:
            break
    return end


def split_long_run(text: str, span: Span) -> list[Span]:
    """Splits a sentence with more than LONGEST_RUN characters of scripts without terminals."""
    units = [match.span() for match in _PHRASED_CHARACTER.finditer(text, *span)]
    if len(units) <= LONGEST_RUN:
        return [span]
    starts = [units[index][0] for index in cut_units(text, units, LONGEST_RUN)]
    # Characters of other scripts before the first unit belong to the first part.
    starts[0] = span[0]
    return list(zip(starts, [*starts[1:], span[1]], strict=True))


def cut_units(text: str, units: Sequence[Span], limit: int) -> list[int]:
    """Returns the indices of the units with which parts of at most `limit` units begin.

    A part ends after `limit` units if a space follows there; otherwise at the last space in it,
    otherwise after its last comma, otherwise at its last boundary of graphemes. Parts of less than
    a quarter of the limit are avoided. A unit is the start and the end of a word, or of a character
    of a script without spaces.
    """
    first = 0
    starts = [0]
    while len(units) - first > limit:
        first = _next_start(text, units, first, first + limit, limit // 4)
        starts.append(first)
    return starts


def _next_start(text: str, units: Sequence[Span], first: int, last: int, shortest: int) -> int:
    """Returns the index, at most `last`, of the unit at which the part from unit `first` is cut."""
    low = units[first + shortest][0]
    high, end = units[last]
    for pattern in (_SPACE, _AFTER_COMMA):
        ends = [match.end() for match in pattern.finditer(text, low, end) if match.end() <= high]
        if ends:
            return bisect.bisect_left(units, (ends[-1], 0), first + 1)
    cut = units[first][0]
    for match in _GRAPHEME.finditer(text, cut):
        if match.end() > high:
            break
        cut = match.end()
    index = bisect.bisect_left(units, (cut, 0), first)
    return index if index > first else last  # A grapheme may be longer than a part.


def join_lines(lines: Sequence[str]) -> str:
    """Joins stripped lines, none empty, by spaces, but Chinese and Japanese lines without.

    Example: join_lines(["An", "old", "東", "京"]) == "An old 東京"
    """
    text = "".join(lines[:1])
    for line in lines[1:]:
        text += line_separator(text[-1], line[0]) + line
    return text


def line_separator(before: str, after: str) -> str:
    """Returns the replacement of a line break between two characters: a space, or nothing."""
    is_wide = _WIDE.match(before) and _WIDE.match(after)
    return "" if is_wide else " "


def columns(line: str) -> int:
    """Returns the width of a line on a terminal, where Chinese and Japanese characters take two."""
    if line.isascii():
        return len(line)
    return len(line) + len(_WIDE.findall(line))
