"""Embeddings: word + position + segment, LayerNorm, dropout (BERT section 3, figure 2).

input_word_ids [B, T] -> table [V, D] ---+
0 .. T-1              -> table [512, D] -+--> sum -> LayerNorm -> dropout -> [B, T, D]
input_type_ids [B, T] -> table [2, D] ---+
"""

from typing import Any

import keras
from keras import ops

from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.layer_norm import LayerNorm


def initializer(initializer_range: float) -> keras.initializers.Initializer:
    """Makes the initialiser of every kernel and table: a normal cut off at two deviations.

    A new object per variable: a Keras initialiser gives the same numbers each time it is used.
    """
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbeddings(keras.layers.Layer):
    """Turns piece ids into vectors.

    Args:
      vocab_size: V, rows of the word table.
      hidden_size: D.
      max_position_embeddings: longest sequence.
      type_vocab_size: number of segments.
      dropout_rate: dropout of the result.
      layer_norm_eps: epsilon of the LayerNorm.
      initializer_range: standard deviation of the initial tables.

    Call arguments:
      input_word_ids: int32 [B, T]; [U] without padding; [R*T] in packed rows.
      input_type_ids: of the same shape.
      dropout_seed: int32 [] in training, else None.
      positions: int32 [U] or [R*T], needed with such ids: the rows of the position table.

    Returns:
      float [B, T, D], [U, D] or [R*T, D].
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        max_position_embeddings: int,
        type_vocab_size: int,
        dropout_rate: float,
        layer_norm_eps: float,
        initializer_range: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.initializer_range = initializer_range
        self.layer_norm = LayerNorm(
            epsilon=layer_norm_eps, name="LayerNorm", dtype=self.dtype_policy
        )
        self.dropout = Dropout(dropout_rate, salt=0, dtype=self.dtype_policy)

    def build(self, input_shape: Any = None) -> None:
        def table(name: str, rows: int) -> keras.Variable:
            return self.add_weight(
                name=name,
                shape=(rows, self.hidden_size),
                initializer=initializer(self.initializer_range),
            )

        self.word_embeddings = table("word_embeddings", self.vocab_size)
        self.token_type_embeddings = table("token_type_embeddings", self.type_vocab_size)
        self.position_embeddings = table("position_embeddings", self.max_position_embeddings)
        self.layer_norm.build((None, None, self.hidden_size))

    def check_length(self, input_word_ids: Any) -> None:
        """Raises ValueError if sequences [B, T] are longer than the position table."""
        length = input_word_ids.shape[1]
        if length is not None and length > self.max_position_embeddings:
            raise ValueError(
                f"Sequences of {length} pieces, but the position table has "
                f"{self.max_position_embeddings} rows: shorten the sequences or raise "
                "max_position_embeddings."
            )

    def call(
        self,
        input_word_ids: Any,
        input_type_ids: Any,
        dropout_seed: Any = None,
        positions: Any = None,
    ) -> Any:
        # A product with one-hot rows: the gradient is a small product too, not a scatter.
        types = ops.one_hot(input_type_ids, self.type_vocab_size, dtype=self.compute_dtype)
        embeddings = ops.take(self.word_embeddings, input_word_ids, axis=0)  # [B, T, D]
        embeddings += ops.matmul(types, self.token_type_embeddings)
        if positions is None:
            self.check_length(input_word_ids)
            length = ops.shape(input_word_ids)[1]
            embeddings += ops.convert_to_tensor(self.position_embeddings)[None, :length]
        else:
            embeddings += ops.take(self.position_embeddings, positions, axis=0)
        return self.dropout(self.layer_norm(embeddings), dropout_seed)
