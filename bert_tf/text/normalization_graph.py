"""The normalizers of SentencePiece tokenizers inside the TensorFlow graph.

Each step replaces segments of the characters: a character, a grapheme cluster, or a run of spaces.
A replaced character keeps the position of its segment in the original text.
"""

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tokenizers

from bert_tf.system.type_names import Tensor
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
from bert_tf.text.tensor_characters import count_up, look_up, utf8_bytes
from bert_tf.text.unicode_tables import NUM_CODE_POINTS, PagedTable

_KEPT = -1  # of a segment that is not replaced
# Three code points of 21 bits fit in an int64.
_CODE_BITS = 21
_PER_CHARACTER = ("NFKD", "StripAccents", "Lowercase")
_RUNS_OF_SPACES = re.compile(r" \{(\d+),\}")
_OTHER, _CONTINUING, _PREPENDED, _CONTROL, _RETURN, _NEWLINE = range(6)


class NormalCharacters(NamedTuple):
    """The characters of all parts of strings, concatenated."""

    code_points: tf.Tensor  # int32 [N]
    parts: tf.Tensor  # int64 [N], the part that the character belongs to, ascending
    starts: tf.Tensor  # int32 [N], first character of its source in the original string
    ends: tf.Tensor  # int32 [N], the character after its source

    def gather(self, indices: tf.Tensor) -> "NormalCharacters":
        return NormalCharacters._make(tf.gather(column, indices) for column in self)


Step = Callable[[NormalCharacters, tf.Tensor], NormalCharacters]


class _Replacements(NamedTuple):
    """The replacements of a step, concatenated."""

    values: np.ndarray  # int32, with a 0 at the end, so that it is never empty
    splits: np.ndarray  # int32 [R + 1]

    @classmethod
    def pack(cls, texts: list[str]) -> "_Replacements":
        values = list(map(ord, "".join(texts)))
        splits = np.cumsum([0, *map(len, texts)])
        return cls(np.array([*values, 0], np.int32), splits.astype(np.int32))


def make_steps(normalizer_steps: list[dict[str, Any]]) -> list[Step]:
    """Returns the steps of a normalizer; each takes the characters and which of them are text.

    Args:
      normalizer_steps: the steps of a tokenizer.json.

    Raises:
      ValueError: if the graph lacks a step.
    """
    steps: list[Step] = []
    rest = list(normalizer_steps)
    while rest:
        step = rest.pop(0)
        kind = step["type"]
        # Consecutive steps of this kind share one table; each NFKD begins another.
        if kind in _PER_CHARACTER:
            group = [step]
            sorts_marks = kind == "NFKD"
            while rest and rest[0]["type"] in _PER_CHARACTER:
                if rest[0]["type"] == "StripAccents":
                    sorts_marks = False  # Nothing to sort is left.
                elif rest[0]["type"] == "NFKD":
                    break
                group.append(rest.pop(0))
            steps.append(_character_step(group))
            if sorts_marks:
                steps.append(_sort_marks)
        elif kind == "Precompiled":
            steps.append(_CharsmapStep(decode_charsmap(step)))
        elif kind == "Strip":
            steps.append(
                functools.partial(_strip, left=step["strip_left"], right=step["strip_right"])
            )
        elif kind == "Replace":
            steps.append(_replace_step(step))
        else:
            raise ValueError(
                f"the normalizer's step {kind!r} is not available in the graph; give token ids."
            )
    return steps


def is_blank(code_points: tf.Tensor) -> tf.Tensor:
    """Returns which characters have Unicode's property White_Space, bool [N]."""
    return tf.cast(look_up(_blank_table(), code_points), tf.bool)


@functools.cache
def _blank_table() -> PagedTable:
    values = np.zeros(NUM_CODE_POINTS, np.uint8)
    values[list(map(ord, SPACES))] = 1
    return PagedTable.pack(values)


