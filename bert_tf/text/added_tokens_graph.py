"""Finds added tokens in strings inside the TensorFlow graph.

An added token, such as "<mask>", is cut out of a text before the text is split into words.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.byte_level import SPACES
from bert_tf.text.tensor_characters import count_up

# Marks the start and end of an added token in a string; it is not in any valid UTF-8.
_MARKER = b"\xff"
NO_TOKEN = -1
SPACES_PATTERN = "".join(f"\\x{{{ord(char):x}}}" for char in SPACES)  # as RE2 writes them


class Parts(NamedTuple):
    """The parts of all strings, either text or an added token."""

    strings: tf.Tensor  # string [P]
    ids: tf.Tensor  # int32 [P], the id of an added token, or NO_TOKEN for text
    rows: tf.Tensor  # int64 [P], the index of the string
    starts: tf.Tensor  # int32 [N], first original character of each character of all strings
    ends: tf.Tensor  # int32 [N], the original character after it


class Characters(NamedTuple):
    """The characters of all strings, concatenated; an added token is one character."""

    code_points: tf.Tensor  # int32 [N]; the id of an added token
    is_added: tf.Tensor  # bool [N]
    is_first: tf.Tensor  # bool [N], first of its string, or next to an added token
    rows: tf.Tensor  # int64 [N], the index of its string
    starts: tf.Tensor  # int32 [N], first character of its source in that string
    ends: tf.Tensor  # int32 [N], the character after its source
    is_prefix: tf.Tensor  # bool [N], a space or U+2581 without a space in the text

    @classmethod
    def of_text(
        cls, code_points: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
    ) -> "Characters":
        """Returns the characters of strings without added tokens."""
        is_first = tf.concat([[True], rows[1:] != rows[:-1]], 0)[: tf.size(rows)]
        none = tf.zeros_like(is_first)
        return cls(code_points, none, is_first, rows, starts, ends, none)

    def gather(self, indices: tf.Tensor) -> "Characters":
        return Characters._make(tf.gather(column, indices) for column in self)


def join_parts(parts: Parts) -> tuple[Characters, tf.Tensor]:
    """Concatenates the parts.

    Returns:
      The characters, and the index of the part of each, int64 [N].
    """
    decoded = tf.strings.unicode_decode(parts.strings, "UTF-8", "replace")
    part = decoded.value_rowids()
    ids = tf.gather(parts.ids, part)
    is_added = ids >= 0
    is_first = count_up(decoded.row_lengths()) == 0
    # An added token keeps only its first character, which ends where its last character does.
    kept = tf.where(~is_added | is_first)[:, 0]
    lasts = tf.gather(decoded.row_splits, tf.gather(part, kept) + 1) - 1
    characters = Characters(
        code_points=tf.where(is_added, ids, decoded.values),
        is_added=is_added,
        is_first=is_first,
        rows=tf.gather(parts.rows, part),
        starts=parts.starts,
        ends=parts.ends,
        is_prefix=tf.zeros_like(is_added),
    ).gather(kept)
    ends = tf.where(characters.is_added, tf.gather(parts.ends, lasts), characters.ends)
    return characters._replace(ends=ends), tf.gather(part, kept)


class AddedTokenFinder(tf.Module):
    """Finds added tokens.

    Args:
      tokens: the tokens, all of them with or all without `AddedToken.normalized`.
      ids: token ids by the tokens' contents.
      normalize: the normalizer's function, applied to the contents of normalized tokens.
    """

    def __init__(
        self,
        tokens: Sequence[AddedToken],
        ids: Mapping[str, int],
        normalize: Callable[[str], str] = str,
    ) -> None:
        super().__init__()
        contents = {normalize(token.content): ids[token.content] for token in tokens}
        contents.pop("", None)  # A token of deleted characters is never found.
        # RE2 takes the first alternative that matches.
        longest_first = sorted(contents, key=len, reverse=True)
        self._pattern = "|".join(map(re.escape, longest_first))
        self._ids = string_table([key.encode() for key in contents], list(contents.values()))
        self._wanting_before = [ids[token.content] for token in tokens if token.lstrip]
        self._wanting_after = [ids[token.content] for token in tokens if token.rstrip]

    def find(self, parts: Parts) -> Parts:
        """Splits the texts at the tokens; white space moves to the token that includes it."""
        if not self._pattern:
            return parts
        marked = tf.strings.regex_replace(
            parts.strings, f"({self._pattern})", _MARKER + rb"\1" + _MARKER
        )
        # The tokens of an earlier search are not searched.
        marked = tf.where(parts.ids < 0, marked, parts.strings)
        split = tf.strings.split(marked, _MARKER)  # text, token, text, token, text
        is_token = count_up(split.row_lengths()) % 2 == 1
        before = split.value_rowids()
        token_ids = self._ids.lookup(split.values)
        ids = tf.where(is_token, token_ids, tf.gather(parts.ids, before))
        strings = split.values
        for wanting, pattern, is_after in (
            (self._wanting_after, rf"\A[{SPACES_PATTERN}]+", True),
            (self._wanting_before, rf"[{SPACES_PATTERN}]+\z", False),
        ):
            if wanting:
                is_wanting = is_token & tf.reduce_any(ids[:, tf.newaxis] == list(wanting), 1)
                strings = _move_spaces(strings, is_wanting, pattern, is_after)
        kept = tf.where(tf.strings.length(strings) > 0)[:, 0]
        return parts._replace(
            strings=tf.gather(strings, kept),
            ids=tf.gather(ids, kept),
            rows=tf.gather(parts.rows, tf.gather(before, kept)),
        )


def _move_spaces(
    strings: tf.Tensor, is_wanting: tf.Tensor, pattern: str, is_after: bool
) -> tf.Tensor:
    """Moves white space next to added tokens from the neighbouring text to the token.

    Args:
      strings: string [Q], text and tokens alternating.
      is_wanting: bool [Q], the tokens that include white space.
      pattern: matches the white space in the neighbour.
      is_after: whether the neighbour is the next string; otherwise it is the one before.
    """
    shift = 1 if is_after else -1
    is_giving = tf.roll(is_wanting, shift, 0)  # Strings start and end with text, never a token.
    rest = tf.where(is_giving, tf.strings.regex_replace(strings, pattern, ""), strings)
    taken_size = tf.strings.length(strings) - tf.strings.length(rest)
    first = tf.zeros_like(taken_size) if is_after else tf.strings.length(rest)
    taken = tf.roll(tf.strings.substr(strings, first, taken_size), -shift, 0)
    if is_after:
        return rest + taken
    return taken + rest


def string_table(keys: list[bytes], values: list[int]) -> tf.lookup.StaticHashTable:
    """Returns a table of strings with NO_TOKEN as its default."""
    # A table needs an entry. The empty string is never looked up.
    initializer = tf.lookup.KeyValueTensorInitializer(
        tf.constant([*keys, b""]), tf.constant([*values, NO_TOKEN], tf.int32)
    )
    return tf.lookup.StaticHashTable(initializer, NO_TOKEN)
