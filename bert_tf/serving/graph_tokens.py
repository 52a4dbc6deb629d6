"""Tokenizes texts inside the graph, with the offsets of every piece.

  texts [B] -> pieces, ragged [B, (pieces)], with their bytes and words

A text that is not UTF-8 is refused with INVALID_ARGUMENT; the server lives on. Of all operations
only WordPiece's `FastWordpieceTokenizeWithOffsets` is not TensorFlow's own.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.text.byte_bpe_graph import ByteBpeTokenizer
from bert_tf.text.tokenizer import BertTokenizer


class Pieces(NamedTuple):
    """Pieces of texts, each ragged int32 [B, (pieces)]."""

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor  # first byte in the text
    ends: tf.RaggedTensor  # the byte after the last
    words: tf.RaggedTensor  # number of the word in the text, from 0

    def lengths(self) -> tf.Tensor:
        """Returns how many pieces each text has, int64 [B]."""
        return self.ids.row_lengths()

    def cut(self, lengths: tf.Tensor) -> "Pieces":
        """Returns the first pieces of each text, as many as `lengths` says: int64 [B]."""
        return self.slice(tf.range(self.ids.nrows()), tf.zeros_like(lengths), lengths)

    def slice(self, texts: tf.Tensor, firsts: tf.Tensor, ends: tf.Tensor) -> "Pieces":
        """Returns a row a slice: pieces `firsts` to `ends` of the texts, int64 [R] each."""
        before = tf.gather(self.ids.row_splits, texts)
        places = tf.ragged.range(before + firsts, before + ends)
        return Pieces(*(tf.gather(column.values, places) for column in self))


def find_pieces(tokenizer: BertTokenizer | ByteBpeTokenizer, texts: tf.Tensor) -> Pieces:
    """Tokenizes texts, string [B].

    Raises:
      InvalidArgumentError: when it runs, if a text is not UTF-8.
    """
    columns = tokenizer.tokenize_with_offsets(check_utf8(texts))  # [B, (words), (pieces)]
    return number_words(*columns)


def number_words(ids: tf.RaggedTensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor) -> Pieces:
    """Makes pieces of what the tokenizer returns, int32 [B, (words), (pieces)] each."""
    words = tf.range(ids.values.nrows()) - tf.gather(ids.row_splits, ids.value_rowids())  # [W]
    words = tf.cast(tf.gather(words, ids.values.value_rowids()), tf.int32)
    ids, starts, ends = (column.merge_dims(1, 2) for column in (ids, starts, ends))
    return Pieces(ids, starts, ends, ids.with_values(words))


def check_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Returns the texts, once it is clear that they are UTF-8.

    Raises:
      InvalidArgumentError: when it runs, if one is not.
    """
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="strict")


class Characters:
    """The characters (code points) of texts, as clients count them.

    Args:
      texts: UTF-8, string [B].
    """

    FIRST_MARK = 0x300  # No combining mark stands below.

    def __init__(self, texts: tf.Tensor) -> None:
        codes, starts = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")  # [B, (characters)]
        self._codes, self._splits = codes.values, codes.row_splits
        sizes = tf.cast(tf.strings.length(texts), tf.int64)
        # All texts in one row, so that one search finds all places.
        self._text_bytes = tf.cumsum(sizes, exclusive=True)  # [B]
        self._bytes = starts.values + tf.gather(self._text_bytes, starts.value_rowids())

    def before(self, bytes_before: tf.RaggedTensor) -> tf.RaggedTensor:
        """Turns places in bytes into places in characters: ragged int32 [B, (N)] each."""
        rows = bytes_before.value_rowids()
        flat = tf.cast(bytes_before.values, tf.int64) + tf.gather(self._text_bytes, rows)
        found = tf.searchsorted(self._bytes, flat, out_type=tf.int64)
        return bytes_before.with_values(tf.cast(found - tf.gather(self._splits, rows), tf.int32))

    def after_marks(self, places: tf.RaggedTensor) -> tf.RaggedTensor:
        """Moves places in characters behind the combining marks that follow them.

        The marks belong to the letter before them, also where the uncased rules drop them.
        """

        def move() -> tf.Tensor:
            letters = tf.strings.unicode_encode(self._codes[:, tf.newaxis], "UTF-8")
            others = tf.where(~tf.strings.regex_full_match(letters, r"\p{Mn}"))[:, 0]
            others = tf.concat([others, tf.shape(self._codes, tf.int64)], 0)
            firsts = tf.gather(self._splits, places.value_rowids())
            ends = tf.gather(self._splits, places.value_rowids() + 1)
            flat = tf.cast(places.values, tf.int64) + firsts
            following = tf.gather(others, tf.searchsorted(others, flat))
            return tf.cast(tf.minimum(following, ends) - firsts, tf.int32)

        has_marks = tf.reduce_any(self._codes >= self.FIRST_MARK)
        return places.with_values(tf.cond(has_marks, move, lambda: places.values))

    def texts(self, starts: tf.RaggedTensor, ends: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the texts between places in characters: ragged string [B, (N)]."""
        before = tf.gather(self._splits, starts.value_rowids())
        first = before + tf.cast(starts.values, tf.int64)
        codes = tf.gather(
            self._codes, tf.ragged.range(first, before + tf.cast(ends.values, tf.int64))
        )
        return starts.with_values(tf.strings.unicode_encode(codes, "UTF-8"))
