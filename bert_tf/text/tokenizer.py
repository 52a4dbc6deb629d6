"""WordPiece tokenization inside the TensorFlow graph, equal to google-research/bert's.

    strings [B] -> code points [N], flat, each with its string and its bytes in the original text
                -> expanded by the tables of `unicode_tables.py` (deleted, lowered, decomposed)
                -> words [W] -> tensorflow-text's FastWordpieceTokenizer -> [B, (words), (tokens)]

Strings of printable ASCII and white space, most of English, have a faster path to the same tokens:
they are lower-cased byte by byte and split by the FastWordpieceTokenizer.

Differs from tensorflow-text's BertTokenizer like the original: lower() and NFD instead of NFKC case
folding; control characters do not split words; all of Unicode's white space also splits cased text;
a word may have 200 characters instead of 100 bytes; and offsets refer to the original text instead
of a normalized one.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.text import unicode_tables
from bert_tf.text.added_tokens_graph import (
    NO_TOKEN,
    AddedTokenMatcher,
    Matches,
    put_matches,
)
from bert_tf.text.tensor_characters import count_by, look_up, utf8_bytes
from bert_tf.text.unicode_tables import PagedTable
from bert_tf.text.vocab import CONTINUATION_PREFIX, Vocab
from bert_tf.text.wordpiece import normalize

MAX_CHARACTER_BYTES = 4
# In such a string a character is a byte, and tensorflow-text splits words like the original.
_PLAIN_STRING = r"[\t\n\r -~]*"
_STAND_IN = "["  # Any punctuation mark: it represents an added token among the characters.
_PLAIN_TOKEN = re.compile(f"({CONTINUATION_PREFIX})?[0-9A-Za-z]+|[!-~]")


# Token ids, optionally with start and end bytes.
_Columns = tuple[tf.RaggedTensor, ...]


class _Characters(NamedTuple):
    """The characters of all strings, concatenated."""

    code_points: tf.Tensor  # int32 [N]
    rows: tf.Tensor  # int64 [N], the index of its string
    starts: tf.Tensor  # int32 [N], first byte of its source in that string
    ends: tf.Tensor  # int32 [N], the byte after its source
    # int32 [N], the id of an added token, which is one character, or NO_TOKEN; None without any
    added: tf.Tensor | None = None

    def gather(self, indices: tf.Tensor) -> "_Characters":
        columns = [None if column is None else tf.gather(column, indices) for column in self]
        return _Characters(*columns)


class BertTokenizer(tf.Module):
    """Splits strings into WordPiece ids, as `bert_tf.text.wordpiece.WordPiece` does.

    It works eagerly, in `tf.function` and in `tf.data`; a module that contains it can be saved.

    Args:
      do_lower_case: lower-case the text and strip accents (uncased models).

    Attributes:
      resources: the matchers of added tokens, whose tables an export has to track.
    """

    def __init__(self, vocab: Vocab, do_lower_case: bool, name: str = "bert_tokenizer"):
        super().__init__(name)
        self.vocab = vocab
        self.do_lower_case = do_lower_case
        options = vocab.options
        self._strips_accents = options.strips_accents(do_lower_case)
        self._max_word_characters = options.max_word_characters
        self._is_continuation = vocab.is_continuation
        self._raw_tokens: AddedTokenMatcher | None = None
        self._normalized_tokens: AddedTokenMatcher | None = None
        self._make_matchers()
        subwords = _hide_added_tokens(vocab)
        self._wordpiece = _make_wordpiece(
            tuple(subwords),
            vocab.unk,
            options.max_word_characters * MAX_CHARACTER_BYTES,
            splits_words=False,
        )
        self._plain_wordpiece = _make_wordpiece(
            tuple(_hide_other_tokens(subwords, vocab.unk)),
            vocab.unk,
            options.max_word_characters,
            splits_words=True,
        )

    def _make_matchers(self) -> None:
        """Prepares the search for added tokens, if there are any."""
        vocab = self.vocab
        options = vocab.options
        added = options.tokens_to_find(vocab.special_tokens)
        unread = () if options.reads_special_tokens else vocab.special_tokens
        raw = [token for token in added if not token.normalized]
        normalized = [token for token in added if token.normalized]
        if raw:
            self._raw_tokens = AddedTokenMatcher(raw, vocab.ids, unread)
        if normalized:
            unspaced = dataclasses.replace(options, splits_ideographs=False)
            self._normalized_tokens = AddedTokenMatcher(
                normalized,
                vocab.ids,
                unread,
                lambda content: normalize(content, self.do_lower_case, unspaced),
                options.splits_ideographs,
            )
        matchers = (self._raw_tokens, self._normalized_tokens)
        self.resources = [matcher for matcher in matchers if matcher is not None]
        patterns = [matcher.plain_pattern() for matcher in self.resources]
        self._added_patterns = [pattern for pattern in patterns if pattern]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "strings")], autograph=False)
    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns the token ids.

        Args:
          strings: string [B], UTF-8; bytes that are not UTF-8 are skipped, as in the original.

        Returns:
          int32 [B, (words), (tokens)].
        """
        is_plain = self._is_plain(strings)
        return _in_two_ways(strings, is_plain, self._tokenize_plain, self._tokenize_any)[0]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "strings")], autograph=False)
    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns ids, start bytes and end bytes, each int32 [B, (words), (tokens)]."""
        is_plain = self._is_plain(strings)
        return _in_two_ways(strings, is_plain, self._locate_plain, self._locate_any)

    def _is_plain(self, strings: tf.Tensor) -> tf.Tensor:
        """Returns bool [B], true for plain strings without added tokens."""
        is_plain = tf.strings.regex_full_match(strings, _PLAIN_STRING)
        for pattern in self._added_patterns:
            is_plain &= ~tf.strings.regex_full_match(strings, pattern)
        return is_plain

    def _tokenize_plain(self, strings: tf.Tensor) -> _Columns:
        return self._group_words(self._plain_wordpiece.tokenize(self._lower_plain(strings)))

    def _locate_plain(self, strings: tf.Tensor) -> _Columns:
        columns = self._plain_wordpiece.tokenize_with_offsets(self._lower_plain(strings))
        ids, starts, ends = columns
        return self._group_words(ids, tf.cast(starts, tf.int32), tf.cast(ends, tf.int32))

    def _lower_plain(self, strings: tf.Tensor) -> tf.Tensor:
        return tf.strings.lower(strings) if self.do_lower_case else strings

    def _group_words(self, *columns: tf.RaggedTensor) -> _Columns:
        """Groups the tokens of each string by word: [B, (tokens)] -> [B, (words), (tokens)]."""
        ids = columns[0].values
        row_splits = columns[0].row_splits
        # Tokens without ## begin words: words are recovered from the flat tokens.
        is_start = ~tf.gather(self._is_continuation, ids)
        word_splits = tf.concat([tf.where(is_start)[:, 0], row_splits[-1:]], 0)
        # [N + 1], the number of words that begin before each token.
        words_before = tf.concat([[0], tf.cumsum(tf.cast(is_start, tf.int64))], 0)
        splits = (tf.gather(words_before, row_splits), word_splits)
        return tuple(
            tf.RaggedTensor.from_nested_row_splits(column.values, splits, validate=False)
            for column in columns
        )

    def _tokenize_any(self, strings: tf.Tensor) -> _Columns:
        characters, word_splits, row_splits = self._split_words(strings)
        words = self._encode_words(characters.code_points, word_splits)
        ids = self._with_added(self._wordpiece.tokenize(words), characters, word_splits)
        return (_rows(ids, row_splits),)

    def _locate_any(self, strings: tf.Tensor) -> _Columns:
        characters, word_splits, row_splits = self._split_words(strings)
        words = self._encode_words(characters.code_points, word_splits)
        ids, starts, ends = self._wordpiece.tokenize_with_offsets(words)
        sizes = utf8_bytes(characters.code_points)
        # The start byte of each word in the concatenation of all words, [W + 1].
        word_bytes = tf.gather(tf.concat([[0], tf.cumsum(sizes)], 0), word_splits)
        # tensorflow-text counts bytes of the normalized words; these are mapped to their
        # characters.
        character_of_byte = tf.repeat(tf.range(tf.size(sizes)), sizes)
        is_unknown = ids.flat_values == self.vocab.unk_id
        word_start = tf.gather(word_bytes, ids.value_rowids())
        word_end = tf.gather(word_bytes, ids.value_rowids() + 1)
        # An unknown token covers its whole word. The tokenizer got `unk` instead of long words.
        first = tf.where(is_unknown, word_start, word_start + tf.cast(starts.flat_values, tf.int32))
        after = tf.where(is_unknown, word_end, word_start + tf.cast(ends.flat_values, tf.int32))
        first = tf.gather(characters.starts, tf.gather(character_of_byte, first))
        # The end of the last character of the token, not the start of the next.
        after = tf.gather(characters.ends, tf.gather(character_of_byte, after - 1))
        columns = (
            self._with_added(ids, characters, word_splits),
            ids.with_flat_values(first),
            ids.with_flat_values(after),
        )
        return tuple(_rows(column, row_splits) for column in columns)

    def _with_added(
        self, ids: tf.RaggedTensor, characters: _Characters, word_splits: tf.Tensor
    ) -> tf.RaggedTensor:
        """Replaces the single token of each word that represents an added token by that token."""
        if characters.added is None:
            return ids
        added = tf.gather(tf.gather(characters.added, word_splits[:-1]), ids.value_rowids())
        return ids.with_flat_values(tf.where(added != NO_TOKEN, added, ids.flat_values))

    def _split_words(self, strings: tf.Tensor) -> tuple[_Characters, tf.Tensor, tf.Tensor]:
        """Splits the strings into words.

        Returns:
          The characters of all words; row splits of the words into characters, int64 [W + 1]; and
          row splits of the strings into words, int64 [B + 1].
        """
        tables = unicode_tables.code_point_tables(
            self.do_lower_case, self._strips_accents, self.vocab.options.splits_ideographs
        )
        characters = _decode(strings)
        num_rows = tf.size(strings, tf.int64)
        if self._raw_tokens is not None:
            characters = _replace_matches(
                characters, self._raw_tokens.find(*_search_text(characters, num_rows))
            )
        if self.do_lower_case:
            characters = _finish_sigmas(characters, tables.casing)
        characters = _expand(characters, tables)
        kinds = look_up(tables.kind, characters.code_points)
        if self._strips_accents:
            characters, kinds = _sort_marks(characters, kinds, tables.combining_class)
        if self._normalized_tokens is not None:
            spaced = tf.where(kinds == unicode_tables.SPACE, ord(" "), characters.code_points)
            search_text = _search_text(characters._replace(code_points=spaced), num_rows)
            characters = _replace_matches(characters, self._normalized_tokens.find(*search_text))
            kinds = look_up(tables.kind, characters.code_points)
        # Ordinary characters next to each other make a word; others are words by themselves.
        is_ordinary = kinds == unicode_tables.ORDINARY
        rows = characters.rows
        follows = tf.concat([[False], is_ordinary[:-1] & (rows[:-1] == rows[1:])], 0)
        is_start = ~(is_ordinary & follows[: tf.size(kinds)])
        kept = tf.where(kinds != unicode_tables.SPACE)[:, 0]
        characters = characters.gather(kept)
        # Without white space, in indices of the kept characters.
        word_starts = tf.where(tf.gather(is_start, kept))[:, 0]
        word_splits = tf.concat([word_starts, tf.shape(kept, tf.int64)], 0)
        words_per_row = count_by(tf.gather(characters.rows, word_starts), tf.size(strings))
        row_splits = tf.concat([tf.zeros([1], tf.int64), tf.cumsum(words_per_row)], 0)
        return characters, word_splits, row_splits

    def _encode_words(self, code_points: tf.Tensor, word_splits: tf.Tensor) -> tf.Tensor:
        """Returns the words as UTF-8, string [W]; a word that is too long becomes "[UNK]"."""
        words = tf.strings.unicode_encode(_rows(code_points, word_splits), "UTF-8")
        # No word contains both brackets and letters, so "[UNK]" cannot be a word of the text.
        lengths = word_splits[1:] - word_splits[:-1]
        return tf.where(lengths > self._max_word_characters, self.vocab.unk, words)


def _make_wordpiece(
    subwords: tuple[str, ...], unk: str, max_bytes_per_word: int, splits_words: bool
) -> tf_text.FastWordpieceTokenizer:
    """Returns tensorflow-text's tokenizer; models with the same vocabulary share one.

    It takes a tenth of a second to make, and its tensor has megabytes.
    """
    # Outside of the function that is being traced, if any: the tensor is used by others as well.
    with tf.init_scope():
        # A tf.Graph() keeps its tensors to itself.
        make = _shared_wordpiece if tf.executing_eagerly() else _new_wordpiece
        return make(subwords, unk, max_bytes_per_word, splits_words)


def _new_wordpiece(
    subwords: tuple[str, ...], unk: str, max_bytes_per_word: int, splits_words: bool
) -> tf_text.FastWordpieceTokenizer:
    return tf_text.FastWordpieceTokenizer(
        vocab=list(subwords),
        suffix_indicator=CONTINUATION_PREFIX,
        max_bytes_per_word=max_bytes_per_word,
        token_out_type=tf.int32,
        unknown_token=unk,
        no_pretokenization=not splits_words,
    )


_shared_wordpiece = functools.lru_cache(maxsize=8)(_new_wordpiece)


def _hide_added_tokens(vocab: Vocab) -> list[str]:
    """Replaces each token that no word is split into by a string that never occurs."""
    only_added = set(vocab.options.only_added)
    subwords = []
    for index, token in enumerate(vocab.tokens):
        subwords.append(f"\x7f{index}" if token in only_added else token)
    return subwords


def _hide_other_tokens(tokens: Sequence[str], unk: str) -> list[str]:
    """Replaces each token that no plain word contains by a string that never occurs.

    With its own word splitting tensorflow-text would match "a b", and it rejects a vocabulary with
    a token like "[CLS]".
    """
    visible = []
    for index, token in enumerate(tokens):
        is_plain = token == unk or _PLAIN_TOKEN.fullmatch(token)
        visible.append(token if is_plain else f"\x7f{index}")
    return visible


def _in_two_ways(
    strings: tf.Tensor,
    is_plain: tf.Tensor,
    tokenize_plain: Callable[[tf.Tensor], _Columns],
    tokenize_any: Callable[[tf.Tensor], _Columns],
) -> _Columns:
    """Tokenizes plain strings with one function and the others with the other."""

    def in_halves() -> _Columns:
        plain = tf.where(is_plain)[:, 0]
        others = tf.where(~is_plain)[:, 0]
        plain_columns = tokenize_plain(tf.gather(strings, plain))
        other_columns = tokenize_any(tf.gather(strings, others))
        order = tf.math.invert_permutation(tf.concat([plain, others], 0))
        columns = []
        for pair in zip(plain_columns, other_columns, strict=True):
            columns.append(tf.gather(tf.concat(pair, 0), order))
        return tuple(columns)

    # Usually all are plain: this branch answers a request half a millisecond earlier.
    return tf.cond(tf.reduce_all(is_plain), lambda: tokenize_plain(strings), in_halves)


def _decode(strings: tf.Tensor) -> _Characters:
    """Returns the code points; bytes that are not UTF-8 become U+FFFD, which is deleted later."""
    code_points, offsets = tf.strings.unicode_decode_with_offsets(strings, "UTF-8", "replace")
    starts = tf.cast(offsets.flat_values, tf.int32)
    ends = starts + utf8_bytes(code_points.flat_values)
    return _Characters(code_points.flat_values, code_points.value_rowids(), starts, ends)


def _search_text(characters: _Characters, num_rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the characters to search for added tokens, and the row splits of the strings.

    A token that was found before is U+0000, which no other token has: no text has it after the
    rules of `unicode_tables.py`.
    """
    code_points = characters.code_points
    if characters.added is not None:
        code_points = tf.where(characters.added != NO_TOKEN, 0, code_points)
    row_splits = tf.searchsorted(characters.rows, tf.range(num_rows + 1), out_type=tf.int64)
    return code_points, row_splits


