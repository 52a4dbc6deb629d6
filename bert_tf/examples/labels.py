"""Defines which spellings of a label are the same label, for files, arrays and datasets.

    labels of the task       spellings of one label
    all are numbers          1, 1.0, +1: pandas makes floats of integers in a column with a gap
    all are true or false    true, True, TRUE: JSON, Python and Excel
    anything else            as written

White space around a label never counts.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable

SEPARATOR = "|"  # between several labels of one example
# Only whole numbers are unified: 1.10 and 1.1 may be different versions or sections.
WHOLE = r"^\+?(-?\d+)(?:\.0+)?$"
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_BOOLEANS = ("true", "false")
# Kinds of spelling.
EXACT = "exact"
NUMBERS = "numbers"
BOOLEANS = "booleans"


def kind_of_spelling(names: Iterable[str]) -> str:
    """Returns whether all of some labels are numbers, all are true or false, or neither."""
    stripped = [name.strip() for name in names]
    if stripped and all(map(_NUMBER.fullmatch, stripped)):
        return NUMBERS
    if stripped and all(name.lower() in _BOOLEANS for name in stripped):
        return BOOLEANS
    return EXACT


def spelling_key(kind: str) -> Callable[[str], str]:
    """Returns a function that maps all spellings of a label to the same key."""
    if kind == NUMBERS:
        return lambda name: re.sub(WHOLE, r"\1", name.strip())
    if kind == BOOLEANS:
        return lambda name: name.strip().lower()
    return str.strip


def unify_spellings(names: Iterable[str]) -> tuple[str, ...]:
    """Returns one name for each label, in order of appearance.

    Labels that all have one spelling keep it. Otherwise all labels get the simplest spelling: 1
    instead of 1.0, true instead of True.
    """
    spellings = tuple(dict.fromkeys(names))
    key = spelling_key(kind_of_spelling(spellings))
    keys = tuple(dict.fromkeys(map(key, spellings)))
    return spellings if len(keys) == len(spellings) else keys


def check_distinct(names: Iterable[str]) -> None:
    """Checks that the labels of a new head differ in more than case and Unicode's normal form.

    Raises:
      ValueError: naming two labels that are equal but for these.
    """
    found: dict[str, str] = {}
    for name in names:
        # Casefolding may break the normal form, so it is applied again.
        key = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
        other = found.setdefault(key, name)
        if other != name:
            raise ValueError(
                f"The labels {other!r} ({ascii(other)}) and {name!r} ({ascii(name)}) differ only "
                "in case or in Unicode's normal form; spell them the same, or rename one."
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
        return self._indices_of_keys.get(self._key(spelling)) if index is None else index

    def name_of(self, spelling: str) -> str:
        """Returns a label in the spelling of the task; an unknown label is unchanged."""
        index = self.find(spelling)
        return spelling if index is None else self.names[index]

    def are_same(self, others: Iterable[str]) -> bool:
        """Returns whether other labels are the same, in any order and spelling."""
        indices = {self.find(name) for name in others}
        return indices == set(range(len(self.names)))
