"""Packed rows: the layers work on R rows of several texts each, instead of B rows of one text each.

    [B * T, ...] -- unpad --> [R * T, ...]   embeddings and layers; a text sees itself alone
    [R * T, ...] --- pad ---> [B * T, ...]   heads, which have a row for each text

Positions count from 0 in each text, and the bias of attention hides all other texts: the numbers
are those of the batch as it came, up to rounding. R is fixed within a batch, so XLA compiles it.
Where the texts stand is planned with the batch; see `bert_tf/data/packed_rows.py`.
"""

from typing import Any, NamedTuple

from keras import ops

from bert_tf.modeling.attention import PADDING_BIAS


class PackedRows(NamedTuple):
    """Where the pieces of a batch stand in packed rows."""

    places: Any  # int32 [R * T], in the flat batch; 0 where a packed row is empty
    packed: Any  # int32 [B * T], in the flat packed rows; 0 where the batch has padding
    is_real: Any  # bool [B * T], no padding
    texts: Any  # int32 [R, T], the row of the batch that a piece is of; -1: empty
    starts: Any  # int32 [B], the first piece of each text in the flat packed rows

    def unpad(self, padded: Any) -> Any:
        """Takes the pieces out of a flat batch: [B * T, ...] -> [R * T, ...]."""
        return ops.take(padded, self.places, axis=0)

    def pad(self, pieces: Any) -> Any:
        """Puts pieces where they stand in the batch: [R * T, D] -> [B * T, D], zero elsewhere."""
        is_real = self.is_real[:, None]
        is_full = ops.reshape(self.texts >= 0, (-1, 1))

        @ops.custom_gradient
        def put_back(pieces: Any) -> Any:
            # Each piece stands in one place, so the gradient is the way back: no sum over places,
            # which compilers run row by row.
            def gradient(upstream: Any) -> Any:
                return ops.where(is_full, ops.take(upstream, self.places, axis=0), 0)

            return ops.where(is_real, ops.take(pieces, self.packed, axis=0), 0), gradient

        return put_back(pieces)

    def first_pieces(self, pieces: Any) -> Any:
        """Returns the first piece of each text, [B, D]."""
        return ops.take(pieces, self.starts, axis=0)

    def attention_bias(self) -> Any:
        """Returns what hides other texts: float32 [R, 1, T, T], 0 or -10000."""
        is_other = ops.not_equal(self.texts[:, None, :, None], self.texts[:, None, None, :])
        return ops.cast(is_other, "float32") * PADDING_BIAS


def find_packed_rows(inputs: dict[str, Any]) -> PackedRows | None:
    """Returns where the texts of a batch stand; None if they are not packed.

    Args:
      inputs: dict with `input_mask` int32 [B, T] and, if packed, `packed_places` int32 [R, T] and
        `packed_starts` int32 [B].
    """
    if "packed_places" not in inputs:
        return None
    names = ("input_mask", "packed_places", "packed_starts")
    mask, places, starts = (ops.cast(inputs[name], "int32") for name in names)
    length = ops.shape(mask)[1]
    packed = (starts[:, None] + ops.arange(length, dtype="int32")) * mask  # [B, T]
    return PackedRows(
        places=ops.reshape(ops.maximum(places, 0), (-1,)),
        packed=ops.reshape(packed, (-1,)),
        is_real=ops.reshape(ops.cast(mask, "bool"), (-1,)),
        texts=ops.where(places >= 0, places // length, -1),
        starts=starts,
    )
