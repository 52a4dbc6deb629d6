"""SentencePiece BPE that spells unknown characters as bytes, inside the TensorFlow graph.

characters [N] -> symbols: a token, or the bytes of a character that has none
               -> merged, all words at once
"""

import numpy as np
import tensorflow as tf

from bert_tf.text.merges_graph import MergeTable
from bert_tf.text.sentencepiece_vocab import SPACE_SYMBOL, SentencePieceVocab
from bert_tf.text.tensor_characters import count_up, look_up, utf8_bytes
from bert_tf.text.unicode_tables import NUM_CODE_POINTS, PagedTable
from bert_tf.text.word_tokens import WordTokens

_NO_TOKEN = -1


class SentencePieceBpeModel(tf.Module):
    """The tokens and merges of a vocabulary.

    Args:
      vocab: the vocabulary, with a token "<0x00>" .. "<0xFF>" for each byte.

    Raises:
      ValueError: if a byte has no token.
    """

    def __init__(self, vocab: SentencePieceVocab) -> None:
        super().__init__()
        names = [f"<0x{byte:02X}>" for byte in range(256)]
        missing = [name for name in names if name not in vocab.ids]
        if missing:
            raise ValueError(
                f"the vocabulary lacks tokens of bytes, {missing[0]} first, without which it is "
                "not available in the graph; give token ids."
            )
        self._byte_ids = np.array([vocab.ids[name] for name in names], np.int32)
        of_character = np.full(NUM_CODE_POINTS, _NO_TOKEN, np.int32)
        for token, index in vocab.ids.items():
            if len(token) == 1:
                of_character[ord(token)] = index
        self._of_character = PagedTable.pack(of_character)
        self._sizes = np.array([len(token) for token in vocab.tokens], np.int32)
        self._sizes[self._byte_ids] = 0  # One symbol, whatever the length of the name.
        self._merges = MergeTable.build(vocab.ids, vocab.merges)

    def encode(self, code_points: tf.Tensor, word_splits: tf.Tensor) -> WordTokens:
        """Returns the tokens of words.

        Args:
          code_points: the characters of all words, int32 [N].
          word_splits: row splits of the words into characters, int64 [W + 1].
        """
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
        counts = tf.math.bincount(
            owners, minlength=tf.size(lengths), maxlength=tf.size(lengths), dtype=tf.int64
        )
        begins, ends = self._characters_of(ids, symbols, widths, counts, splits)
        return WordTokens(ids, begins, ends, counts)

    def _characters_of(
        self,
        ids: tf.Tensor,
        symbols: tf.Tensor,
        widths: tf.Tensor,
        counts: tf.Tensor,
        splits: tf.Tensor,
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


def words_are_independent(vocab: SentencePieceVocab) -> bool:
    """Returns whether no merge joins the end of a word with the space before the next one."""
    for left, right in vocab.merges:
        if right.startswith(SPACE_SYMBOL) and not left.endswith(SPACE_SYMBOL):
            return False
    return True


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
