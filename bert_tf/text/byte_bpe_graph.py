"""Byte-level BPE inside the TensorFlow graph, with the same results as `ByteBpe` in Python.

    strings [B] -> code points [N], flat, each added token ("<mask>") as one character
                -> words [W] by vector operations -> unique words, as strings
                -> tokens: from a table where a word is a token, else by merging all words at once
                -> [B, (words), (tokens)]

It uses only TensorFlow's operations, so any server can run it; a vocabulary with NFC also needs
tensorflow-text's `normalize_utf8`. Bytes that are not UTF-8 are read as U+FFFD, as
`bytes.decode("utf-8", "replace")` does.
"""

import functools
import re

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.text import nfc
from bert_tf.text.added_tokens_graph import (
    NO_TOKEN,
    SPACES_PATTERN,
    AddedTokenFinder,
    Characters,
    Parts,
    join_parts,
    string_table,
)
from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.byte_bpe import ByteBpe
from bert_tf.text.byte_level import (
    BYTE_CHARACTERS,
    BYTE_OF_CHARACTER,
    LETTER,
    NUMBER,
    OTHER,
    SPACE,
    SPACE_MARK,
    code_point_ranges,
)
from bert_tf.text.merges_graph import MergeTable
from bert_tf.text.tensor_characters import count_up, look_up, nested, to_bytes, utf8_bytes
from bert_tf.text.unicode_tables import NUM_CODE_POINTS, PagedTable

_NFC_PLAIN, _NFC_COMPOSING, _NFC_UNKNOWN, _NFC_CHANGES = range(4)


