r"""Cuts texts and queries into the words of a search, in one normal form for each language.

A word is a run of letters, digits, underscores and their marks (`[\w\p{M}]+`, without the joining
punctuation of UAX 29: "don't" and "3.14" are two words each). Chinese, Japanese, Thai, Lao, Burmese
and Khmer have no spaces between words; there the words are pairs of neighbouring graphemes, as in
Lucene's CJKBigramFilter.

The normal form ignores differences of encoding and of style:

  encoding  Unicode's NFKC: composed and decomposed, half and full width, ligatures. Symbols such as
            ™ are words of their own. Digits of all scripts are those of ASCII.
  unseen    Characters without a glyph are dropped: soft hyphens, zero-width characters, the marks
            of writing direction; also the Arabic tatweel. In Persian a zero-width non-joiner
            separates words, as in Lucene.
  case      Unicode's case folding (ß is ss, ς is σ); I and İ are ı and i in Turkish and Azeri.
  marks     What writers may leave out: vowel signs and cantillation of Arabic, Hebrew and Syriac,
            accents in Greek, the stress in Cyrillic, the second dot of i̇. Others belong to the
            word: "é" is not "e".

Then English loses its stop words, and words are stemmed (PyStemmer).
"""

import itertools
import re
import unicodedata

import regex

from bert_tf.corpus.unspaced_text import UNSPACED

# Recorded in each index. To be changed with the rules above, as old and new words do not match.
TOKEN_RULE = "unicode_1"
# PyStemmer's stemmer for each language of search; "" for none.
STEMMERS = {
    "ar": "arabic",
    "az": "",
    "ca": "catalan",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "fa": "",
    "fi": "finnish",
    "fr": "french",
    "hi": "hindi",
    "hu": "hungarian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "other": "",
}
# Lucene's list, which Anserini removes.
STOP_WORDS = {
    "en": """
a an and are as at be but by for if in into is it no not of on or such that the their then there
these they this to was will with
"""
}
_DOTTED = str.maketrans({"I": "ı", "İ": "i"})
# Letters that a language's own keyboard writes as others, before case is folded.
_LETTERS = {
    "az": _DOTTED,
    "fa": str.maketrans({"ي": "ی", "ك": "ک"}),
    "tr": _DOTTED,
}
# Texts are first cut at ASCII characters, which is fast; few of the chunks are different.
_CHUNK = re.compile(r"[0-9A-Za-z_\x80-\U0010ffff]+")
# Symbols are apart, because NFKC makes letters of some: "Acme™" is not the word "acmetm". Radicals,
# which PDF files have instead of ideographs, are not.
_SYMBOL = regex.compile(r"[\p{S}--\p{Han}]", regex.V1)
# Letters by Unicode, but most writers have an apostrophe instead: "Hawaiʻi", "пʼять".
_APOSTROPHES = str.maketrans("\u02bb\u02bc", "''")
_UNSEEN = regex.compile(r"\p{DI}+")
# Unicode's normal forms take quadratic time for many marks; UAX 15's stream-safe format has 30.
_EXCESS_MARKS = regex.compile(r"(?<=\p{M}{30})\p{M}+")
_DIGIT = regex.compile(r"[\p{Nd}--0-9]", regex.V1)
_OPTIONAL_MARK = regex.compile(
    # Maddah and hamza make other letters of their base: U+0653 to U+0655. U+0640 is the tatweel.
    r"(?<=[\p{Arabic}\p{Hebrew}\p{Syriac}\p{Greek}\u0640]\p{M}{0,9})[\p{M}--[\u0653-\u0655]]"
    r"|\u0640"
    # With г and к the acute accent makes other letters, in Macedonian.
    r"|(?<=[\p{Cyrillic}--[гк]]\p{M}{0,9})[\u0300\u0301]"
    r"|(?<=\p{Soft_Dotted}\p{M}{0,9})\u0307",
    regex.V1,
)
_WORD = regex.compile(
    rf"(?P<run>[{UNSPACED}](?:[{UNSPACED}]|\p{{M}})*)"
    rf"|[\w\p{{N}}--[{UNSPACED}\p{{M}}]][\w\p{{N}}--[{UNSPACED}]]*",
    regex.V1,
)
_GRAPHEME = regex.compile(r"\X")
_MOST_KNOWN = 1 << 18  # chunks whose words are kept, at about 300 bytes each
_LONGEST_KNOWN = 32  # Longer chunks, such as sentences of Chinese, hardly ever repeat.


