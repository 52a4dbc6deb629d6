"""Multi-head self-attention (Vaswani et al. 2017, section 3.2; BERT section 3).

  x [U, D] -> query, key, value [R, T, N, H], queries and keys turned if positions are rotary
  scores = query . key / sqrt(H) + bias    [R, N, T, S]
  context = dropout(softmax(scores)) . value -> [U, D]

Tokens are rows of one matrix [U, D]: every product with a kernel is then one plain matrix product,
and only attention itself needs to know where a sequence ends; see `layout.py`. With local attention
a piece sees those at most half a window away. Rows are split into chunks, and each chunk attends to
itself and its two neighbours, so the work grows with T, not its square.
"""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.network import layout as layouts
from bert_tf.network.dropout import Dropout
from bert_tf.network.layout import PaddedBatch
from bert_tf.network.positions import initializer, make_positions
from bert_tf.network.xla_region import are_parts_compiled, part

# The least pieces of a chunk: smaller products would be slower, whatever the window.
LEAST_CHUNK = 32
# The chunks of the longest row that is not cut: shorter rows are faster whole.
MOST_WHOLE = 16


class AttentionPattern:
    """Data shared by the attention of all layers in one pass: which pieces see which, and
    distances.

    Args:
      layout: where the pieces stand.
      config: shape of the network.
      is_local: whether only pieces in the window are seen.
    """

    cut_in_chunks = True  # LiteRT has no tensors of so many axes: false there.

    def __init__(self, layout: PaddedBatch, config: ModelConfig, is_local: bool) -> None:
        self.layout, self.length = layout, layout.length
        self.positions, self.is_local = make_positions(config, is_local), is_local
        self.places = layout.row_places()
        self.reach = config.local_attention // 2 if is_local else 0
        self.chunk = max(self.reach, LEAST_CHUNK)
        # Whether rows are cut; None: their length is known only when it runs.
        self.is_cut: bool | None = False
        if is_local and self.cut_in_chunks:
            is_known = isinstance(self.length, int)
            self.is_cut = self.length > MOST_WHOLE * self.chunk if is_known else None
        # One for all layers, unless each finds out in its own turn.
        self._bias = None
        if self.is_cut is not None:
            self._bias = self._bias_of_chunks() if self.is_cut else self.whole_bias()

    def whole_bias(self) -> Any:
        """Returns what is added to the scores of all pieces: float32 [R, 1 or N, 1 or T, T]."""
        bias, there = self.layout.attention_bias(), ops.arange(self.length, dtype="int32")
        if self.is_local or self.positions.sees_distance:
            distances = ops.abs(ops.expand_dims(there, 1) - ops.expand_dims(there, 0))  # [T, T]
            if self.is_local:
                is_far = ops.cast(distances > self.reach, "float32")
                bias = ops.maximum(bias + is_far * layouts.PADDING_BIAS, layouts.PADDING_BIAS)
            bias += self.positions.bias(distances)
        return bias

    def _bias_of_chunks(self) -> Any:
        """Returns float32 [R, K, 1 or N, C, 3*C], of K chunks of C pieces."""
        here, there = ops.arange(self.chunk), ops.arange(-self.chunk, 2 * self.chunk)
        distances = ops.abs(here[:, None] - there[None])  # [C, 3*C]
        texts = self._in_chunks(self.layout.texts()[..., None] + 1)  # [R, K, C, 1]; 0: no text
        seen = with_neighbours(texts)[..., 0]  # [R, K, 3*C]
        is_hidden = ops.logical_or(
            ops.logical_or(ops.not_equal(texts, seen[:, :, None]), ops.equal(texts, 0)),
            distances > self.reach,
        )
        bias = ops.cast(is_hidden, "float32")[:, :, None] * layouts.PADDING_BIAS
        return bias + self.positions.bias(distances)

    def _in_chunks(self, rows: Any) -> Any:
        """Cuts rows, filled up with 0: [R, T, ...] -> [R, K, C, ...]."""
        missing = -self.length % self.chunk
        rest = rows.shape[2:]
        filled = tf.pad(rows, [[0, 0], [0, missing], *[[0, 0]] * len(rest)])
        return ops.reshape(filled, (-1, (self.length + missing) // self.chunk, self.chunk, *rest))

    def attend(self, query: Any, key: Any, value: Any, dropout: Any) -> Any:
        """Attends from every piece to those that it sees: float [R, T, N, H]."""
        query, key = self.positions.rotate(query, key, self.places)

        def whole() -> Any:
            bias = self.whole_bias() if self._bias is None else self._bias
            return dot_product_attention(query, key, value, bias, dropout)

        def in_chunks() -> Any:
            return self._attend_in_chunks(query, key, value, dropout)

        if self.is_cut is None:
            return tf.cond(self.length > MOST_WHOLE * self.chunk, in_chunks, whole)
        return in_chunks() if self.is_cut else whole()

    def _attend_in_chunks(self, query: Any, key: Any, value: Any, dropout: Any) -> Any:
        bias = self._bias_of_chunks() if self._bias is None else self._bias
        query, key, value = (self._in_chunks(x) for x in (query, key, value))
        key, value = with_neighbours(key), with_neighbours(value)  # [R, K, 3*C, N, H]
        scores = ops.einsum("RKTNH,RKSNH->RKNTS", query * query.shape[-1] ** -0.5, key)
        probs = dropout(softmax(scores, bias))
        context = ops.einsum("RKNTS,RKSNH->RKTNH", probs, value)
        shape = ops.shape(context)
        return ops.reshape(context, (shape[0], -1, *shape[3:]))[:, : self.length]


def with_neighbours(chunks: Any) -> Any:
    """Puts each of K chunks between its neighbours or zeros: [R, K, C, ...] -> [R, K, 3*C, ...]."""
    none = ops.zeros_like(chunks[:, :1])
    filled = ops.concatenate([none, chunks, none], axis=1)
    return ops.concatenate([filled[:, :-2], chunks, filled[:, 2:]], axis=2)


def softmax(scores: Any, bias: Any) -> Any:
    """Returns the probabilities of scores + bias, in float32, as the type of the scores."""
    if not are_parts_compiled():
        return _probabilities(scores, bias)

    @tf.custom_gradient
    def probabilities(scores: tf.Tensor) -> Any:
        probs = _probabilities(scores, bias)
        return probs, lambda upstream: _slope_of_scores(probs, upstream)

    return probabilities(scores)


@part
def _probabilities(scores: Any, bias: Any) -> Any:
    return ops.cast(ops.softmax(ops.cast(scores, "float32") + bias), scores.dtype)


@part
def _slope_of_scores(probs: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    wide, slope = tf.cast(probs, tf.float32), tf.cast(upstream, tf.float32)
    slope = (slope - tf.reduce_sum(slope * wide, -1, keepdims=True)) * wide
    return tf.cast(slope, probs.dtype)


def dot_product_attention(query: Any, key: Any, value: Any, bias: Any, dropout: Any = None) -> Any:
    """Attends from every position to every position; softmax in float32.

    Args:
      query: float [B, T, N, H].
      key: float [B, S, N, H].
      value: float [B, S, N, H].
      bias: float [B, 1 or N, 1 or T, S], added to the scores.
      dropout: function applied to the probabilities [B, N, T, S], or None.

    Returns:
      float [B, T, N, H].
    """
    scale = query.shape[-1] ** -0.5
    scores = ops.einsum("BTNH,BSNH->BNTS", query * scale, key)
    probs = softmax(scores, ops.cast(bias, "float32"))
    if dropout is not None:
        probs = dropout(probs)
    return ops.einsum("BNTS,BSNH->BTNH", probs, value)


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(keras.layers.Layer):
    """Projects tokens to query, key and value and attends; the output projection is not here.

    Args:
      num_heads: N, divides the width.
      dropout_rate: dropout of the attention probabilities.
      salt: number of that dropout.
      initializer_range: standard deviation of the initial kernels.
      use_bias: whether the projections have biases.

    Call arguments:
      inputs: float [U, D].
      sight: who sees whom; see `AttentionPattern`.
      dropout_seed: int32 [] or [3] in training, see `dropout.dropout`, else None.

    Returns:
      float [U, D].
    """

    def __init__(
        self,
        num_heads: int,
        dropout_rate: float,
        salt: int,
        initializer_range: float,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads, self.use_bias = num_heads, use_bias
        self.initializer_range = initializer_range
        self.dropout = Dropout(dropout_rate, salt, of_rows=True, dtype=self.dtype_policy)
        self.joined: tuple[Any, ...] = ()

    def build(self, input_shape: Any) -> None:
        size = input_shape[-1]

        def projection(name: str) -> keras.layers.Dense:
            layer = keras.layers.Dense(
                size,
                use_bias=self.use_bias,
                kernel_initializer=initializer(self.initializer_range),
                name=name,
                dtype=self.dtype_policy,
            )
            layer.build(input_shape)
            return layer

        self.query, self.key, self.value = map(projection, ("query", "key", "value"))

    def join(self) -> None:
        """Permanently joins the three projections for inference; training then has no effect."""
        self.joined = tuple(map(tf.Variable, self._join()))

    def _join(self) -> tuple[Any, ...]:
        """Returns the projections' kernels and biases side by side: [D, 3*D] and [3*D]."""
        layers = (self.query, self.key, self.value)
        kernel = ops.concatenate([layer.kernel for layer in layers], axis=1)
        if not self.use_bias:
            return (kernel,)
        return kernel, ops.concatenate([layer.bias for layer in layers])

    def call(self, inputs: Any, sight: AttentionPattern, dropout_seed: Any = None) -> Any:
        size = inputs.shape[-1]
        # One product of three times the width is faster, on CPU by 3 to 6 % of the step; three
        # variables, because that is what every checkpoint has.
        kernel, *biases = self.joined or self._join()
        projected = sum(biases, ops.matmul(inputs, kernel))
        projected = sight.layout.to_rows(projected)
        heads = (-1, sight.length, self.num_heads, size // self.num_heads)
        query, key, value = (
            ops.reshape(part, heads) for part in ops.split(projected, 3, axis=-1)
        )  # [R, T, N, H]
        context = sight.attend(query, key, value, lambda probs: self.dropout(probs, dropout_seed))
        return sight.layout.from_rows(ops.reshape(context, (-1, size)))

    def probabilities(self, inputs: Any, sight: AttentionPattern) -> Any:
        """Returns how much each head attends to each position, without dropout.

        Args:
          inputs: float [B, T, D].
          sight: of a layout with padding.

        Returns:
          float32 [B, N, T, T]; the last axis sums to 1.
        """
        head_size = inputs.shape[-1] // self.num_heads
        heads = (-1, sight.length, self.num_heads, head_size)
        query = ops.reshape(self.query(inputs), heads)  # [B, T, N, H]
        key = ops.reshape(self.key(inputs), heads)
        query, key = sight.positions.rotate(query, key, sight.places)
        scores = ops.einsum("BTNH,BSNH->BNTS", query, key) * head_size**-0.5
        return ops.softmax(ops.cast(scores, "float32") + sight.whole_bias())
