"""Multi-head self-attention (Vaswani et al. 2017, section 3.2; BERT section 3).

  x [U, D] -> query, key, value [R, T, N, H]; rotary positions rotate queries and keys
  scores = query . key / sqrt(H) + terms of positions and types + bias    [R, N, T, S]
  context = dropout(softmax(scores)) . value -> [U, D]

Tokens are rows of one matrix [U, D]: every product with a kernel is then one plain matrix product,
and only attention itself needs to know where a sequence ends; see `layout.py`. With local attention
each token attends to tokens within half the window. Long sequences are split into blocks, and each
block attends to itself and its two neighbours, so the cost grows with T, not with its square.
"""

import functools
from collections.abc import Callable
from typing import Unpack

import keras
import tensorflow as tf
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.network import layout as layouts
from bert_tf.network.attention_form import current_form
from bert_tf.network.dropout import Dropout
from bert_tf.network.fused_attention import attend_fused, can_fuse
from bert_tf.network.layout import PaddedBatch, Ranks
from bert_tf.network.position_schemes import make_positions
from bert_tf.network.positions import Positions, dense_layer
from bert_tf.network.softmax import softmax
from bert_tf.system.type_names import LayerOptions, Shape, Tensor

# A function that applies dropout to attention probabilities.
Dropping = Callable[[Tensor], Tensor]
# A function of queries, keys and offset: see `Positions.score_terms`.
ScoreTerms = Callable[[Tensor, Tensor, Tensor], Tensor | None]
# A function of the layer, queries, keys and values: see `QueryStream.attend`.
QueryAttention = Callable[..., Tensor]
# Smaller blocks would make slower products, even if the window is smaller.
MIN_BLOCK_SIZE = 32
# Sequences of up to this many blocks are faster with full attention.
MAX_FULL_BLOCKS = 16


