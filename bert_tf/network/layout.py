"""The layout of the tokens of a batch: the only module that knows about padding.

    input_mask [B, T] -> flat batch [B*T, ...] -- unpad --> tokens [U, ...]  dense layers, LayerNorm
                         rows [R, T, ...] <-- to_rows, from_rows --> tokens  attention
                         flat batch [B*T, ...] <-- pad -- tokens             heads

  PaddedBatch    the tokens are the flat batch including its padding: U = B*T, R = B
  UnpaddedBatch  the tokens without padding; attention, which needs rows of one length, pads again.
                 U changes from batch to batch, so XLA would compile each batch again
  ComputedPadding  as PaddedBatch, for models that use the outputs at padding
  PackedBatch    R rows with several texts each, instead of B rows with one. The input pipeline
                 plans the rows, see `bert_tf/training/packed_rows.py`; XLA compiles them

All give the same numbers up to rounding. Output at padding is 0 where it is not computed.

Reference: "unpadding" of MosaicBERT (Portes et al. 2023, section 2.1.4).
"""

from typing import NamedTuple

import tensorflow as tf
from keras import ops

from bert_tf.system.type_names import Batch, Tensor

# Added to the scores of padding: exp underflows to 0 in float32, and float16 can represent it.
PADDING_BIAS = -10000.0
NO_TEXT = -1


def attention_bias(input_mask: Tensor) -> Tensor:
    """Returns the bias that hides padding, float32 [B, 1, 1, S], for a mask int32 [B, S].

    It is 0 or -10000: finite, so a row without tokens gets no NaN.
    """
    padding = (1.0 - ops.cast(input_mask, "float32")) * PADDING_BIAS
    return ops.expand_dims(ops.expand_dims(padding, 1), 1)  # LiteRT has no indexing with None.


class Ranks(NamedTuple):
    """An order of tokens: each attends to those whose key rank is below its query rank.

    Attributes:
      key, query: int32 [B, T]. For example, key ranks 0, 1, 2 .. and query ranks 1, 2, 3 .. let
        each token attend to itself and the tokens before it.
    """

    key: Tensor
    query: Tensor


def hidden_by_rank(ranks: Ranks, sees_itself: bool = True) -> Tensor:
    """Returns whether a token is hidden from another by its rank, bool [B, T, T].

    With `sees_itself` tokens attend to themselves whatever their ranks; else they never do.
    """
    is_hidden = ops.expand_dims(ranks.key, 1) >= ops.expand_dims(ranks.query, 2)  # [B, T, T]
    columns = ops.arange(ops.shape(ranks.key)[1], dtype="int32")
    is_itself = ops.equal(ops.expand_dims(columns, 1), ops.expand_dims(columns, 0))  # [T, T]
    if sees_itself:
        return ops.logical_and(is_hidden, ops.logical_not(is_itself))
    return ops.logical_or(is_hidden, is_itself)


class PaddedBatch:
    """A padded batch, with one text in each row.

    Args:
      input_mask: int32 [B, T], 1 for a real token, 0 for padding.
      ranks: an order of the tokens; None: each attends to all.
      type_ids: int32 [B, T]; None where no scheme of positions needs them.
    """

    computes_padding = False

    def __init__(
        self, input_mask: Tensor, ranks: Ranks | None = None, type_ids: Tensor | None = None
    ) -> None:
        self.input_mask = ops.cast(input_mask, "int32")
        self.length = ops.shape(input_mask)[1]
        self.ranks = ranks
        self.type_ids = type_ids

    def unpad(self, flat: Tensor) -> Tensor:
        """Takes the tokens out of a flat batch: [B*T, ...] -> [U, ...]."""
        return flat

    def pad(self, tokens: Tensor) -> Tensor:
        """Puts tokens at their positions of the flat batch, zero elsewhere: [U, D] -> [B*T, D]."""
        return tokens

    def to_rows(self, tokens: Tensor) -> Tensor:
        """Puts tokens in rows for attention: [U, D] -> [R*T, D]."""
        return tokens

    def from_rows(self, rows: Tensor) -> Tensor:
        """Takes the tokens out of attention's rows: [R*T, D] -> [U, D]."""
        return rows

    def token_positions(self) -> Tensor:
        """Returns each token's position in its text, int32 [U]; None for 0 .. T-1 in each row."""
        return None

    def row_positions(self) -> Tensor:
        """Returns the positions of the tokens in attention's rows, int32 [1 or R, T]."""
        return ops.expand_dims(ops.arange(self.length, dtype="int32"), 0)

    def texts(self) -> Tensor:
        """Returns, for each position, the index of its text, int32 [R, T]; -1 for padding."""
        return self.input_mask - 1

    def attention_bias(self, sees_itself: bool = True) -> Tensor:
        """Returns the bias that hides padding and other texts, float32 [R, 1, 1 or T, T]."""
        return self._hide_by_rank(attention_bias(self.input_mask), sees_itself)

    def _hide_by_rank(self, bias: Tensor, sees_itself: bool) -> Tensor:
        ranks = self.row_ranks()
        if ranks is None:
            return bias
        is_hidden = ops.expand_dims(hidden_by_rank(ranks, sees_itself), 1)  # [R, 1, T, T]
        return ops.where(is_hidden, PADDING_BIAS, bias)

    def row_ranks(self) -> Ranks | None:
        """Returns the ranks of the tokens in attention's rows, int32 [R, T]; None for no order."""
        return self.ranks

    def row_types(self) -> Tensor | None:
        """Returns the type ids of the tokens in attention's rows, int32 [R, T], if it has them."""
        return self.type_ids

    def first_tokens(self, tokens: Tensor, padded: Tensor) -> Tensor:
        """Returns the vector of each text's first token, [B, D].

        The same tokens are given as float [U, D] and in the padded batch, float [B, T, D].
        """
        return padded[:, 0]

    def last_tokens(self, tokens: Tensor, padded: Tensor) -> Tensor:
        """Returns the vector of each text's last token, [B, D]; see `first_tokens`."""
        columns = ops.arange(self.length, dtype="int32")
        # The mask need not be 1 from the start: padding may also come first.
        last = ops.max(self.input_mask * columns, axis=1)  # [B]
        # The gradient of a product is a product; that of a gather would be a scatter.
        one_hot = ops.one_hot(last, self.length, dtype=padded.dtype)
        return ops.matmul(ops.expand_dims(one_hot, 1), padded)[:, 0]


