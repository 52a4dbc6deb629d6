"""Splits running text into sentences by rules: small, fast, made for English prose.

A sentence ends at `.`, `!`, `?` or `…`, including closing quotes and brackets, if white space and
then anything but a lower-case letter follow. A full stop does not end a sentence after an initial
(`J. Smith`), a title (`Dr. Jones`), an item number (`2. Rice`), nor in `No.` and the like before a
number. After abbreviations that may end a sentence (`Inc.`, `U.S.`) it does only if the next word
usually opens a sentence (`The`, `He`, `In` ...). A line break always ends a sentence. The
marks of other scripts, and long runs of text without marks, are the subject of `unspaced_text.py`.

Known limits: a sentence that starts with a lower-case letter joins the one before (`iPhone`); one
that ends in an initial or a title joins the next (`vitamin C. Oranges ...`); names with a mark are
split (`Yahoo! Inc`); the lists of abbreviations of other languages than English are short.
"""

import re
import unicodedata

from bert_tf.corpus.abbreviations import AUTO, Abbreviations, abbreviations_of
from bert_tf.corpus.unspaced_text import Span, split_at_terminals, split_long_run

# Single letters of these scripts before a full stop are titles and initials.
_ABBREVIATING_LETTER = re.compile("[\u05d0-\u05ea\u0621-\u064a\u0e01-\u0e2e]")
# The blocks of other scripts: their letters and their terminals.
_OTHER_SCRIPT = re.compile("[\u0530-\u1dff\u2c00-\ud7ff\uf900-\U0010ffff]")
_OPENERS = "\"'“‘«„‹([{*_"
_END = re.compile(
    # The mark and what closes behind it. German closes with “ and French puts a space before ».
    r"[.!?…]+[\"'”’»›)\]}*_]*(?:[“‘](?=\s)|[ \u00a0\u202f]»(?=[\s.,;]))?"
    r"(\s+)(?![a-z.,;:!?…&]|»[\s.,;])"  # [1]: the gap
    rf"[{re.escape(_OPENERS)}]*(?=([^\W_]*))"  # [2]: the next word, as far as letters and digits go
)


def split_sentences(text: str, language: str = AUTO) -> list[str]:
    """Returns the sentences of `text`, stripped, none empty.

    Args:
      language: a key of `abbreviations.LANGUAGES`.

    Example:
      >>> split_sentences('Mr. J. Doe left at 5 p.m. "Why?" he asked. (Nobody knew.) It rained.')
      ['Mr. J. Doe left at 5 p.m.', '"Why?" he asked.', '(Nobody knew.)', 'It rained.']
    """
    return [text[start:stop] for start, stop in sentence_spans(text, language)]


def sentence_spans(text: str, language: str = AUTO) -> list[Span]:
    """Returns start and end of each sentence in `text`, without the white space around it."""
    abbreviations = abbreviations_of(language)
    spans: list[Span] = []
    start = 0
    for line in text.splitlines(keepends=True):
        stop = start + len(line)
        _split_line(text, (start, stop), abbreviations, spans)
        start = stop
    if not text.isascii() and _OTHER_SCRIPT.search(text):
        spans = _split_by_script(text, spans)
    stripped = []
    for start, stop in spans:
        sentence = text[start:stop]
        begin = start + len(sentence) - len(sentence.lstrip())
        end = start + len(sentence.rstrip())
        if begin < end:
            stripped.append((begin, end))
    return stripped


def _split_by_script(text: str, spans: list[Span]) -> list[Span]:
    """Splits spans further, at the terminals of other scripts than Latin and in long runs."""
    parts: list[Span] = []
    for span in spans:
        for part in split_at_terminals(text, span):
            parts.extend(split_long_run(text, part))
    return parts


def _split_line(text: str, line: Span, abbreviations: Abbreviations, spans: list[Span]) -> None:
    """Appends the spans of the sentences of one line."""
    begin, end = line
    for match in _END.finditer(text, begin, end):
        gap = match.start(1)
        word = match[2]
        # The pattern excludes only a to z, and only before opening quotes.
        if word[:1].islower():
            continue
        stop = match.start()
        is_full_stop = gap - stop == 1 and text[stop] == "."
        if is_full_stop and not _full_stop_ends(text, (begin, stop), word, abbreviations):
            continue
        spans.append((begin, gap))
        begin = gap
    spans.append((begin, end))


def _full_stop_ends(
    text: str, sentence: Span, following: str, abbreviations: Abbreviations
) -> bool:
    """Returns whether a full stop ends the sentence from its start up to the full stop."""
    begin, stop = sentence
    word = text[max(text.rfind(" ", begin, stop) + 1, begin) : stop].strip().lstrip(_OPENERS)
    word = unicodedata.normalize("NFC", word)  # as the lists of abbreviations
    if not word or len(word) > 12:
        return True
    if word.isdigit():
        if abbreviations.has_ordinals and len(word) <= 2:
            return False
        # It is an item number if it is all there is.
        return bool(text[begin:stop].strip().lstrip(_OPENERS).removeprefix(word))
    if len(word) == 1:
        if abbreviations.has_letters and word.isalpha():
            return False
        # "World War I. The", but "J. Smith", "J. A. Smith"; and "c. 1850", "p. 3"
        if word.isupper():
            return len(following) > 1 and following in abbreviations.opening_words
        if word == "v" or _ABBREVIATING_LETTER.match(word):
            return False
        return not (following[:1].isdigit() and word in abbreviations.before_number)
    lowered = word.rpartition("-")[2].lower()
    if lowered in abbreviations.never_last:
        return False
    if following[:1].isdigit() and lowered in abbreviations.before_number:
        return False
    if word in abbreviations.sometimes_last or _is_initials(word):
        return following in abbreviations.opening_words
    return True


def _is_initials(word: str) -> bool:
    """Returns whether `word` is capitals separated by full stops: `U.S`, `J.R.R`; not `a.m`.

    Letters of scripts without capitals count as such: `ค.ศ`.
    """
    letters = word.split(".")
    return len(letters) > 1 and all(map(_is_initial, letters))


def _is_initial(letter: str) -> bool:
    return len(letter) == 1 and bool(letter.isupper() or _ABBREVIATING_LETTER.match(letter))
