"""WordPiece tokenization inside the TensorFlow graph, equal to google-research/bert's.

    strings [B] -> code points [N], flat, each with its string and its bytes in the original text
                -> expanded by the tables of `unicode_tables.py` (deleted, lowered, decomposed)
                -> words [W] -> tensorflow-text's FastWordpieceTokenizer -> [B, (words), (pieces)]

Strings of printable ASCII and white space, most of English, go a shorter way to the same pieces:
lower-cased byte for byte, and split by the FastWordpieceTokenizer itself.

Differs from tensorflow-text's BertTokenizer as the original does: lower() and NFD instead of NFKC
case folding, control characters join words instead of splitting them, all of Unicode's white
space also splits cased text, a word may have 200 characters instead of 100 bytes, and offsets
refer to the text as given instead of a normalized one.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.text import unicode_tables
from bert_tf.text.unicode_tables import PAGE_SIZE, PagedTable
from bert_tf.text.vocab import CONTINUATION_PREFIX, UNK, Vocab
from bert_tf.text.wordpiece import MAX_WORD_CHARACTERS

MAX_CHARACTER_BYTES = 4
# In such a string a character is a byte, and tensorflow-text parts words where the original does.
_PLAIN_STRING = r"[\t\n\r -~]*"
_PLAIN_PIECE = re.compile(f"({CONTINUATION_PREFIX})?[0-9A-Za-z]+|[!-~]")


# Ids, and where asked for first bytes and the bytes after the last ones.
_Columns = tuple[tf.RaggedTensor, ...]


class _Characters(NamedTuple):
    """Characters of all strings in one row."""

    code_points: tf.Tensor  # int32 [N]
    rows: tf.Tensor  # int64 [N], the string it belongs to
    starts: tf.Tensor  # int32 [N], first byte of its source in that string
    ends: tf.Tensor  # int32 [N], the byte after its source

    def gather(self, indices: tf.Tensor) -> "_Characters":
        return _Characters(*(tf.gather(column, indices) for column in self))


class BertTokenizer(tf.Module):
    """Splits strings into WordPiece ids, as `bert_tf.text.wordpiece.WordPiece` does.

    Works eagerly, in `tf.function` and in `tf.data`; a module that holds it can be saved.

    Args:
      vocab: the pieces.
      do_lower_case: lower-case the text and strip accents (uncased models).
    """

    def __init__(self, vocab: Vocab, do_lower_case: bool, name: str = "bert_tokenizer"):
        super().__init__(name)
        self.vocab = vocab
        self.do_lower_case = do_lower_case
        self._is_continuation = vocab.is_continuation
        self._pieces = tf_text.FastWordpieceTokenizer(
            vocab=list(vocab.tokens),
            suffix_indicator=CONTINUATION_PREFIX,
            max_bytes_per_word=MAX_WORD_CHARACTERS * MAX_CHARACTER_BYTES,
            token_out_type=tf.int32,
            unknown_token=UNK,
            no_pretokenization=True,
        )
        self._plain_pieces = tf_text.FastWordpieceTokenizer(
            vocab=_hide_other_pieces(vocab.tokens),
            suffix_indicator=CONTINUATION_PREFIX,
            max_bytes_per_word=MAX_WORD_CHARACTERS,
            token_out_type=tf.int32,
            unknown_token=UNK,
            no_pretokenization=False,
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "strings")])
    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces.

        Args:
          strings: string [B], UTF-8; bytes that are not UTF-8 are skipped, as in the original.

        Returns:
          int32 [B, (words), (pieces)].
        """
        return _in_two_ways(strings, self._tokenize_plain, self._tokenize_any)[0]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "strings")])
    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the ids of the pieces and where they stand in the strings as given.

        Args:
          strings: string [B], UTF-8.

        Returns:
          Ids, first bytes, and the bytes after the last ones, each int32 [B, (words), (pieces)].
        """
        return _in_two_ways(strings, self._locate_plain, self._locate_any)

    def _tokenize_plain(self, strings: tf.Tensor) -> _Columns:
        return self._group_words(self._plain_pieces.tokenize(self._lower_plain(strings)))

    def _locate_plain(self, strings: tf.Tensor) -> _Columns:
        columns = self._plain_pieces.tokenize_with_offsets(self._lower_plain(strings))
        return self._group_words(*(tf.cast(column, tf.int32) for column in columns))

    def _lower_plain(self, strings: tf.Tensor) -> tf.Tensor:
        return tf.strings.lower(strings) if self.do_lower_case else strings

    def _group_words(self, *columns: tf.RaggedTensor) -> _Columns:
        """Parts the pieces of each string into words: [B, (pieces)] -> [B, (words), (pieces)]."""
        ids, row_splits = columns[0].values, columns[0].row_splits
        is_start = ~tf.gather(self._is_continuation, ids)
        word_splits = tf.concat([tf.where(is_start)[:, 0], row_splits[-1:]], 0)
        words_before = tf.concat([[0], tf.cumsum(tf.cast(is_start, tf.int64))], 0)
        splits = (tf.gather(words_before, row_splits), word_splits)
        return tuple(
            tf.RaggedTensor.from_nested_row_splits(column.values, splits, validate=False)
            for column in columns
        )

    def _tokenize_any(self, strings: tf.Tensor) -> _Columns:
        characters, word_splits, row_splits = self._split_words(strings)
        words = _encode_words(characters.code_points, word_splits)
        return (_rows(self._pieces.tokenize(words), row_splits),)

    def _locate_any(self, strings: tf.Tensor) -> _Columns:
        characters, word_splits, row_splits = self._split_words(strings)
        words = _encode_words(characters.code_points, word_splits)
        ids, starts, ends = self._pieces.tokenize_with_offsets(words)
        sizes = _utf8_bytes(characters.code_points)
        # Where each word starts in the concatenation of all words in UTF-8, [W + 1].
        word_bytes = tf.gather(tf.concat([[0], tf.cumsum(sizes)], 0), word_splits)
        character_of_byte = tf.repeat(tf.range(tf.size(sizes)), sizes)
        is_unknown = ids.flat_values == self.vocab.unk_id
        word_start = tf.gather(word_bytes, ids.value_rowids())
        word_end = tf.gather(word_bytes, ids.value_rowids() + 1)
        # An unknown piece is its whole word; a long word was not even shown to the tokenizer.
        first = tf.where(is_unknown, word_start, word_start + tf.cast(starts.flat_values, tf.int32))
        after = tf.where(is_unknown, word_end, word_start + tf.cast(ends.flat_values, tf.int32))
        first = tf.gather(characters.starts, tf.gather(character_of_byte, first))
        after = tf.gather(characters.ends, tf.gather(character_of_byte, after - 1))
        columns = (ids, ids.with_flat_values(first), ids.with_flat_values(after))
        return tuple(_rows(column, row_splits) for column in columns)

    def _split_words(self, strings: tf.Tensor) -> tuple[_Characters, tf.Tensor, tf.Tensor]:
        """Splits the strings into words.

        Returns:
          The characters of all words; int64 [W + 1], where each word starts among them; and
          int64 [B + 1], where each string starts among the words.
        """
        tables = unicode_tables.code_point_tables(self.do_lower_case)
        characters = _decode(strings)
        if self.do_lower_case:
            characters = _finish_sigmas(characters, tables.casing)
        characters = _expand(characters, tables)
        kinds = _look_up(tables.kind, characters.code_points)
        if self.do_lower_case:
            characters, kinds = _sort_marks(characters, kinds, tables.combining_class)
        is_ordinary = kinds == unicode_tables.ORDINARY
        rows = characters.rows
        follows = tf.concat([[False], is_ordinary[:-1] & (rows[:-1] == rows[1:])], 0)
        is_start = ~(is_ordinary & follows[: tf.size(kinds)])
        kept = tf.where(kinds != unicode_tables.SPACE)[:, 0]
        characters = characters.gather(kept)
        word_starts = tf.where(tf.gather(is_start, kept))[:, 0]
        word_splits = tf.concat([word_starts, tf.shape(kept, tf.int64)], 0)
        words_per_row = tf.math.bincount(
            tf.cast(tf.gather(characters.rows, word_starts), tf.int32),
            minlength=tf.size(strings),
            dtype=tf.int64,
        )
        row_splits = tf.concat([tf.zeros([1], tf.int64), tf.cumsum(words_per_row)], 0)
        return characters, word_splits, row_splits


def _hide_other_pieces(tokens: Sequence[str]) -> list[str]:
    """Puts what no plain string holds in the place of each piece that is in no plain word.

    Where tensorflow-text finds the words it would match "a b", and refuse to have "[CLS]" alone.
    """
    return [
        token if token == UNK or _PLAIN_PIECE.fullmatch(token) else f"\x7f{index}"
        for index, token in enumerate(tokens)
    ]


def _in_two_ways(
    strings: tf.Tensor,
    tokenize_plain: Callable[[tf.Tensor], _Columns],
    tokenize_any: Callable[[tf.Tensor], _Columns],
) -> _Columns:
    """Tokenizes the plain strings by one function and the others by the other."""
    is_plain = tf.strings.regex_full_match(strings, _PLAIN_STRING)

    def in_halves() -> _Columns:
        plain, others = tf.where(is_plain)[:, 0], tf.where(~is_plain)[:, 0]
        halves = (
            tokenize_plain(tf.gather(strings, plain)),
            tokenize_any(tf.gather(strings, others)),
        )
        places = tf.math.invert_permutation(tf.concat([plain, others], 0))
        return tuple(tf.gather(tf.concat(pair, 0), places) for pair in zip(*halves, strict=True))

    # Mostly all are plain: a server then answers a text half a millisecond earlier.
    return tf.cond(tf.reduce_all(is_plain), lambda: tokenize_plain(strings), in_halves)


def _decode(strings: tf.Tensor) -> _Characters:
    """Returns the code points; what is not UTF-8 is U+FFFD, a character that is deleted."""
    code_points, offsets = tf.strings.unicode_decode_with_offsets(strings, "UTF-8", "replace")
    starts = tf.cast(offsets.flat_values, tf.int32)
    ends = starts + _utf8_bytes(code_points.flat_values)
    return _Characters(code_points.flat_values, code_points.value_rowids(), starts, ends)


def _look_up(table: PagedTable, code_points: tf.Tensor) -> tf.Tensor:
    """Returns the table's values for int32 [N] code points."""
    page = tf.gather(table.page_of, code_points // PAGE_SIZE)
    return tf.gather(table.pages, page * PAGE_SIZE + code_points % PAGE_SIZE)


def _finish_sigmas(characters: _Characters, casing_table: PagedTable) -> _Characters:
    """Replaces each capital sigma that ends a word by the final sigma, as str.lower() does."""

    def replace() -> tf.Tensor:
        casing = _look_up(casing_table, characters.code_points)
        # Without the ignorable characters, only the direct neighbours count.
        places = tf.where(casing != unicode_tables.CASE_IGNORABLE)[:, 0]
        code_points, rows = (
            tf.gather(c, places) for c in (characters.code_points, characters.rows)
        )
        is_cased = tf.gather(casing, places) == unicode_tables.CASED
        is_same_row = rows[1:] == rows[:-1]
        after_cased = tf.concat([[False], is_cased[:-1] & is_same_row], 0)
        before_cased = tf.concat([is_cased[1:] & is_same_row, [False]], 0)
        is_final = (code_points == unicode_tables.CAPITAL_SIGMA) & after_cased & ~before_cased
        finals = tf.boolean_mask(places, is_final)
        return tf.tensor_scatter_nd_update(
            characters.code_points,
            finals[:, tf.newaxis],
            tf.fill(tf.shape(finals), unicode_tables.FINAL_SIGMA),
        )

    has_sigma = tf.reduce_any(characters.code_points == unicode_tables.CAPITAL_SIGMA)
    code_points = tf.cond(has_sigma, replace, lambda: characters.code_points)
    return characters._replace(code_points=code_points)


def _expand(characters: _Characters, tables: unicode_tables.CodePointTables) -> _Characters:
    """Puts the characters of the table in the place of each character."""
    distance = _look_up(tables.expansion, characters.code_points)
    is_long = distance >= unicode_tables.LONG

    def replace_each() -> _Characters:
        return characters._replace(code_points=characters.code_points + distance)

    def replace_by_many() -> _Characters:
        index = tf.where(is_long, distance - unicode_tables.LONG, 0)
        first = tf.gather(tables.long_splits, index)
        length = tf.where(is_long, tf.gather(tables.long_splits, index + 1) - first, 1)
        source = tf.repeat(tf.range(tf.size(length)), length)
        nth = tf.range(tf.size(source)) - tf.gather(tf.cumsum(length, exclusive=True), source)
        expanded = characters.gather(source)
        place = tf.where(tf.gather(is_long, source), tf.gather(first, source) + nth, 0)
        code_points = tf.where(
            tf.gather(is_long, source),
            tf.gather(tables.long_values, place),
            expanded.code_points + tf.gather(distance, source),
        )
        return expanded._replace(code_points=code_points)

    return tf.cond(tf.reduce_any(is_long), replace_by_many, replace_each)


def _sort_marks(
    characters: _Characters, kinds: tf.Tensor, combining_table: PagedTable
) -> tuple[_Characters, tf.Tensor]:
    """Sorts marks that follow each other by combining class (NFD), then drops those of kind MARK.

    The places in the text stay in order: they are not sorted with their characters.
    """
    classes = tf.cast(_look_up(combining_table, characters.code_points), tf.int64)
    code_points, rows = characters.code_points, characters.rows

    def sort() -> tuple[tf.Tensor, tf.Tensor]:
        is_bound = tf.concat([[True], rows[1:] != rows[:-1]], 0) | (classes == 0)
        order = tf.argsort(tf.cumsum(tf.cast(is_bound, tf.int64)) * 256 + classes, stable=True)
        return tf.gather(code_points, order), tf.gather(kinds, order)

    def drop() -> tuple[_Characters, tf.Tensor]:
        kept = tf.where(kinds != unicode_tables.MARK)[:, 0]
        return characters.gather(kept), tf.gather(kinds, kept)

    is_unsorted = tf.reduce_any((classes[:-1] > classes[1:]) & (classes[1:] > 0))
    code_points, kinds = tf.cond(is_unsorted, sort, lambda: (code_points, kinds))
    characters = characters._replace(code_points=code_points)
    has_marks = tf.reduce_any(kinds == unicode_tables.MARK)
    return tf.cond(has_marks, drop, lambda: (characters, kinds))


def _rows(values: Any, row_splits: tf.Tensor) -> tf.RaggedTensor:
    """Parts values into rows; without the checks, which would be half of the graph."""
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


def _encode_words(code_points: tf.Tensor, word_splits: tf.Tensor) -> tf.Tensor:
    """Returns the words as UTF-8, string [W]; one over 200 characters as "[UNK]"."""
    words = tf.strings.unicode_encode(_rows(code_points, word_splits), "UTF-8")
    # No word of a text holds brackets and letters, so [UNK] is not mistaken for one of them.
    return tf.where(word_splits[1:] - word_splits[:-1] > MAX_WORD_CHARACTERS, UNK, words)


def _utf8_bytes(code_points: tf.Tensor) -> tf.Tensor:
    """Returns how many bytes each code point takes in UTF-8, int32 [N]."""
    return 1 + tf.add_n([tf.cast(code_points >= c, tf.int32) for c in (0x80, 0x800, 0x10000)])