class AttentionPattern:
    """The mask, window and position bias of one pass, shared by the attention of many layers.

    Args:
      is_local: whether each token attends only to the window around it.
      sees_itself: see `layout.hidden_by_rank`.
      memory_length: M, the tokens of earlier segments that are keys before those of the rows.
    """

    uses_blocks = True  # Set to False for LiteRT, which has no tensors of that rank.

    def __init__(
        self,
        layout: PaddedBatch,
        config: ModelConfig,
        is_local: bool,
        sees_itself: bool = True,
        memory_length: int = 0,
    ) -> None:
        self.layout = layout
        self.config = config
        self.sees_itself = sees_itself
        self.memory_length = memory_length
        self.length = layout.length
        self.positions = make_positions(config, is_local)
        self.is_local = is_local
        self.position_ids = layout.row_positions()
        self.reach = config.local_attention // 2 if is_local else 0
        # A block is at least as wide as the reach: a token's window is then within three blocks.
        self.block_size = max(self.reach, MIN_BLOCK_SIZE)
        # None: the length is known only when the graph runs.
        self.is_blocked: bool | None = False
        if is_local and self.uses_blocks:
            is_known = isinstance(self.length, int)
            self.is_blocked = self.length > MAX_FULL_BLOCKS * self.block_size if is_known else None
        # Computed once for all layers where the length is known.
        self._bias = None
        if self.is_blocked is not None:
            self._bias = self._blocked_bias() if self.is_blocked else self.full_bias()

    @property
    def is_plain(self) -> bool:
        """Whether scores are products alone, of all tokens of a row but its padding."""
        positions = self.positions
        has_terms = positions.has_terms or positions.has_bias or positions.padding_sees_itself
        hides = self.is_local or self.memory_length or not self.sees_itself
        return type(self.layout) is PaddedBatch and not (self.layout.ranks or has_terms or hides)

    @property
    def takes_heads(self) -> bool:
        """Whether `attend` can be given the axes of the form `by_heads`."""
        return self.is_blocked is False and not self.memory_length

    def of_queries(self) -> "AttentionPattern":
        """Returns the pattern of a query stream, whose targets do not see themselves."""
        return AttentionPattern(
            self.layout,
            self.config,
            self.is_local,
            sees_itself=False,
            memory_length=self.memory_length,
        )

    def full_bias(self) -> Tensor:
        """Returns the bias of full attention, float32 [R, 1 or N, 1 or T, S], S = M + T."""
        bias = self.layout.attention_bias(self.sees_itself)  # [R, 1, 1 or T, T]
        columns = ops.arange(self.length, dtype="int32")  # [T]
        # A query that is padding also sees itself, as in XLNet.
        if self.positions.padding_sees_itself and self.sees_itself:
            is_itself = ops.equal(ops.expand_dims(columns, 1), ops.expand_dims(columns, 0))
            bias = ops.where(is_itself, 0.0, bias)
        if self.is_local or self.positions.has_bias:
            distances = ops.abs(ops.expand_dims(columns, 1) - ops.expand_dims(columns, 0))  # [T, T]
            if self.is_local:
                is_far = ops.cast(distances > self.reach, "float32")
                bias = ops.maximum(bias + is_far * layouts.PADDING_BIAS, layouts.PADDING_BIAS)
            bias += self.positions.bias(distances)
        # Memories have no padding and no order: every query sees them.
        if self.memory_length:
            bias = ops.pad(bias, [[0, 0], [0, 0], [0, 0], [self.memory_length, 0]])
        return bias

    def differing_types(self) -> Tensor:
        """Returns whether the types of queries and keys differ, bool [R, T, S]; memory has 0."""
        types = self.layout.row_types()  # [R, T]
        key_types = ops.pad(types, [[0, 0], [self.memory_length, 0]])  # [R, S]
        return ops.not_equal(ops.expand_dims(types, 2), ops.expand_dims(key_types, 1))

    def _blocked_bias(self) -> Tensor:
        """Returns the bias of K blocks of C tokens, float32 [R, K, 1 or N, C, 3*C]."""
        queries = ops.arange(self.block_size)  # [C]
        keys = ops.arange(-self.block_size, 2 * self.block_size)  # [3*C], with both neighbours
        distances = ops.abs(queries[:, None] - keys[None])  # [C, 3*C]
        texts = self._in_blocks(self.layout.texts()[..., None] + 1)  # [R, K, C, 1]; 0: no text
        # The missing neighbours of the first and last block are zeros: no text, so they are hidden.
        key_texts = with_neighbours(texts)[..., 0]  # [R, K, 3*C]
        is_hidden = ops.logical_or(
            ops.logical_or(ops.not_equal(texts, key_texts[:, :, None]), ops.equal(texts, 0)),
            distances > self.reach,
        )
        ranks = self.layout.row_ranks()
        if ranks is not None:
            is_hidden = ops.logical_or(is_hidden, self._hidden_in_blocks(ranks))
        bias = ops.cast(is_hidden, "float32")[:, :, None] * layouts.PADDING_BIAS
        return bias + self.positions.bias(distances)

    def _hidden_in_blocks(self, ranks: Ranks) -> Tensor:
        """Returns `hidden_by_rank` of K blocks and their neighbours, bool [R, K, C, 3*C]."""
        query_ranks = self._in_blocks(ranks.query[..., None])  # [R, K, C, 1]
        key_ranks = with_neighbours(self._in_blocks(ranks.key[..., None]))[..., 0]  # [R, K, 3*C]
        is_hidden = ops.expand_dims(key_ranks, 2) >= query_ranks
        queries = ops.arange(self.block_size)  # [C]
        keys = ops.arange(-self.block_size, 2 * self.block_size)  # [3*C]
        is_itself = ops.equal(queries[:, None], keys[None])
        if self.sees_itself:
            return ops.logical_and(is_hidden, ops.logical_not(is_itself))
        return ops.logical_or(is_hidden, is_itself)

    def _in_blocks(self, rows: Tensor) -> Tensor:
        """Splits rows into blocks, the last padded with 0: [R, T, ...] -> [R, K, C, ...]."""
        missing = -self.length % self.block_size
        rest = rows.shape[2:]
        paddings = [[0, 0], [0, missing]] + [[0, 0]] * len(rest)
        filled = tf.pad(rows, paddings)
        return ops.reshape(
            filled, (-1, (self.length + missing) // self.block_size, self.block_size, *rest)
        )

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout: Dropping | None,
        terms: ScoreTerms | None = None,
        by_heads: bool = False,
    ) -> Tensor:
        """Returns the context of every token, float [R, T, N, H].

        Queries, keys and values are [R, T, N, H], by heads [R, N, T, H]; see `attention_form.py`.
        """
        heads_axis = 1 if by_heads else 2
        query, key = self.positions.rotate(query, key, self.position_ids, heads_axis)
        # Scaling the queries passes over fewer numbers than scaling the scores [R, N, T, S].
        query = query * self.scale(query.shape[-1])

        is_fused = current_form() == "fused" and dropout is None
        if is_fused and self.is_plain and can_fuse(query):
            # A row that only fills up a batch has none; the softmax of no score is not a number.
            lengths = ops.maximum(ops.sum(self.layout.input_mask, axis=1), 1)
            return attend_fused(query, key, value, lengths)

        def in_full() -> Tensor:
            bias = self.full_bias() if self._bias is None else self._bias
            # The first key is the first token of the memory, M positions before the first query.
            offset = -self.memory_length
            context = attend_from_scaled(query, key, value, bias, dropout, terms, offset, by_heads)
            if self.is_local and self.layout.computes_padding:
                # Where the window holds no token there is nothing to attend to.
                sees_any = ops.max(bias, axis=-1) > layouts.PADDING_BIAS / 2  # [R, 1 or N, T]
                sees_any = ops.transpose(ops.expand_dims(sees_any, -1), (0, 2, 1, 3))
                context *= ops.cast(sees_any, context.dtype)  # [R, T, 1 or N, 1]
            return context

        def in_blocks() -> Tensor:
            return self._attend_in_blocks(query, key, value, dropout, terms)

        if self.is_blocked is None:
            # The graph contains both forms, and chooses by the length of each batch.
            return tf.cond(self.length > MAX_FULL_BLOCKS * self.block_size, in_blocks, in_full)
        return in_blocks() if self.is_blocked else in_full()

    def scale(self, head_size: int) -> float:
        """Returns the factor of the queries: 1 / sqrt(H), less for a sum of several products."""
        return (self.positions.num_summands * head_size) ** -0.5

    def _attend_in_blocks(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout: Dropping | None,
        terms: ScoreTerms | None,
    ) -> Tensor:
        bias = self._blocked_bias() if self._bias is None else self._bias
        query = self._in_blocks(query)  # [R, K, C, N, H]
        key = with_neighbours(self._in_blocks(key))  # [R, K, 3*C, N, H]
        value = with_neighbours(self._in_blocks(value))
        # Blocks do not depend on each other: to attention they are rows of a larger batch.
        context = attend_from_scaled(
            merge_leading(query),  # [R*K, C, N, H]
            merge_leading(key),
            merge_leading(value),
            merge_leading(bias),
            dropout,
            terms,
            # The keys begin with the neighbour before.
            offset=-self.block_size,
        )
        # Without the padding of the last block.
        rows = (-1, ops.shape(query)[1] * self.block_size, *query.shape[3:])
        return ops.reshape(context, rows)[:, : self.length]


