"""Byte-level BPE inside the TensorFlow graph, with the same results as `ByteBpe` in Python.

Strings are split into words by vector operations; `word_graph.py` does the rest. A vocabulary with
NFC also needs tensorflow-text's `normalize_utf8`.
"""

import functools

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.text import nfc
from bert_tf.text.added_tokens_graph import Characters, cut_out
from bert_tf.text.bpe_graph import BpeModel
from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.byte_level import (
    BYTE_CHARACTERS,
    BYTE_OF_CHARACTER,
    LETTER,
    NUMBER,
    OTHER,
    SPACE,
    SPACE_MARK,
    SPACES,
    code_point_ranges,
)
from bert_tf.text.tensor_characters import count_up, look_up
from bert_tf.text.unicode_tables import NUM_CODE_POINTS, PagedTable
from bert_tf.text.word_graph import (
    Encoded,
    WordTokenizer,
    are_written,
    insert_before,
    words_of_one_token,
)

_NFC_PLAIN, _NFC_COMPOSING, _NFC_UNKNOWN, _NFC_CHANGES = range(4)


class ByteBpeTokenizer(WordTokenizer):
    """Splits strings into ids of byte-level BPE, as `bert_tf.text.byte_bpe.ByteBpe` does."""

    vocab: BpeVocab

    def __init__(self, vocab: BpeVocab, name: str = "byte_bpe_tokenizer"):
        normalize = nfc.normalize if vocab.normalizer else str
        byte_ids = [vocab.ids.get(char, vocab.unk_id) for char in BYTE_CHARACTERS]
        model = BpeModel(vocab, byte_ids, character_ids={})
        super().__init__(vocab, model, words_of_one_token(vocab, _spell), normalize, name)

    def read(self, strings: tf.Tensor) -> Characters:
        decoded = tf.strings.unicode_decode(strings, "UTF-8", "replace")
        starts = count_up(decoded.row_lengths())
        text = Characters.of_text(decoded.values, decoded.value_rowids(), starts, starts + 1)

        def read_all() -> Characters:
            # The offsets of added tokens exclude spaces, as those of others do.
            trimming = (self._trim, SPACES + SPACE_MARK)
            characters = cut_out(text, self.raw_tokens, *trimming)
            if self.vocab.normalizer:
                characters = _normalize(characters)
            return cut_out(characters, self.normalized_tokens, *trimming)

        # Decided for the batch: most batches have no added token and nothing for NFC to change.
        is_special = are_written(self.vocab.added_tokens, strings)
        if self.vocab.normalizer:
            is_special |= tf.reduce_any(look_up(_nfc_kinds(), decoded.values) != _NFC_PLAIN)
        characters = tf.cond(is_special, read_all, lambda: text)
        if self.vocab.add_prefix_space:
            # Before each text, and each part after an added token, unless it has one.
            wants_space = characters.is_first & ~characters.is_added
            wants_space &= characters.code_points != ord(" ")
            characters = insert_before(characters, wants_space, ord(" "))
        return characters._replace(is_first=_word_starts(characters))

    def offsets(self, characters: Characters, encoded: Encoded) -> tuple[tf.Tensor, tf.Tensor]:
        starts = tf.gather(characters.starts, encoded.firsts)
        ends = tf.gather(characters.ends, encoded.lasts)
        tokens = self.vocab.tokens
        leading = np.array([len(t) - len(t.lstrip(SPACE_MARK)) for t in tokens], np.int32)
        trailing = np.array([len(t) - len(t.rstrip(SPACE_MARK)) for t in tokens], np.int32)
        ids = encoded.ids
        trimmed = self._trim(starts, ends, tf.gather(leading, ids), tf.gather(trailing, ids))
        # Added tokens are trimmed already.
        is_added = tf.gather(characters.is_added, encoded.firsts)
        return tf.where(is_added, starts, trimmed[0]), tf.where(is_added, ends, trimmed[1])

    def _trim(
        self, starts: tf.Tensor, ends: tf.Tensor, leading: tf.Tensor, trailing: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Removes `leading` and `trailing` characters from the ends of tokens."""
        if not self.vocab.trim_offsets:
            return starts, ends
        if self.vocab.add_prefix_space:
            # The space that `read` puts before a text is not a character of the text.
            leading = tf.where((starts == 0) & (leading == 1), 0, leading)
        starts = tf.minimum(starts + leading, ends)
        return starts, tf.maximum(ends - trailing, starts)


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
    kinds[list(map(ord, nfc.composing_characters()))] = _NFC_COMPOSING
    kinds[list(map(ord, nfc.unknown_characters()))] = _NFC_UNKNOWN
    return PagedTable.pack(kinds)


def _spell(token: str) -> bytes:
    """Returns the bytes of a token."""
    return bytes(BYTE_OF_CHARACTER[char] for char in token)


def _word_starts(characters: Characters) -> tf.Tensor:
    """Returns where words start, bool [N], as `byte_level.split_words`; added tokens are words."""
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
    return is_start | before(takes_one, False, 2) | before(takes_two, False, 3)


def _normalize(characters: Characters) -> Characters:
    """Converts the text to NFC, segment by segment, like `bert_tf.text.nfc`."""
    code_points = tf.where(characters.is_added, 0, characters.code_points)
    kinds = look_up(_nfc_kinds(), code_points)
    follows_unknown = tf.concat([[False], kinds[:-1] == _NFC_UNKNOWN], 0)[: tf.size(kinds)]
    # A segment starts at each character that cannot compose with the one before it.
    is_start = characters.is_first | (kinds != _NFC_COMPOSING) | follows_unknown
    splits = tf.concat([tf.where(is_start)[:, 0], tf.shape(kinds, tf.int64)], 0)
    segments = tf.strings.unicode_encode(
        tf.RaggedTensor.from_row_splits(code_points, splits, validate=False), "UTF-8"
    )
    normal = tf_text.normalize_utf8(segments, "NFC")
    decoded = tf.strings.unicode_decode(normal, "UTF-8")
    of_segment = decoded.value_rowids()
    nth = count_up(decoded.row_lengths())
    is_changed = tf.gather(normal != segments, of_segment)
    first = tf.gather(splits, of_segment)
    # All characters of a changed segment get the offsets of the whole segment.
    same = tf.where(is_changed, first, first + tf.cast(nth, tf.int64))
    last = tf.where(is_changed, tf.gather(splits, of_segment + 1) - 1, same)
    moved = characters.gather(same)
    return moved._replace(
        code_points=tf.where(moved.is_added, moved.code_points, decoded.values),
        is_first=moved.is_first & (nth == 0),
        ends=tf.gather(characters.ends, last),
    )
