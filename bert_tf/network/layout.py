"""The layout of the pieces of a batch: the only module that knows about padding.

    input_mask [B, T] -> flat batch [B*T, ...] -- unpad --> pieces [U, ...]  dense layers, LayerNorm
                         rows [R, T, ...] <-- to_rows, from_rows --> pieces  attention
                         flat batch [B*T, ...] <-- pad -- pieces             heads

  PaddedBatch    the tokens are the flat batch, padding and all: U = B*T, R = B
  UnpaddedBatch  the tokens alone; attention, which needs rows of one length, gets the padding
                 back. U changes from batch to batch, so XLA would compile each batch again
  PackedBatch    R rows with several texts each, instead of B with one; R is fixed within a batch,
                 so XLA compiles it. Planned with the batch; see `bert_tf/examples/packed_rows.py`

The numbers are the same up to rounding; output at padding is 0 where it is not computed.

Reference: "unpadding" of MosaicBERT (Portes et al. 2023, section 2.1.4).
"""

from typing import Any

import tensorflow as tf
from keras import ops

# Added to the scores of padding: exp underflows to 0 in float32, and float16 still holds it.
PADDING_BIAS = -10000.0
NO_TEXT = -1


def attention_bias(input_mask: Any) -> Any:
    """Makes the term that hides padding.

    Args:
      input_mask: int32 [B, S], 1 for a real piece, 0 for padding.

    Returns:
      float32 [B, 1, 1, S], 0 or -10000. Finite, so that a row of padding alone has no NaN.
    """
    padding = (1.0 - ops.cast(input_mask, "float32")) * PADDING_BIAS
    return ops.expand_dims(ops.expand_dims(padding, 1), 1)  # LiteRT has no indexing with None.


class PaddedBatch:
    """A batch as it comes, one text a row."""

    def __init__(self, input_mask: Any) -> None:
        self.input_mask = ops.cast(input_mask, "int32")
        self.length = ops.shape(input_mask)[1]

    def unpad(self, flat: Any) -> Any:
        """Takes the pieces out of a flat batch: [B*T, ...] -> [U, ...]."""
        return flat

    def pad(self, pieces: Any) -> Any:
        """Puts pieces where they stand: [U, D] -> [B*T, D], zero elsewhere."""
        return pieces

    def to_rows(self, pieces: Any) -> Any:
        """Puts pieces in rows for attention: [U, D] -> [R*T, D]."""
        return pieces

    def from_rows(self, rows: Any) -> Any:
        """Takes the pieces out of attention's rows: [R*T, D] -> [U, D]."""
        return rows

    def piece_places(self) -> Any:
        """Returns where each piece stands in its own text, int32 [U]; None: 0 .. T-1, B times."""
        return None

    def row_places(self) -> Any:
        """Returns the same of the places in attention's rows, int32 [1 or R, T]."""
        return ops.expand_dims(ops.arange(self.length, dtype="int32"), 0)

    def texts(self) -> Any:
        """Returns which text of its row each place is of, int32 [R, T]; -1 for none."""
        return self.input_mask - 1

    def attention_bias(self) -> Any:
        """Returns what hides padding and other texts: float32 [R, 1, 1 or T, T], 0 or -10000."""
        return attention_bias(self.input_mask)

    def first_pieces(self, pieces: Any, padded: Any) -> Any:
        """Returns the first piece of each text, [B, D], of pieces [U, D] and padded [B, T, D]."""
        return padded[:, 0]


class UnpaddedBatch(PaddedBatch):
    """The pieces of a padded batch, without the padding."""

    def __init__(self, input_mask: Any) -> None:
        super().__init__(input_mask)
        flat = ops.reshape(input_mask, (-1,))
        self.places = ops.cast(ops.nonzero(flat)[0], "int32")  # [U], ascending, in the flat batch
        self.num_places = ops.size(flat)

    def unpad(self, flat: Any) -> Any:
        return tf.gather(flat, self.places)  # ops.take allows for places from the end: slower

    def pad(self, pieces: Any) -> Any:
        shape = ops.stack([self.num_places, pieces.shape[1]])
        return ops.scatter(self.places[:, None], pieces, shape)

    def to_rows(self, pieces: Any) -> Any:
        return self.pad(pieces)

    def from_rows(self, rows: Any) -> Any:
        return self.unpad(rows)

    def piece_places(self) -> Any:
        return self.places % self.length


class PackedBatch(PaddedBatch):
    """Several texts in a row, each of which sees itself alone.

    Attributes:
      places: int32 [R*T], in the flat batch; 0 where a packed row is empty.
      packed: int32 [B*T], in the flat packed rows; 0 where the batch has padding.
      starts: int32 [B], the first piece of each text in the flat packed rows.
    """

    def __init__(self, input_mask: Any, packed_places: Any, packed_starts: Any) -> None:
        super().__init__(input_mask)
        places, self.starts = (ops.cast(x, "int32") for x in (packed_places, packed_starts))
        packed = self.starts[:, None] + ops.arange(self.length, dtype="int32")
        self.packed = ops.reshape(packed * self.input_mask, (-1,))
        self.places = ops.reshape(ops.maximum(places, 0), (-1,))
        self._is_real = ops.reshape(ops.cast(self.input_mask, "bool"), (-1, 1))  # no padding
        self._texts = ops.where(places >= 0, places // self.length, NO_TEXT)

    def unpad(self, flat: Any) -> Any:
        return ops.take(flat, self.places, axis=0)

    def pad(self, pieces: Any) -> Any:
        is_full = ops.reshape(self._texts >= 0, (-1, 1))

        @ops.custom_gradient
        def put_back(pieces: Any) -> Any:
            # Each piece stands in one place, so the gradient is the way back: no sum over places,
            # which compilers run row by row.
            def gradient(upstream: Any) -> Any:
                return ops.where(is_full, ops.take(upstream, self.places, axis=0), 0)

            return ops.where(self._is_real, ops.take(pieces, self.packed, axis=0), 0), gradient

        return put_back(pieces)

    def piece_places(self) -> Any:
        return self.places % self.length

    def row_places(self) -> Any:
        return ops.reshape(self.piece_places(), (-1, self.length))

    def texts(self) -> Any:
        return self._texts

    def attention_bias(self) -> Any:
        is_other = ops.not_equal(self._texts[:, None, :, None], self._texts[:, None, None, :])
        return ops.cast(is_other, "float32") * PADDING_BIAS

    def first_pieces(self, pieces: Any, padded: Any) -> Any:
        return ops.take(pieces, self.starts, axis=0)


def find_layout(inputs: dict[str, Any], unpad: bool) -> PaddedBatch:
    """Returns where the pieces of a batch stand.

    Args:
      inputs: dict with `input_mask` int32 [B, T] and, if packed, `packed_places` int32 [R, T] and
        `packed_starts` int32 [B].
      unpad: whether padding is left out of a batch that is not packed.
    """
    if "packed_places" in inputs:
        return PackedBatch(*(inputs[k] for k in ("input_mask", "packed_places", "packed_starts")))
    return (UnpaddedBatch if unpad else PaddedBatch)(inputs["input_mask"])
