"""Rows without padding: everything but attention works on the pieces of a batch alone.

    input_mask [B, T] -> places of the U pieces in the flat batch [B * T]
    [B * T, ...] -- unpad --> [U, ...]       dense layers, LayerNorm, activation, dropout
    [U, ...]     --- pad ---> [B * T, ...]   attention, which needs rows of one length

With texts of mixed length in a batch most positions are padding: the work shrinks to the pieces,
and the numbers stay the same up to rounding. U changes from batch to batch, so this is for graphs
that are not compiled by XLA.

Reference: the idea of "unpadding" of MosaicBERT (Portes et al. 2023, section 2.1.4).
"""

from typing import Any, NamedTuple

import tensorflow as tf
from keras import ops


class Layout(NamedTuple):
    """Where the pieces of a padded batch stand."""

    places: Any  # int32 [U], ascending, in the flat batch
    num_places: Any  # int32 [], B * T

    def unpad(self, padded: Any) -> Any:
        """Takes the pieces out of a flat batch: [B * T, ...] -> [U, ...]."""
        return tf.gather(padded, self.places)  # ops.take allows for places from the end: slower

    def pad(self, pieces: Any) -> Any:
        """Puts pieces where they stand: [U, D] -> [B * T, D], zero elsewhere."""
        shape = ops.stack([self.num_places, pieces.shape[1]])
        return ops.scatter(self.places[:, None], pieces, shape)


def find_pieces(input_mask: Any) -> Layout:
    """Returns the layout of a batch.

    Args:
      input_mask: int32 [B, T], 1 for a real piece, 0 for padding.
    """
    flat = ops.reshape(input_mask, (-1,))
    return Layout(ops.cast(ops.nonzero(flat)[0], "int32"), ops.size(flat))
