"""Splits texts into words, in scripts with or without spaces between words."""

import re

# Ideographs, kana and their marks; Thai, Lao, Myanmar, Khmer. Hangul has spaces.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0002fa1f"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")
# The patterns of words for BM25, after `with_pairs`. Lucene's StandardTokenizer keeps words of one
# character, such as C in "vitamin C"; indexes of earlier releases were searched without them.
TOKEN_PATTERNS = {"one_character": r"(?u)\b\w+\b", "two_characters": r"(?u)\b\w\w+\b"}
# The stemmer of PyStemmer for each language of BM25; "other" has none.
STEMMERS = {
    "ar": "arabic",
    "ca": "catalan",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hi": "hindi",
    "hu": "hungarian",
    "id": "indonesian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sv": "swedish",
    "tr": "turkish",
    "other": "",
}
_RUN = re.compile(rf"[{_UNSPACED}]+")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Returns start and end of each word: text between spaces, or one character without spaces.

    Example: word_spans("An 東京") == [(0, 2), (3, 4), (4, 5)]
    """
    return [match.span() for match in _WORD.finditer(text)]


def with_pairs(text: str) -> str:
    """Replaces runs without spaces by the pairs of neighbouring characters.

    Lucene's CJKBigramFilter does the same, so that a search can match parts of a run. A single
    character is kept.

    Example: with_pairs("in 東京都") == "in  東京 京都 "
    """
    return _RUN.sub(_pairs, text)


def _pairs(match: re.Match[str]) -> str:
    run = match[0]
    pairs = [run[start : start + 2] for start in range(len(run) - 1)] or [run]
    return f" {' '.join(pairs)} "