def _replace_matches(characters: _Characters, matches: Matches) -> _Characters:
    """Makes one character of each added token; it is a word by itself under all rules."""
    size = tf.size(characters.code_points, tf.int64)
    added = characters.added
    if added is None:
        added = tf.fill(tf.shape(characters.code_points), NO_TOKEN)
    starts = matches.starts[:, tf.newaxis]
    is_first, _, kept = put_matches(matches, size)
    last_bytes = tf.gather(characters.ends, matches.ends - 1)
    characters = _Characters(
        tf.where(is_first, ord(_STAND_IN), characters.code_points),
        characters.rows,
        characters.starts,
        tf.tensor_scatter_nd_update(characters.ends, starts, last_bytes),
        tf.tensor_scatter_nd_update(added, starts, matches.ids),
    )
    return characters.gather(kept)


def _finish_sigmas(characters: _Characters, casing_table: PagedTable) -> _Characters:
    """Replaces each capital sigma at the end of a word by the final sigma, like str.lower()."""

    def replace() -> tf.Tensor:
        casing = look_up(casing_table, characters.code_points)
        # Once the ignorable characters are removed, only direct neighbours matter.
        indices = tf.where(casing != unicode_tables.CASE_IGNORABLE)[:, 0]
        code_points = tf.gather(characters.code_points, indices)
        rows = tf.gather(characters.rows, indices)
        is_cased = tf.gather(casing, indices) == unicode_tables.CASED
        is_same_row = rows[1:] == rows[:-1]
        after_cased = tf.concat([[False], is_cased[:-1] & is_same_row], 0)
        before_cased = tf.concat([is_cased[1:] & is_same_row, [False]], 0)
        is_final = (code_points == unicode_tables.CAPITAL_SIGMA) & after_cased & ~before_cased
        finals = tf.boolean_mask(indices, is_final)
        return tf.tensor_scatter_nd_update(
            characters.code_points,
            finals[:, tf.newaxis],
            tf.fill(tf.shape(finals), unicode_tables.FINAL_SIGMA),
        )

    has_sigma = tf.reduce_any(characters.code_points == unicode_tables.CAPITAL_SIGMA)
    code_points = tf.cond(has_sigma, replace, lambda: characters.code_points)
    return characters._replace(code_points=code_points)


