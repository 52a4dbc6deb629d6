"""The second stream of attention, which predicts tokens that it does not see (XLNet).

  content stream   h of each token [B, T, D]: sees the token itself and those before it in the order
  query stream     g of each target [B, K, D]: knows the target's position, and attends to the
                   content of the tokens before it in the order, but not to the target

Both have the same weights. Queries are put at the positions of their targets in rows of T, so that
every position scheme works as it does for tokens; dense layers compute the K targets alone.

Reference: Yang et al. 2019 (XLNet), section 2.3.
"""

from collections.abc import Iterable

import tensorflow as tf
from keras import ops

from bert_tf.network.attention import AttentionPattern, Dropping, SelfAttention
from bert_tf.network.dropout import mix
from bert_tf.network.layout import PaddedBatch
from bert_tf.system.type_names import Batch, Tensor


class QueryStream:
    """The targets of a pass, vectors that attend to the tokens besides the tokens.

    Args:
      positions: int32 [B, K], the positions of the targets, each at most once; -1 for none.
      layout: the positions of the tokens in the batch; padded, without packed rows.

    Attributes:
      size: K.
      vector_positions: int32 [B, V], the position of each vector; -1 for none.
      num_vectors: V, the vectors of a row; here K.
    """

    def __init__(self, positions: Tensor, layout: PaddedBatch) -> None:
        self.positions = positions
        self.layout = layout
        self.size = ops.shape(positions)[1]
        self.vector_positions = positions
        self.num_vectors = self.size
        self.patterns: dict[bool, AttentionPattern] = {}  # By whether attention is local.

    def word_ids(self, inputs: Batch) -> Tensor:
        """Returns the id that each vector starts from, int32 [B, V]."""
        return ops.cast(inputs["query_word_ids"], "int32")

    def add_patterns(self, patterns: Iterable[AttentionPattern]) -> None:
        """Computes which keys the targets see in layers with these patterns of tokens."""
        for pattern in patterns:
            self.patterns[pattern.is_local] = pattern.of_queries()

    def attend(
        self,
        attention: SelfAttention,
        queries: Tensor,
        key: Tensor,
        value: Tensor,
        pattern: AttentionPattern,
        shared_terms: Tensor | None,
        dropout_seed: Tensor | None,
    ) -> Tensor:
        """Returns the context of the vectors, float [B*V, D].

        Args:
          queries: float [B*V, D], the vectors.
          key, value: float [B, T, N, H], of the tokens, not rotated.
          pattern, dropout_seed: those of the tokens.
          shared_terms: see `Positions.shared_terms`.
        """
        size = queries.shape[-1]
        heads = (-1, pattern.length, *key.shape[2:])
        # Other positions of the rows are zero vectors; their results are not read.
        query = ops.reshape(self.scatter(attention.query(queries)), heads)  # [B, T, N, H]
        context = self.patterns[pattern.is_local].attend(
            query,
            key,
            value,
            dropping(attention, self.dropout_seed(dropout_seed)),
            attention.score_terms(shared_terms, pattern),
        )
        return self.take(ops.reshape(context, (-1, size)))

    def predictions(self, vectors: Tensor) -> Tensor:
        """Returns the vectors that predict the targets, [B*V, D] -> [B, K, D]."""
        return ops.reshape(vectors, (-1, self.num_vectors, vectors.shape[-1]))

    def _placement(self, dtype: str) -> Tensor:
        return ops.one_hot(self.positions, self.layout.length, dtype=dtype)  # [B, K, T]

    def scatter(self, queries: Tensor) -> Tensor:
        """Puts targets at their positions, zero elsewhere: [B*K, D] -> [B*T, D]."""
        size = queries.shape[-1]
        targets = ops.reshape(queries, (-1, self.size, size))
        placement = self._placement(queries.dtype)
        rows = ops.matmul(ops.transpose(placement, (0, 2, 1)), targets)  # [B, T, D]
        return ops.reshape(rows, (-1, size))

    def take(self, rows: Tensor) -> Tensor:
        """Takes the targets out of rows, zero for a missing target: [B*T, D] -> [B*K, D]."""
        size = rows.shape[-1]
        tokens = ops.reshape(rows, (-1, self.layout.length, size))
        targets = ops.matmul(self._placement(rows.dtype), tokens)  # [B, K, D]
        return ops.reshape(targets, (-1, size))

    def dropout_seed(self, seed: Tensor | None) -> Tensor | None:
        """Returns the dropout seed of the targets, so that their masks are not those of tokens."""
        if seed is None:
            return None
        seed = tf.convert_to_tensor(seed)
        if not seed.shape.rank:
            return _other_seed(seed)
        # The numbers of rows and of vectors before these in the whole batch.
        seed, rows, _ = tf.unstack(seed)
        return tf.stack([_other_seed(seed), rows, rows * self.num_vectors])


def dropping(attention: SelfAttention, seed: Tensor | None) -> Dropping:
    """Returns the function that applies a layer's dropout of attention probabilities."""
    return lambda probs: attention.dropout(probs, seed)


def unordered_queries(positions: Tensor, length: Tensor) -> dict[str, Tensor]:
    """Returns the encoder's inputs for targets that are hidden from all tokens and each other.

    `positions` are int32 [B, P], ascending; zeros after the first of a row are no targets.
    """
    positions = ops.cast(positions, "int32")
    columns = ops.arange(ops.shape(positions)[1], dtype="int32")
    is_target = ops.logical_or(positions > 0, columns == 0)
    positions = ops.where(is_target, positions, -1)
    # The one-hot row of -1 is all zeros.
    key_ranks = ops.sum(ops.one_hot(positions, length, dtype="int32"), axis=1)  # [B, T]
    return {
        "query_positions": positions,
        "key_ranks": key_ranks,
        # Rank 0 is below 1 and 1 is not: every query sees the tokens that are no targets.
        "query_ranks": ops.ones_like(key_ranks),
    }


def _other_seed(seed: Tensor) -> Tensor:
    # `repeated_seed` adds to a seed that is mixed twice; this one is mixed three times.
    return mix(mix(mix(seed)))


def check_query_layout(layout: PaddedBatch) -> None:
    """Raises ValueError for a layout that the query stream does not have."""
    if type(layout) is not PaddedBatch:
        raise ValueError(
            "Permuted language modelling needs a padded batch; leave out pack_rows and unpad."
        )