class Analyzer:
    """Cuts texts of a language of `STEMMERS` into words.

    Raises:
      ValueError: if the language is unknown, or it has a stemmer and PyStemmer is not installed.
    """

    def __init__(self, language: str) -> None:
        check_language(language)
        self._letters = _LETTERS.get(language, {})
        self._non_joiner = " " if language == "fa" else ""
        self._stemmer = None
        stop_words = self._normal_form(STOP_WORDS.get(language, ""))
        self._stop_words = frozenset(_cut(stop_words))
        if name := STEMMERS[language]:
            import Stemmer

            self._stemmer = Stemmer.Stemmer(name, 0)  # no second cache
        self._known: dict[str, list[str]] = {}

    def words(self, text: str) -> list[str]:
        """Returns the words of a text in their normal form, stemmed, without stop words.

        Example: Analyzer("en").words("The \ufb01rst cafe\u0301s in 東京都") ==
          ["first", "café", "東京", "京都"]
        """
        found: list[str] = []
        for chunk in _CHUNK.findall(text):
            words = self._known.get(chunk)
            found += self._analyze(chunk) if words is None else words
        return found

    def _analyze(self, chunk: str) -> list[str]:
        """Returns the words of a part of a text; the parts are those of `_CHUNK`."""
        normal_form = self._normal_form(chunk)
        if normal_form.isascii() and normal_form.isalnum():
            words = [normal_form]
        else:
            words = _cut(normal_form)
        words = [word for word in words if word not in self._stop_words]
        if self._stemmer:
            words = self._stemmer.stemWords(words)
        if len(chunk) <= _LONGEST_KNOWN:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[chunk] = words
        return words

    def _normal_form(self, text: str) -> str:
        """Returns the form in which texts that differ in encoding or style are equal."""
        if not text.isascii():
            text = _UNSEEN.sub("", text.replace("\u200c", self._non_joiner))
            text = _EXCESS_MARKS.sub("", text)
            text = unicodedata.normalize("NFKC", _SYMBOL.sub(r" \g<0> ", text))
            text = text.translate(_APOSTROPHES)
        if self._letters:
            text = text.translate(self._letters)
        if text.isascii():
            return text.lower()
        text = text.casefold()
        # `regex` may know digits of a newer Unicode version than Python.
        text = _DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0], digit[0])), text)
        text = _OPTIONAL_MARK.sub("", unicodedata.normalize("NFD", text))
        return unicodedata.normalize("NFC", text)


def check_language(language: str) -> None:
    """Raises ValueError unless the language is one of `STEMMERS`."""
    if language not in STEMMERS:
        raise ValueError(
            f"language is {language!r}; expected one of {', '.join(STEMMERS)}. `other` is for "
            "languages without a stemmer."
        )


def _cut(text: str) -> list[str]:
    """Returns the words of a text in its normal form."""
    words: list[str] = []
    for match in _WORD.finditer(text):
        if match["run"]:
            words += _pairs(match["run"])
        else:
            words.append(match[0])
    return words


def _pairs(run: str) -> list[str]:
    """Returns the pairs of neighbouring graphemes of a run without spaces, or its only grapheme."""
    graphemes = _GRAPHEME.findall(run)
    pairs = [first + second for first, second in itertools.pairwise(graphemes)]
    return pairs or [run]
