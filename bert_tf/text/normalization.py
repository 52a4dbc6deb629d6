"""Follows each character through the normalizer of a SentencePiece tokenizer.

`tokenizers` also normalizes, but its offsets are wrong after characters that it removes at the
start of a text, and leave out combining marks.
"""

import functools
import re
from typing import Any, NamedTuple

import tokenizers

from bert_tf.text.byte_level import SPACES
from bert_tf.text.charsmap import (
    MAX_CLUSTER_BYTES,
    continuing_characters,
    control_characters,
    prepended_characters,
    read_rules,
)
from bert_tf.text.combining_marks import combining_classes
from bert_tf.text.sentencepiece_vocab import decode_charsmap


class Aligned(NamedTuple):
    """A character of normalized text."""

    character: str
    start: int  # first character of its source in the original text
    end: int  # the character after its source


def align(text: str, steps: list[dict[str, Any]]) -> list[Aligned]:
    """Returns the characters of the normalized text with their sources.

    Args:
      steps: see `SentencePieceVocab.normalizer_steps`.
    """
    aligned = [Aligned(char, index, index + 1) for index, char in enumerate(text)]
    for step in steps:
        kind = step["type"]
        if kind == "Precompiled":
            aligned = _apply_rules(aligned, read_rules(decode_charsmap(step)))
        elif kind == "Replace":
            aligned = _replace(aligned, step)
        elif kind == "Strip":
            aligned = _strip(aligned, step)
        else:
            aligned = _normalize_characters(aligned, kind)
            # Marks of neighbouring characters are not in order yet.
            if kind == "NFKD":
                aligned = _sort_marks(aligned)
    return aligned


def _sourced(content: str, replaced: list[Aligned]) -> list[Aligned]:
    """Returns characters whose source is all of the characters that they replace."""
    return [Aligned(char, replaced[0].start, replaced[-1].end) for char in content]


def _replace(aligned: list[Aligned], step: dict[str, Any]) -> list[Aligned]:
    pattern = step["pattern"]
    expression = re.escape(pattern["String"]) if "String" in pattern else pattern["Regex"]
    text = "".join(item.character for item in aligned)
    result: list[Aligned] = []
    after = 0
    for match in re.finditer(expression, text):
        first, last = match.span()
        result.extend(aligned[after:first])
        result.extend(_sourced(step["content"], aligned[first:last]))
        after = last
    return result + aligned[after:]


def _strip(aligned: list[Aligned], step: dict[str, Any]) -> list[Aligned]:
    first = 0
    last = len(aligned)
    while step["strip_left"] and first < last and aligned[first].character in SPACES:
        first += 1
    while step["strip_right"] and first < last and aligned[last - 1].character in SPACES:
        last -= 1
    return aligned[first:last]


def _normalize_characters(aligned: list[Aligned], kind: str) -> list[Aligned]:
    result: list[Aligned] = []
    for item in aligned:
        result.extend(_sourced(_normalized(kind, item.character), [item]))
    return result


def _sort_marks(aligned: list[Aligned]) -> list[Aligned]:
    """Sorts consecutive marks by combining class; their sources stay in the order of the text."""
    classes = combining_classes()
    numbers = [classes.get(item.character, 0) for item in aligned]
    characters = [item.character for item in aligned]
    first = 0
    while first < len(aligned):
        last = first + 1
        if numbers[first]:
            while last < len(aligned) and numbers[last]:
                last += 1
            characters[first:last] = sorted(characters[first:last], key=classes.__getitem__)
        first = last
    pairs = zip(characters, aligned, strict=True)
    return [item._replace(character=character) for character, item in pairs]


@functools.lru_cache(maxsize=1 << 16)
def _normalized(kind: str, character: str) -> str:
    return getattr(tokenizers.normalizers, kind)().normalize_str(character)


def _apply_rules(aligned: list[Aligned], rules: dict[str, str]) -> list[Aligned]:
    """Applies the rules of a charsmap; see `bert_tf.text.charsmap`."""
    result: list[Aligned] = []
    first = 0
    while first < len(aligned):
        last = first + 1
        while last < len(aligned) and _joins(aligned[last - 1].character, aligned[last].character):
            last += 1
        cluster = aligned[first:last]
        characters = "".join(item.character for item in cluster)
        # A small cluster is replaced as a whole, by the rule of its shortest prefix that has one.
        if len(characters.encode()) <= MAX_CLUSTER_BYTES:
            prefixes = [characters[:size] for size in range(1, len(characters) + 1)]
            found = next((prefix for prefix in prefixes if prefix in rules), None)
            if found is not None:
                result.extend(_sourced(rules[found], cluster))
                first = last
                continue
        # Other clusters are replaced character by character.
        for item in cluster:
            result.extend(_sourced(rules.get(item.character, item.character), [item]))
        first = last
    return result


def _joins(before: str, character: str) -> bool:
    """Returns whether two characters are in the same grapheme cluster."""
    continuing, prepended, controls = _cluster_classes()
    if before == "\r" and character == "\n":
        return True
    # UAX 29: GB3 above, GB4 and GB5 here, GB9 to GB9b below. Other clusters have 6 bytes or more.
    if before in controls or character in controls:
        return False
    return character in continuing or before in prepended


@functools.cache
def _cluster_classes() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    return (
        frozenset(map(chr, continuing_characters())),
        frozenset(map(chr, prepended_characters())),
        frozenset(map(chr, control_characters())),
    )
