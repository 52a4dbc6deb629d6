"""Multi-head self-attention (Vaswani et al. 2017, section 3.2; BERT section 3).

  x [B*T, D] -> query, key, value [B, T, N, H]
  scores = query . key / sqrt(H) + bias    [B, N, T, S]
  context = dropout(softmax(scores)) . value -> [B*T, D]

Tokens travel as rows of one matrix [B*T, D]: every product with a kernel is then one plain matrix
product, and only attention itself needs to know where a sequence ends.
"""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.embeddings import initializer
from bert_tf.modeling.unpadding import Layout

# Added to the scores of padding: exp underflows to 0 in float32, and float16 still holds it.
PADDING_BIAS = -10000.0


def attention_bias(input_mask: Any) -> Any:
    """Makes the term that hides padding.

    Args:
      input_mask: int32 [B, S], 1 for a real piece, 0 for padding.

    Returns:
      float32 [B, 1, 1, S], 0 or -10000. Finite, so that a row of padding alone has no NaN.
    """
    return (1.0 - ops.cast(input_mask, "float32")[:, None, None, :]) * PADDING_BIAS


def dot_product_attention(query: Any, key: Any, value: Any, bias: Any, dropout: Any = None) -> Any:
    """Attends from every position to every position; softmax in float32.

    Args:
      query: float [B, T, N, H].
      key: float [B, S, N, H].
      value: float [B, S, N, H].
      bias: float [B, 1, 1 or T, S], added to the scores.
      dropout: function applied to the probabilities [B, N, T, S], or None.

    Returns:
      float [B, T, N, H].
    """
    scale = query.shape[-1] ** -0.5
    scores = ops.einsum("BTNH,BSNH->BNTS", query * scale, key)
    # Keras hands the bias over in the compute dtype; back to float32.
    scores = ops.cast(scores, "float32") + ops.cast(bias, "float32")
    probs = ops.cast(ops.softmax(scores), value.dtype)
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

    Call arguments:
      inputs: float [B*T, D]; [U, D] without padding; [R*T, D] in packed rows.
      bias: float32 [B, 1, 1 or T, T], see `attention_bias`.
      dropout_seed: int32 [] in training, else None.
      layout: where the pieces stand, if there is no padding.

    Returns:
      float, of the shape of `inputs`.
    """

    def __init__(
        self,
        num_heads: int,
        dropout_rate: float,
        salt: int,
        initializer_range: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.initializer_range = initializer_range
        self.dropout = Dropout(dropout_rate, salt, dtype=self.dtype_policy)
        self.joined: tuple[Any, ...] = ()

    def build(self, input_shape: Any) -> None:
        size = input_shape[-1]

        def projection(name: str) -> keras.layers.Dense:
            layer = keras.layers.Dense(
                size,
                kernel_initializer=initializer(self.initializer_range),
                name=name,
                dtype=self.dtype_policy,
            )
            layer.build(input_shape)
            return layer

        self.query, self.key, self.value = map(projection, ("query", "key", "value"))

    def join(self) -> None:
        """Joins the three projections for good, for inference: training has no effect any more."""
        self.joined = tuple(map(tf.Variable, self._join()))

    def _join(self) -> tuple[Any, Any]:
        """Returns the projections' kernels and biases side by side: [D, 3*D] and [3*D]."""
        layers = (self.query, self.key, self.value)
        return (
            ops.concatenate([layer.kernel for layer in layers], axis=1),
            ops.concatenate([layer.bias for layer in layers]),
        )

    def call(
        self, inputs: Any, bias: Any, dropout_seed: Any = None, layout: Layout | None = None
    ) -> Any:
        size = inputs.shape[-1]
        # One product of three times the width is faster, on CPU by 3 to 6 % of the step; three
        # variables, because that is what every checkpoint has.
        kernel, joined_bias = self.joined or self._join()
        projected = ops.matmul(inputs, kernel) + joined_bias
        if layout is not None:
            projected = layout.pad(projected)
        heads = (-1, ops.shape(bias)[-1], self.num_heads, size // self.num_heads)
        query, key, value = (
            ops.reshape(part, heads) for part in ops.split(projected, 3, axis=-1)
        )  # [B, T, N, H]
        context = dot_product_attention(
            query, key, value, bias, lambda probs: self.dropout(probs, dropout_seed)
        )
        context = ops.reshape(context, (-1, size))  # [B*T, D]
        return context if layout is None else layout.unpad(context)