def gather_once(
    values: Tensor, indices: Tensor, inverse: Tensor, is_gathered: Tensor | None = None
) -> Tensor:
    """Gathers rows, each at one index that counts: float [N, D] -> [M, D].

    The gradient is the inverse gather. That of `tf.gather` would be a sum over indices, which
    compilers and kernels compute row by row, as they do scatters. `ops.take` is slower, because it
    allows negative indices.

    Args:
      values: float [N, D].
      indices: int32 [M].
      inverse: int32 [N], the index among the M of each of the N rows.
      is_gathered: bool [N, 1], whether a row is among the M; None: each is.
    """

    @ops.custom_gradient
    def gather(values: Tensor) -> Tensor:
        def gradient(upstream: Tensor) -> Tensor:
            gathered = tf.gather(upstream, inverse)
            if is_gathered is None:
                return gathered
            return ops.where(is_gathered, gathered, 0)

        return tf.gather(values, indices), gradient

    return gather(values)


class ComputedPadding(PaddedBatch):
    """A padded batch whose padding has outputs that count, though no token attends to it."""

    computes_padding = True


class UnpaddedBatch(PaddedBatch):
    """The tokens of a padded batch, without the padding.

    Args:
      training: whether gradients are computed; without, graphs have none of their own.
    """

    def __init__(
        self,
        input_mask: Tensor,
        ranks: Ranks | None = None,
        type_ids: Tensor | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(input_mask, ranks, type_ids)
        self._training = training
        is_real = ops.reshape(ops.cast(self.input_mask, "bool"), (-1,))  # [B*T]
        # A batch without tokens computes its first padding, as gathers need something.
        has_none = ops.logical_not(ops.any(is_real, keepdims=True))  # [1]
        is_computed = ops.logical_or(is_real, ops.concatenate([has_none, is_real[1:]]))
        # The indices of the tokens in the flat batch, ascending.
        self.token_indices = ops.cast(ops.nonzero(is_computed)[0], "int32")  # [U]
        # The token at each position of the flat batch; at padding an arbitrary one.
        token = ops.cumsum(ops.cast(is_computed, "int32")) - 1
        self._tokens = ops.maximum(token, 0)  # [B*T]
        self._is_real = ops.expand_dims(is_real, 1)  # [B*T, 1]

    def unpad(self, flat: Tensor) -> Tensor:
        return tf.gather(flat, self.token_indices)

    def pad(self, tokens: Tensor) -> Tensor:
        return ops.where(self._is_real, self.to_rows(tokens), 0)

    def to_rows(self, tokens: Tensor) -> Tensor:
        # Attention hides padding, so it need not be zero.
        if not self._training:
            return tf.gather(tokens, self._tokens)
        return gather_once(tokens, self._tokens, self.token_indices)

    def from_rows(self, rows: Tensor) -> Tensor:
        if not self._training:
            return self.unpad(rows)
        return gather_once(rows, self.token_indices, self._tokens, self._is_real)

    def token_positions(self) -> Tensor:
        return self.token_indices % self.length


class PackedBatch(PaddedBatch):
    """Rows of several texts; each token attends only to tokens of its text.

    Attributes:
      token_indices: int32 [R*T], indices into the flat batch; 0 where a packed row is empty.
      packed: int32 [B*T], indices into the flat packed rows; 0 where the batch has padding.
      starts: int32 [B], index of each text's first token in the flat packed rows.
    """

    def __init__(
        self,
        input_mask: Tensor,
        packed_positions: Tensor,
        packed_starts: Tensor,
        ranks: Ranks | None = None,
        type_ids: Tensor | None = None,
    ) -> None:
        super().__init__(input_mask, ranks, type_ids)
        indices = ops.cast(packed_positions, "int32")  # [R, T]
        self.starts = ops.cast(packed_starts, "int32")  # [B]
        packed = self.starts[:, None] + ops.arange(self.length, dtype="int32")  # [B, T]
        # Padding gets index 0, which is valid; `pad` then replaces it by zeros.
        self.packed = ops.reshape(packed * self.input_mask, (-1,))
        # Empty positions get index 0 as well; attention hides them, because their text is -1.
        self.token_indices = ops.reshape(ops.maximum(indices, 0), (-1,))
        self._is_real = ops.reshape(ops.cast(self.input_mask, "bool"), (-1, 1))  # [B*T, 1]
        self._texts = ops.where(indices >= 0, indices // self.length, NO_TEXT)  # [R, T]

    def unpad(self, flat: Tensor) -> Tensor:
        return ops.take(flat, self.token_indices, axis=0)

    def pad(self, tokens: Tensor) -> Tensor:
        is_full = ops.reshape(self._texts >= 0, (-1, 1))  # [R*T, 1]
        padded = gather_once(tokens, self.packed, self.token_indices, is_full)
        return ops.where(self._is_real, padded, 0)

    def token_positions(self) -> Tensor:
        # Index in the flat batch = row * T + position.
        return self.token_indices % self.length

    def row_positions(self) -> Tensor:
        return ops.reshape(self.token_positions(), (-1, self.length))

    def texts(self) -> Tensor:
        return self._texts

    def attention_bias(self, sees_itself: bool = True) -> Tensor:
        # Empty positions have the text -1, so they see only each other.
        is_other = ops.not_equal(self._texts[:, None, :, None], self._texts[:, None, None, :])
        return self._hide_by_rank(ops.cast(is_other, "float32") * PADDING_BIAS, sees_itself)

    def row_ranks(self) -> Ranks | None:
        if self.ranks is None:
            return None
        return Ranks(self._in_rows(self.ranks.key), self._in_rows(self.ranks.query))

    def row_types(self) -> Tensor | None:
        return None if self.type_ids is None else self._in_rows(self.type_ids)

    def _in_rows(self, values: Tensor) -> Tensor:
        """Puts a value of each token in the packed rows: [B, T] -> [R, T]."""
        return ops.reshape(self.unpad(ops.reshape(values, (-1,))), (-1, self.length))

    def first_tokens(self, tokens: Tensor, padded: Tensor) -> Tensor:
        return ops.take(tokens, self.starts, axis=0)

    def last_tokens(self, tokens: Tensor, padded: Tensor) -> Tensor:
        # The tokens of a text are consecutive in its packed row, without padding.
        lengths = ops.sum(self.input_mask, axis=1)  # [B]
        return ops.take(tokens, self.starts + ops.maximum(lengths - 1, 0), axis=0)


def find_layout(
    inputs: Batch, unpad: bool, has_types: bool = False, training: bool = True
) -> PaddedBatch:
    """Returns the layout of a batch.

    Args:
      inputs: dict with `input_mask` int32 [B, T]; with an order of the tokens, `key_ranks` and
        `query_ranks` int32 [B, T], see `Ranks`; `computed_mask` if padding is computed; if packed,
        `packed_positions` int32 [R, T] and `packed_starts` int32 [B].
      unpad: whether padding is left out of a batch that is not packed.
      has_types: whether the attention scores depend on `input_type_ids`.
      training: see `UnpaddedBatch`.
    """
    ranks = None
    type_ids = ops.cast(inputs["input_type_ids"], "int32") if has_types else None
    if "key_ranks" in inputs:
        ranks = Ranks(
            ops.cast(inputs["key_ranks"], "int32"),
            ops.cast(inputs["query_ranks"], "int32"),
        )
    if "packed_positions" in inputs:
        return PackedBatch(
            inputs["input_mask"],
            inputs["packed_positions"],
            inputs["packed_starts"],
            ranks,
            type_ids,
        )
    if "computed_mask" in inputs:
        return ComputedPadding(inputs["input_mask"], ranks, type_ids)
    if unpad:
        return UnpaddedBatch(inputs["input_mask"], ranks, type_ids, training)
    return PaddedBatch(inputs["input_mask"], ranks, type_ids)
