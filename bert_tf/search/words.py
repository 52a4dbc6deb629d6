"""Words of texts in any script: Chinese, Japanese and Thai do not put spaces between theirs."""

import re

# Ideographs, kana and their marks; Thai, Lao, Myanmar, Khmer. Hangul has spaces.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0002fa1f"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")
# How BM25 finds words after `with_pairs`. Lucene's StandardTokenizer keeps words of one character,
# as C in "vitamin C"; indexes of earlier releases were searched without them.
TOKEN_PATTERNS = {"one_character": r"(?u)\b\w+\b", "two_characters": r"(?u)\b\w\w+\b"}
_RUN = re.compile(rf"[{_UNSPACED}]+")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Returns begin and end of each word: what stands between spaces, or one unspaced character.

    Example: word_spans("An 東京") == [(0, 2), (3, 4), (4, 5)]
    """
    return [match.span() for match in _WORD.finditer(text)]


def with_pairs(text: str) -> str:
    """Returns a text with the pairs of neighbours in place of what is written without spaces.

    That is what Lucene's CJKBigramFilter makes of it, so that a search for words finds parts of
    such a run. A character by itself stays.

    Example: with_pairs("in 東京都") == "in  東京 京都 "
    """
    return _RUN.sub(_pairs, text)


def _pairs(match: re.Match[str]) -> str:
    run = match[0]
    pairs = [run[place : place + 2] for place in range(len(run) - 1)] or [run]
    return f" {' '.join(pairs)} "
