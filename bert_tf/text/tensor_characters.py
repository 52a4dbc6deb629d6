"""Helpers for the characters of strings inside the TensorFlow graph."""

import tensorflow as tf

from bert_tf.text.unicode_tables import PAGE_SIZE, PagedTable


def look_up(table: PagedTable, code_points: tf.Tensor) -> tf.Tensor:
    """Returns the table's values for int32 [N] code points."""
    page = tf.gather(table.page_of, code_points // PAGE_SIZE)
    return tf.gather(table.pages, page * PAGE_SIZE + code_points % PAGE_SIZE)


def utf8_bytes(code_points: tf.Tensor) -> tf.Tensor:
    """Returns the number of UTF-8 bytes of each code point, int32 [N]."""
    return 1 + tf.add_n([tf.cast(code_points >= c, tf.int32) for c in (0x80, 0x800, 0x10000)])


def count_up(lengths: tf.Tensor) -> tf.Tensor:
    """Returns 0, 1, 2, ... for each length, int32."""
    lengths = tf.cast(lengths, tf.int32)
    starts = tf.cumsum(lengths, exclusive=True)
    return tf.range(tf.reduce_sum(lengths)) - tf.repeat(starts, lengths)


def count_by(owners: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns how often each of 0 .. size - 1 is among `owners`, int64 [size]."""
    owners = tf.cast(owners, tf.int32)
    return tf.math.bincount(owners, minlength=size, maxlength=size, dtype=tf.int64)


def to_bytes(
    strings: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Converts character offsets in the strings to byte offsets, int32 [P]."""
    offsets = tf.strings.unicode_decode_with_offsets(strings, "UTF-8", "replace")[1]
    sizes = tf.cast(tf.strings.length(strings), tf.int64)[:, tf.newaxis]
    # [B, (characters + 1)]: where each character begins, and the end of the string.
    bounds = tf.concat([offsets, sizes], axis=1)
    first = tf.gather(bounds.row_splits, rows)

    def byte_of(character: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.gather(bounds.values, first + tf.cast(character, tf.int64)), tf.int32)

    return byte_of(starts), byte_of(ends)


def nested(values: tf.Tensor, row_splits: tf.Tensor, token_splits: tf.Tensor) -> tf.RaggedTensor:
    """Groups values into words and strings, without checks, which would be much of the graph."""
    return tf.RaggedTensor.from_nested_row_splits(
        values, (row_splits, token_splits), validate=False
    )