def with_neighbours(blocks: Tensor) -> Tensor:
    """Puts each of K blocks between its neighbours or zeros: [R, K, C, ...] -> [R, K, 3*C, ...]."""
    zeros = ops.zeros_like(blocks[:, :1])  # [R, 1, C, ...]
    filled = ops.concatenate([zeros, blocks, zeros], axis=1)  # [R, K + 2, C, ...]
    return ops.concatenate([filled[:, :-2], blocks, filled[:, 2:]], axis=2)


def merge_leading(blocks: Tensor) -> Tensor:
    """Merges the first two axes: [R, K, ...] -> [R*K, ...]."""
    return ops.reshape(blocks, (-1, *ops.shape(blocks)[2:]))


def dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: Dropping | None = None
) -> Tensor:
    """Attends from every position to every position; softmax in float32.

    Args:
      query: float [B, T, N, H].
      key, value: float [B, S, N, H].
      bias: float [B, 1 or N, 1 or T, S], added to the scores.
      dropout: function applied to the probabilities [B, N, T, S], or None.

    Returns:
      float [B, T, N, H].
    """
    return attend_from_scaled(query * query.shape[-1] ** -0.5, key, value, bias, dropout)


def attend_from_scaled(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    dropout: Dropping | None = None,
    terms: ScoreTerms | None = None,
    offset: Tensor = 0,
    by_heads: bool = False,
) -> Tensor:
    """`dot_product_attention` of queries that the scale of the scores has multiplied.

    Args:
      query, key, value, bias, dropout: see `dot_product_attention`.
      terms: function that returns learned terms of the scores, or None.
      offset: the position of the first key minus that of the first query.
      by_heads: whether queries, keys and values are [B, N, T or S, H].
    """
    keys = "BNSH" if by_heads else "BSNH"
    queries = "BNTH" if by_heads else "BTNH"
    scores = ops.einsum(f"{queries},{keys}->BNTS", query, key)  # [B, N, T, S]
    if by_heads and terms is not None:
        # XLA takes these transpositions out again where the terms have their own.
        query = ops.transpose(query, (0, 2, 1, 3))
        key = ops.transpose(key, (0, 2, 1, 3))
    learned = None if terms is None else terms(query, key, offset)
    if learned is not None:
        scores = scores + ops.cast(learned, scores.dtype)
    probs = softmax(scores, ops.cast(bias, "float32"))
    if dropout is not None:
        probs = dropout(probs)
    return ops.einsum(f"BNTS,{keys}->BTNH", probs, value)


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(keras.layers.Layer):
    """Projects tokens to query, key and value and attends, without the output projection.

    Args:
      num_heads: N, a divisor of D.
      dropout_rate: dropout of the attention probabilities.
      salt: number of this dropout in the network, see `dropout.dropout`.
      initializer_range: standard deviation of the initial kernels.
      positions: the scheme, if it has weights or score terms of its layers.

    Call arguments:
      inputs: float [U, D].
      pattern: see `AttentionPattern`.
      shared_terms: see `Positions.shared_terms`.
      dropout_seed: int32 [] or [3] in training, see `dropout.dropout`, else None.
      queries: float [B*V, D], the vectors of a query stream; None without one.
      attend_queries: how the query stream attends, see `QueryStream.attend`.
      memory: float [B, M, D], the inputs of this layer at earlier tokens, whose keys and values
        come before those of the rows; None without memories.

    Returns:
      float [U, D]; with queries also float [B*V, D].
    """

    def __init__(
        self,
        num_heads: int,
        dropout_rate: float,
        salt: int,
        initializer_range: float,
        use_bias: bool = True,
        positions: Positions | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.use_bias = use_bias
        self.positions = positions
        self.initializer_range = initializer_range
        self.dropout = Dropout(dropout_rate, salt, of_rows=True, dtype=self.dtype_policy)
        self.fused: tuple[Tensor, ...] = ()  # Set by `fuse_qkv`.

    def build(self, input_shape: Shape) -> None:
        size = input_shape[-1]

        def projection(name: str) -> keras.layers.Dense:
            layer = dense_layer(self, size, self.initializer_range, name, use_bias=self.use_bias)
            layer.build(input_shape)
            return layer

        self.query = projection("query")
        self.key = projection("key")
        self.value = projection("value")
        if self.positions is not None:
            self.positions.build_attention(self)

    def fuse_qkv(self) -> None:
        """Permanently fuses the three projections for inference; training then has no effect."""
        # Keras does not track a tf.Variable, so checkpoints only have the three projections.
        self.fused = tuple(map(tf.Variable, self._concatenated_qkv()))

    def _concatenated_qkv(self) -> tuple[Tensor, ...]:
        """Returns the kernels [D, 3*D] and, with biases, the biases [3*D] of the projections."""
        layers = (self.query, self.key, self.value)
        kernel = ops.concatenate([layer.kernel for layer in layers], axis=1)
        if not self.use_bias:
            return (kernel,)
        return kernel, ops.concatenate([layer.bias for layer in layers])

    def call(
        self,
        inputs: Tensor,
        pattern: AttentionPattern,
        dropout_seed: Tensor | None = None,
        shared_terms: Tensor | None = None,
        queries: Tensor | None = None,
        attend_queries: QueryAttention | None = None,
        memory: Tensor | None = None,
    ) -> Tensor:
        size = inputs.shape[-1]

        def dropped(probs: Tensor) -> Tensor:
            return self.dropout(probs, dropout_seed)

        dropout = dropped if self.dropout.rate and dropout_seed is not None else None
        terms = self.score_terms(shared_terms, pattern)
        if current_form() == "by_heads" and queries is None and pattern.takes_heads:
            return self._attend_by_heads(inputs, pattern, dropout, terms)
        # One product of three times the width is faster, on CPU by 3 to 6 % of the step. The
        # variables stay apart, as in every checkpoint.
        kernel, *biases = self.fused or self._concatenated_qkv()
        projected = sum(biases, ops.matmul(inputs, kernel))  # [U, 3*D]
        # Up to here tokens are independent; attention needs rows of one length.
        projected = pattern.layout.to_rows(projected)  # [R*T, 3*D]
        heads = (-1, pattern.length, self.num_heads, size // self.num_heads)
        query, key, value = ops.split(projected, 3, axis=-1)
        query = ops.reshape(query, heads)  # [R, T, N, H]
        key = ops.reshape(key, heads)
        value = ops.reshape(value, heads)
        if memory is not None:
            # Tokens of earlier segments only give keys and values: they have no queries.
            of_memory = (-1, ops.shape(memory)[1], *heads[2:])
            earlier = ops.reshape(self.key(memory), of_memory)  # [B, M, N, H]
            key = ops.concatenate([earlier, key], axis=1)  # [B, S, N, H]
            earlier = ops.reshape(self.value(memory), of_memory)
            value = ops.concatenate([earlier, value], axis=1)
        context = pattern.attend(query, key, value, dropout=dropout, terms=terms)
        context = pattern.layout.from_rows(ops.reshape(context, (-1, size)))  # [U, D]
        if attend_queries is None or queries is None:
            return context
        return context, attend_queries(
            self,
            queries,
            key,
            value,
            pattern,
            shared_terms,
            dropout_seed,
        )

    def _attend_by_heads(
        self,
        inputs: Tensor,
        pattern: AttentionPattern,
        dropout: Dropping | None,
        terms: ScoreTerms | None,
    ) -> Tensor:
        """Returns the context of tokens [U, D], see `attention_form.py`."""
        size = inputs.shape[-1]
        heads = (self.num_heads, size // self.num_heads)
        rows = ops.reshape(pattern.layout.to_rows(inputs), (-1, pattern.length, size))
        projections = []
        for layer in (self.query, self.key, self.value):
            kernel = ops.reshape(layer.kernel, (size, *heads))
            projected = ops.einsum("RTD,DNH->RNTH", rows, kernel)
            if self.use_bias:
                projected = projected + ops.reshape(layer.bias, (heads[0], 1, heads[1]))
            projections.append(projected)
        query, key, value = projections
        context = pattern.attend(query, key, value, dropout, terms, by_heads=True)
        return pattern.layout.from_rows(ops.reshape(context, (-1, size)))

    def score_terms(
        self, shared_terms: Tensor | None, pattern: AttentionPattern
    ) -> ScoreTerms | None:
        """Returns the scheme's function of queries, keys and offset; None without a scheme."""
        positions = self.positions
        if positions is None:
            return None
        of_positions = functools.partial(positions.score_terms, self, shared_terms)
        if not positions.has_segment_terms:
            return of_positions

        def with_segments(query: Tensor, key: Tensor, offset: Tensor) -> Tensor:
            of_segments = positions.segment_terms(self, query, pattern.differing_types())
            return of_positions(query, key, offset) + of_segments

        return with_segments

    def probabilities(
        self, inputs: Tensor, pattern: AttentionPattern, shared_terms: Tensor | None = None
    ) -> Tensor:
        """Returns the attention probabilities of each head, without dropout, float32 [B, N, T, T].

        `inputs` are float [B, T, D]; the pattern is that of a `PaddedBatch`.
        """
        head_size = inputs.shape[-1] // self.num_heads
        heads = (-1, pattern.length, self.num_heads, head_size)
        query = ops.reshape(self.query(inputs), heads)  # [B, T, N, H]
        key = ops.reshape(self.key(inputs), heads)
        query, key = pattern.positions.rotate(query, key, pattern.position_ids)
        query = query * pattern.scale(head_size)
        scores = ops.einsum("BTNH,BSNH->BNTS", query, key)
        terms = self.score_terms(shared_terms, pattern)
        learned = None if terms is None else terms(query, key, 0)
        if learned is not None:
            scores = scores + learned
        # The full bias also hides tokens outside the window, so there is no need for blocks.
        return ops.softmax(ops.cast(scores, "float32") + pattern.full_bias())
