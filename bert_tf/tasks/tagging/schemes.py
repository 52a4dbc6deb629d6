"""Reads tags of entities in other spellings than B-LOC, I-LOC and O.

    as written                               as read
    B_LOC, B.LOC, B:LOC, b-LOC, LOC-B        B-LOC, likewise I-, S-, E-, U- and L-
    M-LOC (BMES), W-LOC (BMEWO)              I-LOC, S-LOC
    [B-LOC], "B-LOC", full width, Cyrillic В B-LOC
    o, 0, -, none, Other, OUT                O, next to tags of entities

Tags of which all but those of no entity have a part (B, I ...) and a type are spelled in this way.
Other tags, such as parts of speech, are unchanged; a warning names those that look like entities.
Predictions have the spelling of this project, which is that of the model's labels.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from absl import logging

from bert_tf.tasks.base.examples.labels import LOOKALIKES

OUTSIDE = "O"
_OUTSIDE_NAMES = frozenset(
    ("o", "0", "-", "_", "", "none", "other", "outside", "out", "null", "nil", "na", "n/a")
)
_PARTS = {**{part: part for part in "BISEUL"}, "M": "I", "W": "S"}
# Between a part and its type; word processors replace the hyphen by a dash.
_SIGN = "[-_.:/| \u2010-\u2015\u2212\uff0d]"
_PREFIX = re.compile(rf"([BISEULMW])(?:{_SIGN}(.*))?", re.IGNORECASE)
_SUFFIX = re.compile(rf"(.+){_SIGN}([BISEULMW])", re.IGNORECASE)
_ENCLOSED = re.compile(r"""\[(.+)\]|\((.+)\)|<(.+)>|"(.+)"|'(.+)'|“(.+)”""")
_SEPARATED = re.compile(rf"[BISEULMW]{_SIGN}.*", re.IGNORECASE)
# Tags of no entity that are not also the name of a part of speech or a sign.
_SURELY_OUTSIDE = frozenset(("O", "o"))


def respelled_tags(names: Iterable[str], labels: Iterable[str] = ()) -> dict[str, str]:
    """Returns each tag in the spelling B-LOC, I-LOC, O; {} if nothing changes.

    Args:
      names: all tags of a data set.
      labels: the labels of a model, whose tags are kept, and whose case of types is followed.
    """
    known = set(labels)
    tags = sorted(set(names))
    unknown = [tag for tag in tags if tag not in known]
    if not unknown:
        return {}
    plain = {tag: _plain(tag) for tag in tags}
    inside = [tag for tag in tags if plain[tag].casefold() not in _OUTSIDE_NAMES]
    # One tag with a part and a type at least: B and I alone may be letters, or parts of speech.
    has_parts = any(
        _SEPARATED.fullmatch(plain[tag]) or _SUFFIX.fullmatch(plain[tag]) for tag in inside
    )
    if not has_parts and set(map(str.casefold, inside)) != {"b", "i"}:
        _warn_of_plain_types(tags, inside, known)
        return {}
    parsed = {tag: _with_prefix(plain[tag]) for tag in inside}
    if any(parts is None for parts in parsed.values()):
        from_end = {tag: _with_suffix(plain[tag]) for tag in inside}
        if not _are_suffixes(from_end.values(), {plain[tag] for tag in tags if tag not in inside}):
            _warn_of_others(tags, [tag for tag, parts in parsed.items() if parts is None])
            return {}
        parsed = from_end
    if len(inside) == len(tags) and not any(
        parts and parts[0] == "B" and ("I", parts[1]) in parsed.values()
        for parts in parsed.values()
    ):
        return {}  # Without words outside and without a pair, B.X may be a part of speech.
    types = _types(parsed.values(), known)
    spelled = {tag: OUTSIDE for tag in tags if tag not in parsed}
    for tag, parts in parsed.items():
        if parts is not None:
            part, kind = parts
            spelled[tag] = f"{part}-{types[kind.casefold()]}" if kind else part
    changed = {tag: name for tag, name in spelled.items() if tag != name and tag not in known}
    if changed:
        shown = ", ".join(f"{tag!r} as {name}" for tag, name in list(changed.items())[:5])
        logging.info("Tags of entities are read in the spelling of BIO: %s.", shown)
    return changed


def with_entity_names(labels: Sequence[Any]) -> list[Any]:
    """Returns the labels of a model in the spelling B-LOC, where they stay distinct."""
    if not all(isinstance(label, str) for label in labels):
        return list(labels)
    spelled = respelled_tags(labels)
    names = [spelled.get(label, label) for label in labels]
    if len(set(names)) == len(set(labels)):
        return names
    return list(labels)


def _plain(tag: str) -> str:
    """Returns a tag without brackets or quotes around it, whose part is a Latin letter."""
    text = unicodedata.normalize("NFKC", tag).strip()
    if enclosed := _ENCLOSED.fullmatch(text):
        text = next(filter(None, enclosed.groups())).strip()
    return text[:1].translate(LOOKALIKES) + text[1:]


def _with_prefix(tag: str) -> tuple[str, str] | None:
    match = _PREFIX.fullmatch(tag)
    if match is None:
        return None
    return _PARTS[match[1].upper()], match[2] or ""


def _with_suffix(tag: str) -> tuple[str, str] | None:
    match = _SUFFIX.fullmatch(tag)
    if match is None:
        return None
    return _PARTS[match[2].upper()], match[1]


def _are_suffixes(parsed: Iterable[tuple[str, str] | None], outside: set[str]) -> bool:
    """Returns whether tags are those of entities with the part at the end: LOC-B, LOC-I, O.

    Parts of speech may end in the same way: DET:I, N:B. They have no O, or types without a start.
    """
    found = set(parsed)
    if None in found or not any(map(str.isalnum, outside)):
        return False
    starts = {kind for part, kind in filter(None, found) if part in "BSU"}
    return {kind for _, kind in filter(None, found)} == starts


def _types(parsed: Iterable[tuple[str, str] | None], labels: set[str]) -> dict[str, str]:
    """Returns the spelling of each type by its letters without case."""
    spellings: dict[str, str] = {}
    for parts in parsed:
        if parts is not None:
            kind = parts[1]
            key = kind.casefold()
            # Capitals sort before small letters.
            spellings[key] = min(spellings.get(key, kind), kind)
    for label in labels:
        _, _, kind = label.partition("-")
        if kind.casefold() in spellings:
            spellings[kind.casefold()] = kind
    return spellings


def _warn_of_plain_types(tags: list[str], inside: list[str], known: set[str]) -> None:
    """Warns of types without parts, such as LOC next to O, and of numbers."""
    if not known and all(map(str.isdecimal, tags)):
        logging.warning(
            "The tags are numbers (%s), so words are scored one by one, by their accuracy. If they "
            "mark entities, write their names, such as B-LOC, I-LOC and O (scheme BIO).",
            ", ".join(tags[:5]),
        )
    if known or not _SURELY_OUTSIDE & {*tags} or not all(len(tag) > 1 for tag in inside):
        return
    if inside:
        logging.warning(
            "The tag %r next to %r has no B- or I-, so words are scored one by one, by their "
            "accuracy. If tags mark entities, write B-%s and I-%s (scheme BIO).",
            *(inside[0], OUTSIDE, inside[0], inside[0]),
        )


def _warn_of_others(tags: list[str], others: list[str]) -> None:
    """Warns of tags that are not of the scheme that most others have."""
    has_outside = any(tag in _SURELY_OUTSIDE for tag in tags)
    has_entity = any(re.fullmatch(rf"[BI]{_SIGN}.+", tag, re.IGNORECASE) for tag in tags)
    if has_entity and (has_outside or len(others) < len(tags) / 2):
        logging.warning(
            "The tag %r is not of the scheme BIO, which other tags seem to have (%s); all are "
            "scored as tags of words, by their accuracy. Correct it for scores of entities.",
            others[0],
            ", ".join(tags[:5]),
        )