def _substitute(
    characters: NormalCharacters,
    segment_starts: tf.Tensor,
    indices: tf.Tensor,
    replacements: _Replacements,
) -> NormalCharacters:
    """Replaces segments of the characters.

    Args:
      segment_starts: int64 [S], the first character of each segment.
      indices: int32 [S], the replacement of each segment, or _KEPT.
    """
    splits = tf.concat([segment_starts, tf.shape(characters.code_points, tf.int64)], 0)
    sizes = tf.cast(splits[1:] - splits[:-1], tf.int32)
    is_replaced = indices >= 0
    index = tf.maximum(indices, 0)
    first_value = tf.gather(replacements.splits, index)
    new_sizes = tf.gather(replacements.splits, index + 1) - first_value
    # [S], the characters of each segment after the step.
    lengths = tf.where(is_replaced, new_sizes, sizes)
    segment = tf.repeat(tf.range(tf.size(lengths)), lengths)  # [new N]
    nth = count_up(lengths)
    is_new = tf.gather(is_replaced, segment)
    begin = tf.cast(tf.gather(segment_starts, segment), tf.int32)
    # The source of a new character is its whole segment; a kept one keeps its source.
    first = tf.where(is_new, begin, begin + nth)
    last = tf.where(is_new, begin + tf.gather(sizes, segment) - 1, first)
    value_index = tf.where(is_new, tf.gather(first_value, segment) + nth, 0)
    return NormalCharacters(
        tf.where(
            is_new,
            tf.gather(replacements.values, value_index),
            tf.gather(characters.code_points, first),
        ),
        tf.gather(characters.parts, first),
        tf.gather(characters.starts, first),
        tf.gather(characters.ends, last),
    )


def _all_starts(characters: NormalCharacters) -> tf.Tensor:
    return tf.range(tf.size(characters.code_points, tf.int64), dtype=tf.int64)


def _character_step(group: list[dict[str, Any]]) -> Step:
    """Returns the step of normalizers that replace each character on its own."""
    kinds = [step["type"] for step in group]
    index_of_character, replacements = _character_table(tuple(kinds))

    def step(characters: NormalCharacters, is_text: tf.Tensor) -> NormalCharacters:
        indices = tf.where(is_text, look_up(index_of_character, characters.code_points), _KEPT)
        return tf.cond(
            tf.reduce_any(indices >= 0),
            lambda: _substitute(characters, _all_starts(characters), indices, replacements),
            lambda: characters,
        )

    return step


@functools.cache
def _character_table(kinds: tuple[str, ...]) -> tuple[PagedTable, _Replacements]:
    """Returns the replacement of each code point by normalizers of `tokenizers`."""
    normalizers = [getattr(tokenizers.normalizers, kind)() for kind in kinds]
    normalizer = tokenizers.normalizers.Sequence(normalizers)
    codes = [code for code in range(NUM_CODE_POINTS) if not 0xD800 <= code < 0xE000]
    codes.remove(ord("\n"))  # separates the characters here, and is never changed
    # All characters in one call: a million calls would take minutes.
    lines = normalizer.normalize_str("\n".join(map(chr, codes))).split("\n")
    indices = np.full(NUM_CODE_POINTS, _KEPT, np.int32)
    texts: dict[str, int] = {}
    for code, line in zip(codes, lines, strict=True):
        if line != chr(code):
            indices[code] = texts.setdefault(line, len(texts))
    return PagedTable.pack(indices), _Replacements.pack(list(texts))


