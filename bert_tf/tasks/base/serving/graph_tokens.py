"""Tokenizes texts inside the graph, with the offsets of every token.

  texts [B] -> tokens, ragged [B, (tokens)], with their bytes

Bytes that are not UTF-8 are read as U+FFFD, see `replace_malformed`. The only operation from
outside TensorFlow is WordPiece's `FastWordpieceTokenizeWithOffsets`.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.text.byte_bpe_graph import ByteBpeTokenizer
from bert_tf.text.tokenizer import BertTokenizer

MULTIPLIER = 6364136223846793005  # Knuth's, of a linear congruential generator.


def as_int64(value: int) -> int:
    """Returns the signed 64-bit number with the same bits as an unsigned one."""
    return value - (1 << 64) if value >= 1 << 63 else value


class GraphTokens(NamedTuple):
    """Tokens of texts, each field ragged int32 [B, (tokens)]."""

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor  # first byte in the text
    ends: tf.RaggedTensor  # one past the last byte

    def lengths(self) -> tf.Tensor:
        """Returns the number of tokens in each text, int64 [B]."""
        return self.ids.row_lengths()

    def cut(self, lengths: tf.Tensor) -> "GraphTokens":
        """Keeps the first tokens of each text, `lengths` int64 [B] of them."""
        return self.slice(tf.range(self.ids.nrows()), tf.zeros_like(lengths), lengths)

    def slice(self, texts: tf.Tensor, firsts: tf.Tensor, ends: tf.Tensor) -> "GraphTokens":
        """Returns R slices, each with tokens `firsts` to `ends` of a text, int64 [R] each."""
        before = tf.gather(self.ids.row_splits, texts)  # tokens of the preceding texts
        # Indices into the tokens of all texts, ragged [R, (tokens)].
        positions = tf.ragged.range(before + firsts, before + ends)
        return GraphTokens(*(tf.gather(column.values, positions) for column in self))


def find_tokens(tokenizer: BertTokenizer | ByteBpeTokenizer, texts: tf.Tensor) -> GraphTokens:
    """Tokenizes texts, string [B]."""
    columns = tokenizer.tokenize_with_offsets(texts)  # [B, (words), (tokens)] each
    return GraphTokens(*(column.merge_dims(1, 2) for column in columns))


def replace_malformed(texts: tf.Tensor) -> tf.Tensor:
    """Replaces bytes that are not UTF-8 as `bytes.decode("utf-8", "replace")` does.

    Offsets of answers count each U+FFFD as a character.
    """
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


class Characters:
    """Characters (code points) of texts, as clients count them.

    Args:
      texts: UTF-8, string [B].
    """

    FIRST_MARK = 0x300  # The lowest code of a combining mark.
    # An odd number and its inverse modulo 2 ** 64, as signed numbers.
    BASE = MULTIPLIER
    INVERSE = as_int64(pow(MULTIPLIER, -1, 1 << 64))

    def __init__(self, texts: tf.Tensor) -> None:
        codes, starts = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")  # [B, (characters)]
        self._codes = codes.values  # [C], the characters of all texts
        self._splits = codes.row_splits  # [B + 1], where each text starts in them
        sizes = tf.cast(tf.strings.length(texts), tf.int64)
        # Byte offsets count from the start of the first text, so that one search serves all texts.
        self._text_bytes = tf.cumsum(sizes, exclusive=True)  # [B]
        self._bytes = starts.values + tf.gather(self._text_bytes, starts.value_rowids())  # [C]

    def before(self, bytes_before: tf.RaggedTensor) -> tf.RaggedTensor:
        """Converts byte offsets into character offsets, both ragged int32 [B, (N)]."""
        rows = bytes_before.value_rowids()  # [M], the text of each offset
        flat = tf.cast(bytes_before.values, tf.int64) + tf.gather(self._text_bytes, rows)  # [M]
        # The characters that start before the byte, minus those of the preceding texts.
        characters = tf.searchsorted(self._bytes, flat, out_type=tf.int64)
        characters -= tf.gather(self._splits, rows)
        return bytes_before.with_values(tf.cast(characters, tf.int32))

    def after_marks(self, offsets: tf.RaggedTensor) -> tf.RaggedTensor:
        """Moves character offsets past the combining marks that follow them.

        The marks belong to the preceding letter, even if uncased tokenization drops them.
        """

        def move() -> tf.Tensor:
            letters = tf.strings.unicode_encode(self._codes[:, tf.newaxis], "UTF-8")  # [C]
            # Indices of the characters that are not marks; the last is the end of all texts.
            others = tf.where(~tf.strings.regex_full_match(letters, r"\p{Mn}"))[:, 0]
            others = tf.concat([others, tf.shape(self._codes, tf.int64)], 0)
            firsts = tf.gather(self._splits, offsets.value_rowids())  # [M]
            ends = tf.gather(self._splits, offsets.value_rowids() + 1)  # [M]
            flat = tf.cast(offsets.values, tf.int64) + firsts  # [M]
            # The first character from the offset on that is not a mark.
            following = tf.gather(others, tf.searchsorted(others, flat))
            # Marks at the start of the next text do not belong to this one.
            return tf.cast(tf.minimum(following, ends) - firsts, tf.int32)

        # Most texts have no marks, and the regular expression runs for every character.
        has_marks = tf.reduce_any(self._codes >= self.FIRST_MARK)
        return offsets.with_values(tf.cond(has_marks, move, lambda: offsets.values))

    def texts(self, starts: tf.RaggedTensor, ends: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the texts between character offsets, ragged string [B, (N)]."""
        before = tf.gather(self._splits, starts.value_rowids())
        first = before + tf.cast(starts.values, tf.int64)
        end = before + tf.cast(ends.values, tf.int64)
        codes = tf.gather(self._codes, tf.ragged.range(first, end))
        return starts.with_values(tf.strings.unicode_encode(codes, "UTF-8"))

    def keys(self, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Returns a number for each text between character offsets, to compare texts by.

        Equal texts of the same row have equal keys. Others have different ones, but for a chance of
        about 2 ** -64 for each pair: the key is a polynomial of the codes, modulo 2 ** 64.

        Args:
          rows: int64 [S], the text that each is part of.
          starts, ends: int32 [S], the first character and the one after the last.

        Returns:
          int64 [S].
        """
        count = tf.shape(self._codes)[0]
        # BASE ** (i + 1) and its inverse for each character i.
        powers = tf.math.cumprod(tf.fill([count + 1], tf.constant(self.BASE, tf.int64)))
        inverses = tf.math.cumprod(tf.fill([count + 1], tf.constant(self.INVERSE, tf.int64)))
        sums = tf.cumsum(tf.cast(self._codes + 1, tf.int64) * powers[:count])
        sums = tf.concat([tf.zeros([1], tf.int64), sums], 0)  # of the characters before each
        before = tf.gather(self._splits, rows)
        first = before + tf.cast(starts, tf.int64)
        end = before + tf.cast(ends, tf.int64)
        # The sum over a text has a power of its position as a factor, which the inverse removes.
        polynomial = (tf.gather(sums, end) - tf.gather(sums, first)) * tf.gather(inverses, first)
        # The row is one more digit: equal texts of different rows have different keys.
        return polynomial * self.BASE + rows


def first_of_largest(scores: tf.Tensor, keys: tf.Tensor, num_keys: tf.Tensor) -> tf.Tensor:
    """Returns the position of the largest score of each key, the first of equal scores.

    Args:
      scores: [N].
      keys: int64 [N], with each of 0 .. num_keys - 1 at least once.
      num_keys: K.

    Returns:
      int64 [K].
    """
    largest = tf.math.unsorted_segment_max(scores, keys, num_keys)
    positions = tf.range(tf.size(scores, tf.int64))
    # Positions with a smaller score become the largest number, which the minimum ignores.
    positions = tf.where(scores == tf.gather(largest, keys), positions, positions.dtype.max)
    return tf.math.unsorted_segment_min(positions, keys, num_keys)
