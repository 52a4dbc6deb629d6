"""Splits running text into sentences by rules: small, fast, made for English prose.

A sentence ends at `.`, `!`, `?` or `…`, including closing quotes and brackets, if white space and
then anything but a lower-case letter follow. A full stop does not end a sentence after an initial
(`J. Smith`), a title (`Dr. Jones`), an item number (`2. Rice`), nor in `No.` and the like before a
number. After abbreviations that may end a sentence (`Inc.`, `U.S.`) it does only if the next word
usually opens a sentence (`The`, `He`, `In` ...). A line break always ends a sentence. The
full-width marks of Chinese and Japanese end a sentence without white space.

Known limits: a sentence that starts with a lower-case letter joins the one before (`iPhone`); one
that ends in an initial or a title joins the next (`vitamin C. Oranges ...`); names with a mark are
split (`Yahoo! Inc`); there is no list of abbreviations for languages other than English.
"""

import re

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
_OPENERS = "\"'“‘«„‹([{*_"
_END = re.compile(
    r"[.!?…]+[\"'”’»›)\]}*_]*"  # the mark and what closes behind it
    r"(\s+)(?![a-z.,;:!?…&])"  # [1]: the gap
    rf"[{re.escape(_OPENERS)}]*(?=([^\W_]*))"  # [2]: the next word, as far as letters and digits go
)
_WIDE_MARKS = "。！？"
_WIDE_END = re.compile(r"(?<=[。！？])(?![。！？」』”’）])|(?<=[。！？][」』”’）])(?![」』”’）])")


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of `text`, stripped, none empty.

    Example:
      >>> split_sentences('Mr. J. Doe left at 5 p.m. "Why?" he asked. (Nobody knew.) It rained.')
      ['Mr. J. Doe left at 5 p.m.', '"Why?" he asked.', '(Nobody knew.)', 'It rained.']
    """
    sentences: list[str] = []
    for line in text.splitlines():
        _split_line(line, sentences)
    if any(mark in text for mark in _WIDE_MARKS):
        parts: list[str] = []
        for sentence in sentences:
            parts.extend(_WIDE_END.split(sentence))
        sentences = parts
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def _split_line(line: str, sentences: list[str]) -> None:
    """Appends the sentences of one line, unstripped."""
    begin = 0
    for match in _END.finditer(line):
        gap, word = match.start(1), match[2]
        # The pattern excludes only a to z, and only before opening quotes.
        if word[:1].islower():
            continue
        stop = match.start()
        if gap - stop == 1 and line[stop] == "." and not _full_stop_ends(line, begin, stop, word):
            continue
        sentences.append(line[begin:gap])
        begin = gap
    sentences.append(line[begin:])


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
        return not (following[:1].isdigit() and word in _BEFORE_NUMBER) and word != "v"
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
