"""Finds added tokens among the characters of strings inside the TensorFlow graph.

An added token, such as "<mask>", is cut out of a text before the text is split into words. The
result equals that of `AddedTokenSplitter` in Python.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.byte_level import SPACES
from bert_tf.text.tensor_characters import count_up, look_up
from bert_tf.text.unicode_tables import word_characters

# Marks the start and end of an added token in a string; it is not in any valid UTF-8.
_MARKER = b"\xff"
NO_TOKEN = -1
_SMALL_PATTERN = 500_000  # characters that TensorFlow certainly compiles


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


# A function of the starts and ends of tokens, and of numbers of characters at their ends.
Trim = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class Matches(NamedTuple):
    """The added tokens in all strings, in order."""

    ids: tf.Tensor  # int32 [M], the token id
    starts: tf.Tensor  # int64 [M], its first character, counted through all strings
    ends: tf.Tensor  # int64 [M], the character after it


class AddedTokenMatcher(tf.Module):
    """Finds added tokens.

    Args:
      tokens: the tokens, all of them with or all without `AddedToken.normalized`.
      unread: see `AddedTokenSplitter`.
      normalize: the normalizer's function, applied to the contents of normalized tokens; spaces
        are not added around ideographs.
      splits_ideographs: whether spaces around ideographs are imagined: no ideograph is then a
        letter next to a token with `single_word`.

    Raises:
      ValueError: if there are too many tokens to search for.
    """

    def __init__(
        self,
        tokens: Sequence[AddedToken],
        ids: Mapping[str, int],
        unread: Collection[str] = (),
        normalize: Callable[[str], str] = str,
        splits_ideographs: bool = False,
    ) -> None:
        super().__init__()
        contents: dict[str, AddedToken] = {}
        # If two tokens have the same normalized content, the special one is found.
        for token in sorted(tokens, key=lambda token: token.content not in unread):
            contents.setdefault(normalize(token.content), token)
        contents.pop("", None)  # A token of deleted characters is never found.
        # RE2 takes the first alternative that matches: the longest has to come first.
        self._contents = sorted(contents, key=len, reverse=True)
        self._pattern = "|".join(map(re.escape, self._contents))
        _check_size(self._pattern, len(contents))
        indices = list(range(len(contents)))
        self._indices = string_table([content.encode() for content in contents], indices)
        found = list(contents.values())
        self._ids = [ids[token.content] for token in found]
        self._is_unread = [token.content in unread for token in found]
        self._lstrip = [token.lstrip for token in found]
        self._rstrip = [token.rstrip for token in found]
        self._single_word = [token.single_word for token in found]
        self._splits_ideographs = splits_ideographs

    def plain_pattern(self) -> str:
        """Returns a regular expression of printable ASCII strings that may have a token; or ""."""
        ascii_contents = [content for content in self._contents if content.isascii()]
        parts = [re.escape(content).replace("\\ ", r"[\t\n\r ]") for content in ascii_contents]
        if not parts:
            return ""
        return f"(?is).*(?:{'|'.join(parts)}).*"

    def find(self, code_points: tf.Tensor, row_splits: tf.Tensor) -> Matches:
        """Finds the tokens.

        Args:
          code_points: int32 [N], the characters of all strings.
          row_splits: int64 [B + 1], where the strings begin and end.
        """
        ragged = tf.RaggedTensor.from_row_splits(code_points, row_splits, validate=False)
        strings = tf.strings.unicode_encode(ragged, "UTF-8")
        marked = tf.strings.regex_replace(strings, f"({self._pattern})", _MARKER + rb"\1" + _MARKER)
        split = tf.strings.split(marked, _MARKER)  # text, token, text, token, text
        parts = split.values
        # Counted through all strings; the markers are not in the parts.
        ends = tf.cumsum(tf.strings.length(parts, "UTF8_CHAR"))
        is_token = count_up(split.row_lengths()) % 2 == 1
        token_parts = tf.where(is_token)[:, 0]
        index = self._indices.lookup(tf.gather(parts, token_parts))
        rows = tf.gather(split.value_rowids(), token_parts)
        last = tf.cast(tf.gather(ends, token_parts), tf.int64)
        lengths = tf.strings.length(tf.gather(parts, token_parts), "UTF8_CHAR")
        first = last - tf.cast(lengths, tf.int64)
        row_starts = tf.gather(row_splits, rows)
        row_ends = tf.gather(row_splits, rows + 1)
        is_kept = ~tf.gather(tf.constant(self._is_unread), index)
        if any(self._single_word):
            is_inside = self._is_inside_word(code_points, first, last, row_starts, row_ends)
            is_kept &= ~(tf.gather(tf.constant(self._single_word), index) & is_inside)
        kept = tf.where(is_kept)[:, 0]
        index, first, last, row_starts, row_ends = (
            tf.gather(column, kept) for column in (index, first, last, row_starts, row_ends)
        )
        if any(self._lstrip) or any(self._rstrip):
            first, last = self._with_spaces(code_points, index, first, last, row_starts, row_ends)
        return Matches(tf.gather(tf.constant(self._ids, tf.int32), index), first, last)

    def _is_inside_word(
        self,
        code_points: tf.Tensor,
        first: tf.Tensor,
        last: tf.Tensor,
        row_starts: tf.Tensor,
        row_ends: tf.Tensor,
    ) -> tf.Tensor:
        """Returns bool [M], true where a letter, digit or underscore is next to the token."""
        table = word_characters(with_ideographs=not self._splits_ideographs)
        # One more character, so that there is one after the last.
        is_word = look_up(table, tf.concat([code_points, [0]], 0))
        before = (first > row_starts) & tf.gather(is_word, tf.maximum(first - 1, 0))
        after = (last < row_ends) & tf.gather(is_word, last)
        return before | after

    def _with_spaces(
        self,
        code_points: tf.Tensor,
        index: tf.Tensor,
        first: tf.Tensor,
        last: tf.Tensor,
        row_starts: tf.Tensor,
        row_ends: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the starts and ends with the white space that the tokens include."""
        bounds = _without(code_points, SPACES)
        previous = tf.gather(bounds, tf.searchsorted(bounds, first, "left") - 1)
        following = tf.gather(bounds, tf.searchsorted(bounds, last, "left"))
        takes_after = tf.gather(tf.constant(self._rstrip), index)
        takes_before = tf.gather(tf.constant(self._lstrip), index)
        last = tf.where(takes_after, tf.minimum(following, row_ends), last)
        first = tf.where(takes_before, tf.maximum(previous + 1, row_starts), first)
        # White space between two tokens belongs to the first if both include it.
        first = tf.maximum(first, tf.concat([tf.zeros([1], tf.int64), last], 0)[:-1])
        return first, tf.maximum(first, last)


