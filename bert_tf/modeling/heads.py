"""The two pre-training heads (BERT section 3.1).

sequence_output [B, T, D] -> rows at masked_lm_positions [B*P, D]
  -> dense, activation, LayerNorm -> product with the word table + bias -> [B, P, V]
pooled_output [B, D] -> product with output_weights + bias -> [B, 2]
"""

from typing import Any

import keras
from keras import ops

from bert_tf.modeling.embeddings import initializer
from bert_tf.modeling.encoder import activation


def gather_positions(sequence: Any, positions: Any) -> Any:
    """Picks the vectors at `positions`.

    A product with one-hot rows: it costs a thousandth of the step, and its gradient is a product,
    where that of a gather is a scatter that compilers run row by row.

    Args:
      sequence: float [B, T, D].
      positions: int32 [B, P], in [0, T).

    Returns:
      float [B, P, D].
    """
    one_hot = ops.one_hot(positions, ops.shape(sequence)[1], dtype=sequence.dtype)  # [B, P, T]
    return ops.matmul(one_hot, sequence)


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMHead(keras.layers.Layer):
    """Scores every piece of the vocabulary at the masked positions; the table is the encoder's.

    Args:
      vocab_size: V.
      hidden_size: D.
      hidden_act: name of the activation.
      layer_norm_eps: epsilon of the LayerNorm.
      initializer_range: standard deviation of the initial kernel.

    Call arguments:
      inputs: float [B, T, D].
      positions: int32 [B, P].
      word_embeddings: float [V, D], the encoder's variable itself (tied weights).

    Returns:
      float32 [B, P, V], unnormalised.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        hidden_act: str,
        layer_norm_eps: float,
        initializer_range: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.hidden_act = hidden_act
        self.initializer_range = initializer_range
        self.dense = keras.layers.Dense(
            hidden_size,
            activation=activation(hidden_act),
            kernel_initializer=initializer(initializer_range),
            name="dense",
            dtype=self.dtype_policy,
        )
        self.layer_norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_eps, name="LayerNorm", dtype=self.dtype_policy
        )

    def build(self, input_shape: Any = None) -> None:
        with keras.name_scope("transform"):
            self.dense.build((None, self.hidden_size))
            self.layer_norm.build((None, self.hidden_size))
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self.vocab_size,), initializer="zeros", autocast=False
        )

    def call(self, inputs: Any, positions: Any, word_embeddings: Any) -> Any:
        rows = ops.reshape(gather_positions(inputs, positions), (-1, self.hidden_size))  # [B*P, D]
        rows = self.layer_norm(self.dense(rows))
        table = ops.cast(word_embeddings, rows.dtype)
        scores = ops.matmul(rows, ops.transpose(table))  # [B*P, V]
        scores = ops.cast(scores, "float32") + self.output_bias
        return ops.reshape(scores, (-1, positions.shape[1], self.vocab_size))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "hidden_act": self.hidden_act,
            "layer_norm_eps": self.layer_norm.epsilon,
            "initializer_range": self.initializer_range,
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class NextSentenceHead(keras.layers.Layer):
    """Scores whether the second segment follows the first (0) or is random (1).

    Args:
      hidden_size: D.
      initializer_range: standard deviation of the initial weights.

    Call arguments:
      inputs: float [B, D], the pooled output.

    Returns:
      float32 [B, 2], unnormalised.
    """

    def __init__(self, hidden_size: int, initializer_range: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.initializer_range = initializer_range

    def build(self, input_shape: Any = None) -> None:
        # [2, D], output first: the shape it has in google-research/bert's checkpoints.
        self.output_weights = self.add_weight(
            name="output_weights",
            shape=(2, self.hidden_size),
            initializer=initializer(self.initializer_range),
        )
        self.output_bias = self.add_weight(
            name="output_bias", shape=(2,), initializer="zeros", autocast=False
        )

    def call(self, inputs: Any) -> Any:
        scores = ops.matmul(inputs, ops.transpose(self.output_weights))
        return ops.cast(scores, "float32") + self.output_bias

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "hidden_size": self.hidden_size,
            "initializer_range": self.initializer_range,
        }