class ByteBpeTokenizer(tf.Module):
    """Splits strings into ids of byte-level BPE, as `bert_tf.text.byte_bpe.ByteBpe` does.

    It works eagerly, in `tf.function` and in `tf.data`; a module that contains it can be saved.

    Args:
      vocab: the tokens and merges.
    """

    def __init__(self, vocab: BpeVocab, name: str = "byte_bpe_tokenizer"):
        super().__init__(name)
        self.vocab = vocab
        raw = [token for token in vocab.added_tokens if not token.normalized]
        normalized = [token for token in vocab.added_tokens if token.normalized]
        normalize = nfc.normalize if vocab.normalizer else str
        self._added_raw = AddedTokenFinder(raw, vocab.ids)
        self._added_normalized = AddedTokenFinder(normalized, vocab.ids, normalize)
        self._byte_ids = np.array(
            [vocab.ids.get(char, vocab.unk_id) for char in BYTE_CHARACTERS], np.int32
        )
        self._merges = MergeTable.build(vocab.ids, vocab.merges)
        words, ids = _words_of_one_token(vocab)
        self._whole_words = string_table(words, ids)

    @property
    def resources(self) -> list[tf.Module]:
        """The objects with tables, which an export has to track."""
        return [self]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "strings")], autograph=False)
    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns the token ids.

        Args:
          strings: string [B], UTF-8.

        Returns:
          int32 [B, (words), (tokens)].
        """
        characters = self._read(strings)
        word_splits, row_splits = _split_words(characters, tf.size(strings))
        ids, token_splits = self._encode(characters, word_splits)
        return nested(ids, row_splits, token_splits)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "strings")], autograph=False)
    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the token ids and their byte offsets in the original strings.

        Args:
          strings: string [B], UTF-8.

        Returns:
          Ids, start bytes and end bytes, each int32 [B, (words), (tokens)].
        """
        characters = self._read(strings)
        word_splits, row_splits = _split_words(characters, tf.size(strings))
        ids, token_splits = self._encode(characters, word_splits)
        rows, starts, ends = self._locate(characters, word_splits, ids, token_splits)
        columns = (ids, *to_bytes(strings, rows, starts, ends))
        return tuple(nested(column, row_splits, token_splits) for column in columns)

    def _read(self, strings: tf.Tensor) -> Characters:
        """Returns the characters of the words, with each added token as one character."""
        decoded = tf.strings.unicode_decode(strings, "UTF-8", "replace")
        row_lengths = decoded.row_lengths()
        rows = decoded.value_rowids()
        # [N], the index of each character in its string.
        starts = count_up(row_lengths)
        code_points = decoded.values

        def read_plain() -> Characters:
            return Characters(
                code_points, tf.fill(tf.shape(rows), False), starts == 0, rows, starts, starts + 1
            )

        def read_all() -> Characters:
            clean = tf.strings.unicode_encode(decoded, "UTF-8")
            parts = Parts(
                clean,
                tf.fill(tf.shape(clean), NO_TOKEN),
                tf.range(tf.size(clean, tf.int64)),
                starts,
                starts + 1,
            )
            parts = self._added_raw.find(parts)
            if self.vocab.normalizer:
                parts = _normalize(parts)
            parts = self._added_normalized.find(parts)
            return self._join(parts)

        contents = [re.escape(token.content) for token in self.vocab.added_tokens]
        # \C is any byte, so the strings need not be UTF-8.
        pattern = rf"\C*(?:{'|'.join(contents)})\C*"
        # Decided for the batch: most batches have no added token and nothing for NFC to change.
        is_special = tf.reduce_any(tf.strings.regex_full_match(strings, pattern))
        if self.vocab.normalizer:
            is_special |= tf.reduce_any(look_up(_nfc_kinds(), code_points) != _NFC_PLAIN)
        characters = tf.cond(is_special, read_all, read_plain)
        return _add_spaces(characters) if self.vocab.add_prefix_space else characters

    def _join(self, parts: Parts) -> Characters:
        """Concatenates the parts; the offsets of added tokens exclude spaces, as others do."""
        characters, part = join_parts(parts)

        def count_spaces(pattern: str) -> tf.Tensor:
            rest = tf.strings.regex_replace(parts.strings, pattern, "")
            removed = tf.strings.length(parts.strings, "UTF8_CHAR") - tf.strings.length(
                rest, "UTF8_CHAR"
            )
            return tf.gather(removed, part)

        leading = count_spaces(rf"\A[{SPACES_PATTERN}{SPACE_MARK}]+")
        trailing = count_spaces(rf"[{SPACES_PATTERN}{SPACE_MARK}]+\z")
        starts, ends = self._trim(characters.starts, characters.ends, leading, trailing)
        return characters._replace(
            starts=tf.where(characters.is_added, starts, characters.starts),
            ends=tf.where(characters.is_added, ends, characters.ends),
        )

    def _trim(
        self, starts: tf.Tensor, ends: tf.Tensor, leading: tf.Tensor, trailing: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Removes `leading` and `trailing` characters from the ends of tokens."""
        if not self.vocab.trim_offsets:
            return starts, ends
        if self.vocab.add_prefix_space:
            # The space that `_add_spaces` put before a text is not a character of the text.
            leading = tf.where((starts == 0) & (leading == 1), 0, leading)
        starts = tf.minimum(starts + leading, ends)
        return starts, tf.maximum(ends - trailing, starts)

    def _encode(
        self, characters: Characters, word_splits: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the token ids of all words, int32 [P], and their row splits, int64 [W + 1]."""
        # An added token is a word of U+0000 here; its id replaces the result below.
        code_points = tf.where(characters.is_added, 0, characters.code_points)
        words = tf.strings.unicode_encode(
            tf.RaggedTensor.from_row_splits(code_points, word_splits, validate=False), "UTF-8"
        )
        # [U]: a word that is repeated is looked up and merged once.
        unique, unique_index = tf.unique(words, tf.int64)
        whole = self._whole_words.lookup(unique)
        others = tf.where(whole < 0)
        merged, lengths = self._merge(tf.gather(unique, others[:, 0]))
        # A start below `num_merged` is an index into `merged`. A word of one token has no entry
        # there: its start is `num_merged` plus the token id.
        num_merged = tf.size(merged, tf.int64)
        unique_starts = tf.tensor_scatter_nd_update(
            tf.cast(whole, tf.int64) + num_merged, others, tf.cumsum(lengths, exclusive=True)
        )
        unique_lengths = tf.tensor_scatter_nd_update(tf.ones_like(whole, tf.int64), others, lengths)
        firsts = word_splits[:-1]
        is_added = tf.gather(characters.is_added, firsts)
        added_starts = tf.cast(tf.gather(characters.code_points, firsts), tf.int64) + num_merged
        word_starts = tf.where(is_added, added_starts, tf.gather(unique_starts, unique_index))
        word_lengths = tf.where(
            is_added, tf.ones_like(unique_index), tf.gather(unique_lengths, unique_index)
        )
        token_splits = tf.concat([[0], tf.cumsum(word_lengths)], 0)  # [W + 1]
        sources = tf.repeat(word_starts - token_splits[:-1], word_lengths) + tf.range(
            token_splits[-1]
        )
        is_merged = sources < num_merged
        from_merged = tf.gather(tf.concat([merged, [0]], 0), tf.where(is_merged, sources, 0))
        ids = tf.where(is_merged, from_merged, tf.cast(sources - num_merged, tf.int32))
        return ids, token_splits

    def _merge(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Merges the bytes of all words [U] at once: in each step, each word's pairs of least rank.

        Returns:
          The token ids of all words, int32, and the number of tokens of each word, int64 [U].
        """
        sizes = tf.strings.length(words)
        values = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
        # [bytes of all words]: each byte is a symbol at first.
        symbols = tf.gather(self._byte_ids, tf.cast(values, tf.int32))
        owners = tf.repeat(tf.range(tf.size(words)), sizes)
        symbols, owners = self._merges.merge(symbols, owners, tf.size(words))
        lengths = tf.math.bincount(
            owners, minlength=tf.size(words), maxlength=tf.size(words), dtype=tf.int64
        )
        return symbols, lengths

    def _locate(
        self,
        characters: Characters,
        word_splits: tf.Tensor,
        ids: tf.Tensor,
        token_splits: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the string, start character and end character of each token, [P]."""
        is_added = tf.repeat(
            tf.gather(characters.is_added, word_splits[:-1]), token_splits[1:] - token_splits[:-1]
        )
        tokens = self.vocab.tokens
        # Tokens are written with one character per byte.
        num_bytes = np.array([len(token) for token in tokens], np.int32)
        num_bytes = tf.where(is_added, 1, tf.gather(num_bytes, ids))
        after = tf.cumsum(num_bytes)
        widths = tf.where(characters.is_added, 1, utf8_bytes(characters.code_points))
        character_of_byte = tf.repeat(tf.range(tf.size(widths)), widths)
        firsts = tf.gather(character_of_byte, after - num_bytes)
        lasts = tf.gather(character_of_byte, after - 1)
        starts = tf.gather(characters.starts, firsts)
        ends = tf.gather(characters.ends, lasts)
        leading = np.array([len(t) - len(t.lstrip(SPACE_MARK)) for t in tokens], np.int32)
        trailing = np.array([len(t) - len(t.rstrip(SPACE_MARK)) for t in tokens], np.int32)
        trimmed = self._trim(starts, ends, tf.gather(leading, ids), tf.gather(trailing, ids))
        starts = tf.where(is_added, starts, trimmed[0])
        ends = tf.where(is_added, ends, trimmed[1])
        return tf.gather(characters.rows, firsts), starts, ends


@functools.cache
def _kind_table() -> PagedTable:
    """Returns OTHER, LETTER, NUMBER or SPACE of each code point."""
    kinds = np.full(NUM_CODE_POINTS, OTHER, np.uint8)
    for kind in (LETTER, NUMBER, SPACE):
        for first, last in code_point_ranges(kind):
            kinds[first : last + 1] = kind
    return PagedTable.pack(kinds)


@functools.cache
def _nfc_kinds() -> PagedTable:
    """Returns how NFC may change each code point."""
    kinds = np.full(NUM_CODE_POINTS, _NFC_PLAIN, np.uint8)
    for code in range(NUM_CODE_POINTS):
        if not 0xD800 <= code < 0xE000 and nfc.normalize(chr(code)) != chr(code):
            kinds[code] = _NFC_CHANGES
    kinds[[ord(char) for char in nfc.composing_characters()]] = _NFC_COMPOSING
    kinds[[ord(char) for char in nfc.unknown_characters()]] = _NFC_UNKNOWN
    return PagedTable.pack(kinds)


def _words_of_one_token(vocab: BpeVocab) -> tuple[list[bytes], list[int]]:
    """Returns the words that are a single token, as UTF-8, and the ids."""
    tokenizer = ByteBpe(vocab)
    added = {token.content for token in vocab.added_tokens}
    words = []
    ids = []
    for token, index in vocab.ids.items():
        if token in added:
            continue
        word = bytes(BYTE_OF_CHARACTER[char] for char in token)
        # The merges of a word's bytes may end in other tokens than the one with these bytes.
        if tokenizer.encode_bytes(word) == [index]:
            words.append(word)
            ids.append(index)
    return words, ids


def _add_spaces(characters: Characters) -> Characters:
    """Adds a space before each text, and each part after an added token, unless it has one."""
    wants_space = characters.is_first & ~characters.is_added & (characters.code_points != ord(" "))
    # A character that wants a space is taken twice; its first copy becomes the space.
    source = tf.repeat(
        tf.range(tf.size(wants_space)), tf.where(wants_space, 2, tf.ones([], tf.int32))
    )
    is_same = source[1:] == source[:-1]
    # 0 if there are no characters, where nothing may be appended.
    size = tf.minimum(tf.size(source), 1)
    is_space = tf.concat([is_same, tf.fill([size], False)], 0)
    is_second = tf.concat([tf.fill([size], False), is_same], 0)
    wide = characters.gather(source)
    return wide._replace(
        code_points=tf.where(is_space, ord(" "), wide.code_points),
        is_first=wide.is_first & ~is_second,
    )


def _split_words(characters: Characters, num_rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Splits like `byte_level.split_words`; an added token is a word.

    Returns:
      Row splits of the words into characters, int64 [W + 1], and of the strings into words, int64
      [B + 1].
    """
    code_points, is_added, is_first = characters[:3]
    kinds = look_up(_kind_table(), tf.where(is_added, 0, code_points))
    is_space = kinds == SPACE

    def before(values: tf.Tensor, filler: object, by: int = 1) -> tf.Tensor:
        return tf.concat([tf.fill([by], tf.cast(filler, values.dtype)), values], 0)[
            : tf.size(kinds)
        ]

    def after(values: tf.Tensor, filler: object, by: int = 1) -> tf.Tensor:
        return tf.concat([values, tf.fill([by], tf.cast(filler, values.dtype))], 0)[by:]

    # A space before another kind is the start of that word; other white space there is a word.
    is_last_space = is_space & ~after(is_first, True) & (after(kinds, SPACE) != SPACE)
    follows_blank = before((code_points == ord(" ")) & ~is_added, False)
    starts_run = is_first | (kinds != before(kinds, OTHER))
    is_start = tf.where(
        is_space, starts_run | is_last_space, is_first | (starts_run & ~follows_blank)
    )
    # "'s", "'re": an apostrophe at the start of a word is joined with one letter or two.
    first = after(code_points, 0)
    second = after(code_points, 0, 2)
    has_first = ~after(is_first, True)
    has_second = ~after(is_first, True, 2)
    is_apostrophe = is_start & (code_points == ord("'")) & ~is_added & has_first
    takes_one = is_apostrophe & tf.reduce_any([first == ord(char) for char in "stmd"], 0)
    takes_two = (
        is_apostrophe
        & has_second
        & tf.reduce_any([(first == ord(a)) & (second == ord(b)) for a, b in ("re", "ve", "ll")], 0)
    )
    is_start &= ~before(takes_one | takes_two, False)
    is_start |= before(takes_one, False, 2) | before(takes_two, False, 3)
    word_starts = tf.where(is_start)[:, 0]
    word_splits = tf.concat([word_starts, tf.shape(kinds, tf.int64)], 0)
    words_per_row = tf.math.bincount(
        tf.cast(tf.gather(characters.rows, word_starts), tf.int32),
        minlength=num_rows,
        maxlength=num_rows,
        dtype=tf.int64,
    )
    return word_splits, tf.concat([[0], tf.cumsum(words_per_row)], 0)


def _normalize(parts: Parts) -> Parts:
    """Converts the text parts to NFC, segment by segment, like `bert_tf.text.nfc`."""
    decoded = tf.strings.unicode_decode(parts.strings, "UTF-8", "replace")
    part = decoded.value_rowids()
    kinds = look_up(_nfc_kinds(), decoded.values)
    is_first = count_up(decoded.row_lengths()) == 0
    follows_unknown = tf.concat([[False], kinds[:-1] == _NFC_UNKNOWN], 0)
    # A segment starts at each character that cannot compose with the one before it.
    is_start = is_first | (kinds != _NFC_COMPOSING) | follows_unknown
    seg_starts = tf.where(is_start)[:, 0]
    seg_splits = tf.concat([seg_starts, tf.shape(kinds, tf.int64)], 0)
    segments = tf.strings.unicode_encode(
        tf.RaggedTensor.from_row_splits(decoded.values, seg_splits, validate=False), "UTF-8"
    )
    seg_part = tf.gather(part, seg_starts)
    is_text = tf.gather(parts.ids, seg_part) < 0
    normal = tf.where(is_text, tf_text.normalize_utf8(segments, "NFC"), segments)
    lengths = tf.strings.length(normal, "UTF8_CHAR")
    of_segment = tf.repeat(tf.range(tf.size(segments)), lengths)
    is_changed = tf.gather(normal != segments, of_segment)
    first = tf.gather(seg_splits, of_segment)
    # All characters of a changed segment get the offsets of the whole segment.
    same = tf.where(is_changed, first, first + tf.cast(count_up(lengths), tf.int64))
    last = tf.where(is_changed, tf.gather(seg_splits, of_segment + 1) - 1, same)
    return Parts(
        tf.strings.unsorted_segment_join(normal, seg_part, tf.size(parts.strings)),
        parts.ids,
        parts.rows,
        tf.gather(parts.starts, same),
        tf.gather(parts.ends, last),
    )