def _sort_marks(characters: NormalCharacters, is_text: tf.Tensor) -> NormalCharacters:
    """Sorts consecutive marks by combining class; their offsets stay in the order of the text."""
    code_points = characters.code_points
    parts = characters.parts
    classes = tf.cast(look_up(_combining_table(), code_points), tf.int64)
    classes = tf.where(is_text, classes, 0)
    is_new = tf.concat([[True], parts[1:] != parts[:-1]], 0)[: tf.size(parts)]

    def sort() -> tf.Tensor:
        run = tf.cumsum(tf.cast(is_new | (classes == 0), tf.int64))
        # Classes are below 256, so the key sorts by run first, and by class within a run.
        order = tf.argsort(run * 256 + classes, stable=True)
        return tf.gather(code_points, order)

    is_unsorted = tf.reduce_any((classes[:-1] > classes[1:]) & (classes[1:] > 0))
    sorted_points = tf.cond(is_unsorted, sort, lambda: code_points)
    return characters._replace(code_points=sorted_points)


@functools.cache
def _combining_table() -> PagedTable:
    values = np.zeros(NUM_CODE_POINTS, np.uint8)
    for mark, number in combining_classes().items():
        values[ord(mark)] = number
    return PagedTable.pack(values)


def _strip(
    characters: NormalCharacters, is_text: tf.Tensor, left: bool, right: bool
) -> NormalCharacters:
    """Removes the white space at the ends of each part."""
    blank = is_blank(characters.code_points) & is_text
    positions = tf.range(tf.size(blank))
    num_parts = tf.reduce_max(tf.concat([characters.parts, [-1]], 0)) + 1
    is_outer = tf.zeros_like(blank)
    if left:
        inner = tf.where(blank, tf.int32.max, positions)
        firsts = tf.math.unsorted_segment_min(inner, characters.parts, num_parts)
        is_outer |= positions < tf.gather(firsts, characters.parts)
    if right:
        inner = tf.where(blank, -1, positions)
        lasts = tf.math.unsorted_segment_max(inner, characters.parts, num_parts)
        is_outer |= positions > tf.gather(lasts, characters.parts)
    return characters.gather(tf.where(~is_outer)[:, 0])


def _replace_step(step: dict[str, Any]) -> Step:
    """Returns the step that replaces a string, or runs of spaces."""
    pattern = step["pattern"]
    replacements = _Replacements.pack([step["content"]])
    if "String" in pattern:
        string = pattern["String"]
        if len(set(string)) > 1 and _overlaps_itself(string):
            raise ValueError(
                f"the string {string!r} of the normalizer overlaps with itself, which is not "
                "available in the graph; give token ids."
            )
        find = functools.partial(_string_starts, codes=list(map(ord, string)))
    else:
        match = _RUNS_OF_SPACES.fullmatch(pattern["Regex"])
        if not match:
            raise ValueError(
                f"the pattern {pattern['Regex']!r} of the normalizer is not available in the "
                "graph; give token ids."
            )
        find = functools.partial(_run_starts, shortest=int(match[1]))

    def replace(characters: NormalCharacters, is_text: tf.Tensor) -> NormalCharacters:
        is_start, indices = find(characters, is_text)
        starts = tf.where(is_start)[:, 0]
        return tf.cond(
            tf.reduce_any(indices >= 0),
            lambda: _substitute(characters, starts, tf.gather(indices, starts), replacements),
            lambda: characters,
        )

    return replace


def _overlaps_itself(string: str) -> bool:
    """Returns whether the end of a string is also its start, as in "aba"."""
    return any(string.startswith(string[size:]) for size in range(1, len(string)))