def _expand(characters: _Characters, tables: unicode_tables.CodePointTables) -> _Characters:
    """Replaces each character by its characters of the expansion table."""
    distance = look_up(tables.expansion, characters.code_points)
    is_long = distance >= unicode_tables.LONG

    def replace_each() -> _Characters:
        return characters._replace(code_points=characters.code_points + distance)

    def replace_by_many() -> _Characters:
        index = tf.where(is_long, distance - unicode_tables.LONG, 0)
        first = tf.gather(tables.long_splits, index)
        length = tf.where(is_long, tf.gather(tables.long_splits, index + 1) - first, 1)
        # [new N] each: the index of the source, and the number among its replacements.
        source = tf.repeat(tf.range(tf.size(length)), length)
        nth = tf.range(tf.size(source)) - tf.gather(tf.cumsum(length, exclusive=True), source)
        expanded = characters.gather(source)
        long_index = tf.where(tf.gather(is_long, source), tf.gather(first, source) + nth, 0)
        code_points = tf.where(
            tf.gather(is_long, source),
            tf.gather(tables.long_values, long_index),
            expanded.code_points + tf.gather(distance, source),
        )
        return expanded._replace(code_points=code_points)

    return tf.cond(tf.reduce_any(is_long), replace_by_many, replace_each)


def _sort_marks(
    characters: _Characters, kinds: tf.Tensor, combining_table: PagedTable
) -> tuple[_Characters, tf.Tensor]:
    """Sorts consecutive marks by combining class (NFD), then removes those of kind MARK.

    The offsets stay in order: they are not sorted with the characters.
    """
    classes = tf.cast(look_up(combining_table, characters.code_points), tf.int64)
    code_points = characters.code_points
    rows = characters.rows

    def sort() -> tuple[tf.Tensor, tf.Tensor]:
        # Marks are sorted up to the next character of class 0 or the next string. Classes are
        # below 256, so the key sorts by group first and by class within it.
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


def _rows(values: tf.Tensor | tf.RaggedTensor, row_splits: tf.Tensor) -> tf.RaggedTensor:
    """Splits values into rows, without checks, which would be half of the graph."""
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)
