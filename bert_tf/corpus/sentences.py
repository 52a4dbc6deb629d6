"""Splits running text into sentences by rules: small, fast, made for English prose.

A sentence ends at `.`, `!`, `?` or `…`, including closing quotes and brackets, if white space and
then anything but a lower-case letter follow. A full stop does not end a sentence after an initial
(`J. Smith`), a title (`Dr. Jones`), an item number (`2. Rice`), nor in `No.` and the like before a
number. After abbreviations that may end a sentence (`Inc.`, `U.S.`) it does only if the next word
usually opens a sentence (`The`, `He`, `In` ...). A line break always ends a sentence. The
marks of other scripts, and long runs of text without marks, are the subject of `unspaced_text.py`.

Known limits: a sentence that starts with a lower-case letter joins the one before (`iPhone`); one
that ends in an initial or a title joins the next (`vitamin C. Oranges ...`); names with a mark are
split (`Yahoo! Inc`); there is no list of abbreviations for languages other than English.
"""

import re

from bert_tf.corpus.unspaced_text import Span, split_at_terminals, split_long_run

# These are followed by a name or a phrase, and hardly ever end a sentence.
_NEVER_LAST = frozenset(
    "mr mrs ms mx messrs mme mlle dr drs prof rev revd fr st ste hon gen lt col capt cpt cmdr adm "
    "maj sgt cpl pvt gov sen rep pres supt insp det mt ft vs viz cf eg ie e.g i.e v et ca approx "
    "esp incl resp univ dept gens profs sens reps lieut brig mgr msgr rt wm chas geo thos".split()
)
# These are abbreviations if a number follows.
_BEFORE_NUMBER = frozenset(
    "no nos fig figs vol vols p pp ch chap sec sect art arts eq eqs op ver para pt nr c b d r est "
    "jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
# These may end a sentence, depending on the next word.
_SOMETIMES_LAST = frozenset(
    "etc al esq ph.d m.d b.a m.a b.sc m.sc b.c a.d Inc Ltd Co Corp Bros Jr Sr Esq Ave Blvd Rd Hwy "
    "Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Ph.D M.Sc B.Sc Ariz Calif Colo Conn Fla Ill "
    "Kan Mass Mich Minn Miss Neb Nev Okla Penn Tenn Tex Va Wash Wis".split()
)
_OPENING_WORDS = frozenset(
    "A After All Although An And Another As At Because Before Both But By Despite During Each For "
    "From He Her Here His How However I If In It Its Later Many Most My No Not On One Other Our "
    "Several She Since So Some Such That The Their Then There These They This Those Though Thus To "
    "Two Under Until We What When Where While Who With Yet You Your".split()
)
# Single letters of these scripts before a full stop are titles and initials.
_ABBREVIATING_LETTER = re.compile("[\u05d0-\u05ea\u0621-\u064a]")
# The blocks in which other scripts' terminals and scripts without spaces lie.
_OTHER_SCRIPT = re.compile("[\u0530-\u1dff\u2c00-\ud7ff\uf900-\U0010ffff]")
_OPENERS = "\"'“‘«„‹([{*_"
_END = re.compile(
    # The mark and what closes behind it. German closes with “ and French puts a space before ».
    r"[.!?…]+[\"'”’»›)\]}*_]*(?:[“‘](?=\s)|[ \u00a0\u202f]»(?=[\s.,;]))?"
    r"(\s+)(?![a-z.,;:!?…&]|»[\s.,;])"  # [1]: the gap
    rf"[{re.escape(_OPENERS)}]*(?=([^\W_]*))"  # [2]: the next word, as far as letters and digits go
)


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of `text`, stripped, none empty.

    Example:
      >>> split_sentences('Mr. J. Doe left at 5 p.m. "Why?" he asked. (Nobody knew.) It rained.')
      ['Mr. J. Doe left at 5 p.m.', '"Why?" he asked.', '(Nobody knew.)', 'It rained.']
    """
    return [text[start:stop] for start, stop in sentence_spans(text)]


def sentence_spans(text: str) -> list[Span]:
    """Returns start and end of each sentence in `text`, without the white space around it."""
    spans: list[Span] = []
    start = 0
    for line in text.splitlines(keepends=True):
        stop = start + len(line)
        _split_line(text, start, stop, spans)
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


def _split_line(text: str, begin: int, end: int, spans: list[Span]) -> None:
    """Appends the spans of the sentences of one line, `text[begin:end]`."""
    for match in _END.finditer(text, begin, end):
        gap, word = match.start(1), match[2]
        # The pattern excludes only a to z, and only before opening quotes.
        if word[:1].islower():
            continue
        stop = match.start()
        if gap - stop == 1 and text[stop] == "." and not _full_stop_ends(text, begin, stop, word):
            continue
        spans.append((begin, gap))
        begin = gap
    spans.append((begin, end))


def _full_stop_ends(line: str, begin: int, stop: int, following: str) -> bool:
    """Returns whether the full stop at `stop` ends the sentence that began at `begin`."""
    word = line[max(line.rfind(" ", begin, stop) + 1, begin) : stop].strip().lstrip(_OPENERS)
    if not word or len(word) > 12:
        return True
    if word.isdigit():  # an item number, if it is all there is
        return bool(line[begin:stop].strip().lstrip(_OPENERS).removeprefix(word))
    if len(word) == 1:
        # "World War I. The", but "J. Smith", "J. A. Smith"; and "c. 1850", "p. 3"
        if word.isupper():
            return len(following) > 1 and following in _OPENING_WORDS
        if word == "v" or _ABBREVIATING_LETTER.match(word):
            return False
        return not (following[:1].isdigit() and word in _BEFORE_NUMBER)
    lowered = word.rpartition("-")[2].lower()
    if lowered in _NEVER_LAST:
        return False
    if following[:1].isdigit() and lowered in _BEFORE_NUMBER:
        return False
    if word in _SOMETIMES_LAST or _is_initials(word):
        return following in _OPENING_WORDS
    return True


def _is_initials(word: str) -> bool:
    """Returns whether `word` is capitals separated by full stops: `U.S`, `J.R.R`; not `a.m`."""
    letters = word.split(".")
    return len(letters) > 1 and all(len(letter) == 1 and letter.isupper() for letter in letters)
