"""Defines which spellings of a label are the same label, for files, arrays and datasets.

    labels of the task       spellings of one label
    all are numbers          1, 1.0, +1: pandas makes floats of integers in a column with a gap
    all are true or false    true, True, TRUE: JSON, Python and Excel
    anything else            as written

White space around a label never counts, nor do invisible characters, such as a byte order mark, and
Unicode's normal form. Names of columns and keys are compared in the same way.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable

from absl import logging

SEPARATOR = "|"  # between several labels of one example
# Only whole numbers are unified: 1.10 and 1.1 may be different versions or sections.
WHOLE = r"^\+?(-?\d+)(?:\.0+)?$"
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_BOOLEANS = ("true", "false")
# Kinds of spelling.
EXACT = "exact"
NUMBERS = "numbers"
BOOLEANS = "booleans"


# U+200C and U+200D change how letters of these scripts and emoji are drawn.
_JOINERS = "\u200c\u200d"
_SHAPES = f"{_JOINERS}\ufe0e\ufe0f"  # also those that choose between text and emoji
_LAST_LATIN = "\u024f"
# Letters of Cyrillic and Greek that look like Latin ones.
LOOKALIKES = str.maketrans(
    "АВЕКМНОРСТУХЅІЈасеорухѕіјΑΒΕΖΗΙΚΜΝΟΡΤΥΧο", "ABEKMHOPCTYXSIJaceopyxsijABEZHIKMNOPTYXo"
)
# Characters without a form that have other categories: fillers and variation selectors.
_IGNORABLE = r"\p{Default_Ignorable_Code_Point}"


def visible_name(name: str) -> str:
    """Returns a name without invisible characters and outer white space, in the normal form NFC."""
    if name.isascii() and name.isprintable():
        return name.strip()
    import regex  # Few names need it, and a first answer would wait for it.

    kept = []
    for char in name:
        is_hidden = unicodedata.category(char) in ("Cc", "Cf") or regex.match(_IGNORABLE, char)
        if not is_hidden or char in _SHAPES or char.isspace():
            kept.append(char)
    # The blank of Braille is a symbol by Unicode.
    spaces = {char: " " for char in kept if unicodedata.category(char) == "Zs" or char == "\u2800"}
    text = "".join(spaces.get(char, char) for char in kept)
    text = text.strip().strip(_JOINERS)
    plain = re.sub(f"[{_SHAPES}]", "", text)
    if all(char <= _LAST_LATIN for char in plain):
        text = plain
    return unicodedata.normalize("NFC", text)


def code_points(name: str) -> str:
    """Returns the names of the characters but those of plain ASCII: "U+FEFF, U+00E9"."""
    return ", ".join(
        dict.fromkeys(
            f"U+{ord(char):04X}" for char in name if not (char.isascii() and char.isprintable())
        )
    )


def kind_of_spelling(names: Iterable[str]) -> str:
    """Returns whether all of some labels are numbers, all are true or false, or neither."""
    stripped = list(map(visible_name, names))
    if stripped and all(map(_NUMBER.fullmatch, stripped)):
        return NUMBERS
    if stripped and all(name.lower() in _BOOLEANS for name in stripped):
        return BOOLEANS
    return EXACT


def spelling_key(kind: str) -> Callable[[str], str]:
    """Returns a function that maps all spellings of a label to the same key."""
    if kind == NUMBERS:
        return lambda name: re.sub(WHOLE, r"\1", visible_name(name))
    if kind == BOOLEANS:
        return lambda name: visible_name(name).lower()
    return visible_name


def unify_spellings(names: Iterable[str]) -> tuple[str, ...]:
    """Returns one name for each label, in order of appearance.

    Labels that all have one spelling keep it. Otherwise all labels get the simplest spelling: 1
    instead of 1.0, true instead of True. A warning names characters that are not seen.
    """
    spellings = tuple(dict.fromkeys(names))
    key = spelling_key(kind_of_spelling(spellings))
    keys = tuple(dict.fromkeys(map(key, spellings)))
    if len(keys) == len(spellings):
        return spellings
    hidden = [name for name in spellings if visible_name(name) != name.strip(" \t\r\n")]
    if hidden:
        logging.warning(
            "The label %r is also written with %s, which cannot be seen; %d such spellings are "
            "read as the label without them.",
            key(hidden[0]),
            code_points(hidden[0]),
            len(hidden),
        )
    return keys


def check_distinct(names: Iterable[str]) -> None:
    """Raises ValueError for two labels of a new head that differ only in case or look the same."""
    found: dict[str, str] = {}
    for name in names:
        key = visible_name(name).replace("\ufe0e", "").replace("\ufe0f", "").translate(LOOKALIKES)
        # Casefolding may break the normal form, so it is applied again.
        key = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", key).casefold())
        other = found.setdefault(key, name)
        if other != name:
            raise ValueError(
                f"The labels {other!r} ({ascii(other)}) and {name!r} ({ascii(name)}) differ only "
                "in case, width, invisible characters, letters of other scripts that look the same "
                "or Unicode's normal form; spell them the same, or rename one."
            )


class LabelNames:
    """The labels of a task, found by any of their spellings.

    Args:
      names: in the order of the head; an empty one is a class without a name.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._key = spelling_key(kind_of_spelling(filter(None, self.names)))
        self._indices: dict[str, int] = {}
        self._indices_of_keys: dict[str, int] = {}
        for index, name in enumerate(self.names):
            if name:
                self._indices[name] = index
                # Older runs may have two classes True and true, which only the exact name
                # distinguishes.
                self._indices_of_keys.setdefault(self._key(name), index)

    def find(self, spelling: str) -> int | None:
        """Returns the index of a label; None if it is unknown."""
        index = self._indices.get(spelling)
        if index is None:
            return self._indices_of_keys.get(self._key(spelling))
        return index

    def name_of(self, spelling: str) -> str:
        """Returns a label in the spelling of the task; an unknown label is unchanged."""
        index = self.find(spelling)
        return spelling if index is None else self.names[index]

    def are_same(self, others: Iterable[str]) -> bool:
        """Returns whether other labels are the same, in any order and spelling."""
        indices = set(map(self.find, others))
        return indices == set(range(len(self.names)))
