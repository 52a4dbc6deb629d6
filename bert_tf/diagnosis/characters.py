"""Characters that take up much of a text and say little: rules of tables, leaders, damage."""

import collections
import re
import unicodedata
from typing import NamedTuple

# A character that is drawn rather than read, four times or more, with or without blanks between.
RUN = re.compile(r"([^\w\s]|_)(?:\1{3,}|(?: \1){3,})")
# Each of these may be several percent of good text: ASCII, CJK, Arabic, quotes, joiners, bounds.
COMMON = frozenset(
    ".,;:!?'\"()[]{}<>/\\-+*=#&%$@_|`~^、。，．・「」：；！？（）،؛؟’“”„«»–—…\u200b\u200c\u200d"
)
LEAST_SCRIPT = 0.1  # share of the letters; the other scripts of a text are quotations


class OddCharacter(NamedTuple):
    """The character that takes up the most of a text without being part of its language."""

    character: str
    share: float

    def name(self) -> str:
        """Returns the character, its code and its Unicode name."""
        shown = self.character if self.character.isprintable() else "control character"
        name = unicodedata.name(self.character, "without a name")
        return f"{shown} (U+{ord(self.character):04X}, {name.lower()})"


def odd_character(characters: collections.Counter[str]) -> OddCharacter | None:
    """Returns the most frequent character that is not part of the text's language.

    Letters, marks and punctuation of the text's scripts, digits, blanks and common punctuation are
    part of it. A letter that makes up most of its script is not: it is a padding or a drawing.
    """
    letters: collections.Counter[str] = collections.Counter()
    for character, count in characters.items():
        if character.isalpha():
            letters[_script(character)] += count
    scripts = {name for name, count in letters.items() if count >= LEAST_SCRIPT * letters.total()}
    for character, count in characters.most_common():
        script = _script(character)
        if character in COMMON or character.isspace() or character.isdigit():
            continue
        kind = unicodedata.category(character)
        if kind in ("Lm", "Mn", "Mc") or script in scripts and kind[0] != "L":
            continue
        if kind[0] == "L" and 2 * count <= letters[script]:
            continue
        return OddCharacter(character, count / characters.total())
    return None


def _script(character: str) -> str:
    """Returns the first word of the character's Unicode name, for letters the script."""
    return unicodedata.name(character, "").partition(" ")[0]


def run_characters(line: str) -> int:
    """Returns the number of characters in runs of one drawn character."""
    return sum(len(match[0]) for match in RUN.finditer(line))