def cut_out(
    characters: Characters,
    matcher: AddedTokenMatcher | None,
    trim: Trim | None = None,
    trimmed: str = SPACES,
) -> Characters:
    """Makes each added token that is found one character.

    Args:
      characters: the characters; the added tokens of an earlier search are not searched.
      matcher: finds the tokens; None without tokens.
      trim: function of starts, ends, and numbers of leading and trailing characters that are among
        `trimmed`, which returns the starts and ends of the tokens; None: they stay as they are.
    """
    if matcher is None:
        return characters
    size = tf.size(characters.rows, tf.int64)
    code_points = tf.where(characters.is_added, 0, characters.code_points)
    part_starts = tf.where(characters.is_first)[:, 0]
    found = matcher.find(code_points, tf.concat([part_starts, [size]], 0))
    positions = found.starts[:, tf.newaxis]
    starts = tf.gather(characters.starts, found.starts)
    ends = tf.gather(characters.ends, found.ends - 1)
    if trim is not None:
        bounds = _without(code_points, trimmed)
        following = tf.gather(bounds, tf.searchsorted(bounds, found.starts, "left"))
        previous = tf.gather(bounds, tf.searchsorted(bounds, found.ends, "left") - 1)
        leading = tf.minimum(following, found.ends) - found.starts
        trailing = found.ends - tf.maximum(previous + 1, found.starts)
        starts, ends = trim(starts, ends, tf.cast(leading, tf.int32), tf.cast(trailing, tf.int32))
    is_token, is_after, kept = put_matches(found, size)
    return characters._replace(
        code_points=tf.tensor_scatter_nd_update(characters.code_points, positions, found.ids),
        is_added=characters.is_added | is_token,
        is_first=characters.is_first | is_token | is_after,
        starts=tf.tensor_scatter_nd_update(characters.starts, positions, starts),
        ends=tf.tensor_scatter_nd_update(characters.ends, positions, ends),
    ).gather(kept)


def put_matches(found: Matches, size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns where tokens are among `size` characters.

    Returns:
      Whether a character is the first of a token, bool [N]; whether it follows a token, bool [N];
      and the positions without those that are not the first of their token, int64.
    """
    # [N + 1], with a position after the last character.
    ones = tf.ones_like(found.ids)
    begins = tf.scatter_nd(found.starts[:, tf.newaxis], ones, [size + 1])
    stops = tf.scatter_nd(found.ends[:, tf.newaxis], ones, [size + 1])
    is_inside = tf.cumsum(begins - stops)[:-1] > 0
    is_token = begins[:-1] > 0
    return is_token, stops[:-1] > 0, tf.where(~is_inside | is_token)[:, 0]


def _without(code_points: tf.Tensor, left_out: str) -> tf.Tensor:
    """Returns the positions of other characters, and those before the first and after the last."""
    is_left_out = tf.reduce_any(code_points[:, tf.newaxis] == list(map(ord, left_out)), axis=1)
    size = tf.size(code_points, tf.int64)
    return tf.concat([[-1], tf.where(~is_left_out)[:, 0], [size]], 0)


def _check_size(pattern: str, count: int) -> None:
    """Raises ValueError if TensorFlow cannot compile a regular expression because of its size."""
    if len(pattern) < _SMALL_PATTERN:
        return
    try:
        with tf.init_scope():
            tf.strings.regex_full_match(tf.constant(""), pattern)
    except tf.errors.InvalidArgumentError:
        raise ValueError(
            f"{count} added tokens are too many for the tokenizer inside the graph (in all "
            f"{len(pattern)} characters, expected at most about a million): export with token ids "
            "instead of texts, or add whole words with --added_words_file."
        ) from None


def string_table(keys: list[bytes], values: list[int]) -> tf.lookup.StaticHashTable:
    """Returns a table of strings with NO_TOKEN as its default."""
    # A table needs an entry. The empty string is never looked up.
    initializer = tf.lookup.KeyValueTensorInitializer(
        tf.constant([*keys, b""]), tf.constant([*values, NO_TOKEN], tf.int32)
    )
    return tf.lookup.StaticHashTable(initializer, NO_TOKEN)
