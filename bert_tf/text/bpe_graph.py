"""Byte pair encoding inside the TensorFlow graph.

characters [N] -> symbols: a token, or the bytes of a character that has none
               -> merged, all words at once
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.text.merges_graph import MergeTable
from bert_tf.text.tensor_characters import count_by, count_up, look_up, utf8_bytes
from bert_tf.text.tokenizer_json import TokenizerJsonVocab
from bert_tf.text.unicode_tables import NUM_CODE_POINTS, PagedTable
from bert_tf.text.word_graph import WordTokens

_NO_TOKEN = -1


class BpeModel(tf.Module):
    """The tokens and merges of a vocabulary.

    Args:
      byte_ids: the token of each byte.
      character_ids: the tokens of characters, by code point; other characters are bytes.
    """

    def __init__(
        self,
        vocab: TokenizerJsonVocab,
        byte_ids: Sequence[int],
        character_ids: Mapping[int, int],
    ) -> None:
        super().__init__()
        self._byte_ids = np.array(byte_ids, np.int32)
        of_character = np.full(NUM_CODE_POINTS, _NO_TOKEN, np.int32)
        for code, index in character_ids.items():
            of_character[code] = index
        self._of_character = PagedTable.pack(of_character)
        self._sizes = np.array(list(map(len, vocab.tokens)), np.int32)
        self._sizes[self._byte_ids] = 0  # One symbol, whatever the length of the name.
        self._merges = MergeTable.build(vocab.ids, vocab.merges)

    def encode(self, code_points: tf.Tensor, word_splits: tf.Tensor) -> WordTokens:
        """Returns the tokens of words; see `WordModel`."""
        splits = tf.cast(word_splits, tf.int32)
        lengths = splits[1:] - splits[:-1]
        words = tf.repeat(tf.range(tf.size(lengths)), lengths)  # [N]
        of_character = look_up(self._of_character, code_points)
        # [N], symbols of each character: the token itself, or one for each byte.
        widths = tf.where(of_character >= 0, 1, utf8_bytes(code_points))
        owners = tf.repeat(words, widths)  # [symbols]
        symbols = tf.where(
            tf.repeat(of_character, widths) >= 0,
            tf.repeat(of_character, widths),
            tf.gather(self._byte_ids, _bytes_of(code_points, widths)),
        )
        ids, owners = self._merges.merge(symbols, owners, tf.size(lengths))
        counts = count_by(owners, tf.size(lengths))
        begins, ends = self._characters_of(ids, widths, counts, splits)
        return WordTokens(ids, begins, ends, counts)

    def _characters_of(
        self, ids: tf.Tensor, widths: tf.Tensor, counts: tf.Tensor, splits: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the first character of each token and the one after it, in its word."""
        # A token has as many symbols as characters; a byte is one symbol.
        num_symbols = tf.maximum(tf.gather(self._sizes, ids), 1)
        after = tf.cumsum(num_symbols)
        character = tf.repeat(tf.range(tf.size(widths)), widths)  # of each symbol
        first = tf.gather(character, after - num_symbols)
        last = tf.gather(character, after - 1)
        word_start = tf.repeat(splits[:-1], counts)
        return first - word_start, last + 1 - word_start


def _bytes_of(code_points: tf.Tensor, widths: tf.Tensor) -> tf.Tensor:
    """Returns the UTF-8 bytes of characters, int32 [symbols], of those with `widths` of 1 any."""
    codes = tf.repeat(code_points, widths)
    num_bytes = tf.repeat(widths, widths)
    nth = count_up(widths)
    # UTF-8: the first byte has a prefix for the length and the highest bits, each other one 6 bits.
    shift = 6 * (num_bytes - 1 - nth)
    bits = tf.bitwise.right_shift(codes, shift)
    leading = tf.gather([0, 0, 0xC0, 0xE0, 0xF0], num_bytes)
    first = tf.where(num_bytes == 1, codes, leading + bits)
    return tf.where(nth == 0, first, 0x80 + bits % 64) % 256