def _string_starts(
    characters: NormalCharacters, is_text: tf.Tensor, codes: list[int]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the starts of segments, bool [N], and 0 where one is the string, int32 [N]."""
    size = tf.size(is_text)
    is_match = is_text
    # A match starts where each character of the string follows in the same part.
    for offset, code in enumerate(codes):
        is_code = characters.code_points == code
        is_same_part = characters.parts[offset:] == characters.parts[: tf.maximum(size - offset, 0)]
        follows = is_code[offset:] & is_same_part
        padding = tf.zeros([tf.minimum(offset, size)], tf.bool)
        is_match &= tf.concat([follows, padding], 0)[:size]
    if len(set(codes)) == 1 and len(codes) > 1:
        # In a run of the character the matches follow each other; other strings do not overlap.
        is_first = is_match & ~tf.concat([[False], is_match[:-1]], 0)[:size]
        run_starts = tf.concat([[0], tf.cast(tf.where(is_first)[:, 0], tf.int32)], 0)
        run = tf.cumsum(tf.cast(is_first, tf.int32))
        nth = tf.range(size) - tf.gather(run_starts, run)
        is_match &= nth % len(codes) == 0
    is_inside = tf.zeros_like(is_match)
    # The other characters of a match belong to its segment, and start none.
    for offset in range(1, len(codes)):
        padding = tf.zeros([tf.minimum(offset, size)], tf.bool)
        is_inside |= tf.concat([padding, is_match], 0)[:size]
    return ~is_inside, tf.where(is_match, 0, _KEPT)


def _run_starts(
    characters: NormalCharacters, is_text: tf.Tensor, shortest: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the starts of segments, bool [N], and 0 where one is a run of spaces, int32 [N]."""
    is_space = (characters.code_points == ord(" ")) & is_text
    size = tf.size(is_space)
    before = tf.concat([[False], is_space[:-1]], 0)[:size]
    is_same_part = tf.concat([[False], characters.parts[1:] == characters.parts[:-1]], 0)[:size]
    is_start = ~(is_space & before & is_same_part)
    segment = tf.cumsum(tf.cast(is_start, tf.int32)) - 1
    # [segments], the characters of each; gathered for each character below.
    lengths = tf.math.bincount(segment, dtype=tf.int32)
    is_long = tf.gather(lengths, segment) >= shortest
    return is_start, tf.where(is_space & is_long, 0, _KEPT)


class _CharsmapStep:
    """Replaces characters and grapheme clusters by the rules of a charsmap."""

    def __init__(self, charsmap: bytes) -> None:
        rules = read_rules(charsmap)
        self._replacements = _Replacements.pack(list(rules.values()))
        of_character = np.full(NUM_CODE_POINTS, _KEPT, np.int32)
        keys = []
        values = []
        for index, key in enumerate(rules):
            if len(key) == 1:
                of_character[ord(key)] = index
            # A cluster of at most 5 bytes has at most 3 characters: only one of them is ASCII.
            elif len(key) <= 3:
                keys.append(_cluster_key(*map(ord, key)))
                values.append(index)
        self._of_character = PagedTable.pack(of_character)
        order = np.argsort(keys)
        # One more key, so that a search never ends past the last one.
        self._keys = np.append(np.array(keys, np.int64)[order], np.iinfo(np.int64).max)
        self._values = np.append(np.array(values, np.int32)[order], _KEPT).astype(np.int32)

    def __call__(self, characters: NormalCharacters, is_text: tf.Tensor) -> NormalCharacters:
        code_points = characters.code_points
        alone = tf.where(is_text, look_up(self._of_character, code_points), _KEPT)
        kinds = look_up(_cluster_kinds(), code_points)
        # Usually no text has them, and a look-up for each character is enough.
        has_clusters = tf.reduce_any((kinds != _OTHER) & (kinds != _CONTROL))

        def replace_characters() -> NormalCharacters:
            return tf.cond(
                tf.reduce_any(alone >= 0),
                lambda: _substitute(characters, _all_starts(characters), alone, self._replacements),
                lambda: characters,
            )

        def replace_clusters() -> NormalCharacters:
            is_start, indices = self._find_clusters(characters, kinds, alone, is_text)
            starts = tf.where(is_start)[:, 0]
            return _substitute(characters, starts, tf.gather(indices, starts), self._replacements)

        return tf.cond(has_clusters, replace_clusters, replace_characters)

    def _find_clusters(
        self, characters: NormalCharacters, kinds: tf.Tensor, alone: tf.Tensor, is_text: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the starts of segments, bool [N], and their replacements, int32 [N]."""
        code_points = characters.code_points
        size = tf.size(code_points)
        is_control = (kinds == _CONTROL) | (kinds == _RETURN) | (kinds == _NEWLINE)
        before = tf.concat([[_CONTROL], tf.cast(kinds[:-1], tf.int32)], 0)[:size]
        after_control = (before == _CONTROL) | (before == _RETURN) | (before == _NEWLINE)
        is_same_part = tf.concat([[False], characters.parts[1:] == characters.parts[:-1]], 0)[:size]
        joins = (kinds == _CONTINUING) & ~after_control
        joins |= (before == _PREPENDED) & ~is_control
        joins |= (before == _RETURN) & (kinds == _NEWLINE)
        joins &= is_same_part
        cluster = tf.cumsum(tf.cast(~joins, tf.int32)) - 1
        num_clusters = tf.reduce_max(tf.concat([cluster, [-1]], 0)) + 1
        sizes = tf.math.unsorted_segment_sum(tf.ones_like(cluster), cluster, num_clusters)
        num_bytes = tf.math.unsorted_segment_sum(utf8_bytes(code_points), cluster, num_clusters)
        is_whole = (sizes > 1) & (num_bytes <= MAX_CLUSTER_BYTES)
        second = _next_in_cluster(code_points, cluster, 1)
        third = _next_in_cluster(code_points, cluster, 2)
        pair = self._look_up(_cluster_key(code_points, second))
        triple = self._look_up(_cluster_key(code_points, second, third))
        # The shortest prefix with a rule decides: one character, then two, then three.
        whole = tf.where(pair >= 0, pair, triple)
        whole = tf.where(alone >= 0, alone, whole)
        is_replaced = tf.gather(is_whole, cluster) & ~joins & (whole >= 0) & is_text
        of_cluster = tf.math.unsorted_segment_max(
            tf.cast(is_replaced, tf.int32), cluster, num_clusters
        )
        is_inside = joins & (tf.gather(of_cluster, cluster) > 0)
        return ~is_inside, tf.where(is_replaced, whole, alone)

    def _look_up(self, keys: tf.Tensor) -> tf.Tensor:
        positions = tf.searchsorted(self._keys, keys)
        is_found = tf.gather(self._keys, positions) == keys
        return tf.where(is_found, tf.gather(self._values, positions), _KEPT)


def _cluster_key(first: Tensor | int, second: Tensor | int, third: Tensor | int = 0) -> Tensor:
    """Returns the key of two or three code points, int64; a cluster never has a NUL."""
    if isinstance(first, tf.Tensor):
        first = tf.cast(first, tf.int64)
        second = tf.cast(second, tf.int64)
        third = tf.cast(third, tf.int64)
    return (first * (1 << _CODE_BITS) + second) * (1 << _CODE_BITS) + third


def _next_in_cluster(code_points: tf.Tensor, cluster: tf.Tensor, offset: int) -> tf.Tensor:
    """Returns the code point so many characters later in the same cluster, or 0, int32 [N]."""
    size = tf.size(code_points)
    padding = tf.zeros([tf.minimum(offset, size)], tf.int32)
    is_same = tf.concat(
        [cluster[offset:] == cluster[: size - tf.minimum(offset, size)], padding > 0], 0
    )
    return tf.where(is_same, tf.concat([code_points[offset:], padding], 0), 0)


@functools.cache
def _cluster_kinds() -> PagedTable:
    """Returns the role of each code point in grapheme clusters."""
    kinds = np.full(NUM_CODE_POINTS, _OTHER, np.uint8)
    kinds[control_characters()] = _CONTROL
    kinds[continuing_characters()] = _CONTINUING
    kinds[prepended_characters()] = _PREPENDED
    kinds[ord("\r")] = _RETURN
    kinds[ord("\n")] = _NEWLINE
    return PagedTable.pack(kinds)
