"""Embeddings: word + segment + position, LayerNorm, dropout (BERT section 3, figure 2).

input_word_ids [B, T] -> table [V, E] ---+
input_type_ids [B, T] -> table [2, E] ---+--> sum -> LayerNorm -> dropout -> [B, T, E]
0 .. T-1              -> positions ------+    -> a dense layer to [B, T, D] where E is not D
"""

from typing import Unpack

import keras
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.network.configured import ConfiguredLayer
from bert_tf.network.dropout import Dropout
from bert_tf.network.layer_norm import layer_norm
from bert_tf.network.layout import PaddedBatch
from bert_tf.network.position_schemes import make_positions
from bert_tf.network.positions import initializer
from bert_tf.system.type_names import Fields, LayerOptions, Shape, Tensor


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbeddings(ConfiguredLayer):
    """Maps token ids to vectors.

    Args:
      config: shape of the network; its tables are E = `table_width` wide.

    Call arguments:
      input_word_ids: int32 [B, T].
      input_type_ids: int32 [B, T].
      layout: the positions of the tokens in the batch; None for the padded batch.
      dropout_seed: int32 [] in training, else None.
      position_ids: int32 [B, T], rows of the position table; None for those of the text's tokens.
      query_vector: float [1, 1, E], instead of the rows of the word table; None for these rows.

    Returns:
      float [B, T, E]; [U, E] with a layout that leaves padding out.
    """

    def __init__(self, config: ModelConfig | Fields, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(config, **kwargs)
        self.layer_norm = None
        if self.config.embedding_norm:
            self.layer_norm = layer_norm(self.config, self.dtype_policy)
        self.dropout = Dropout(self.config.hidden_dropout_prob, salt=0, dtype=self.dtype_policy)
        self.positions = make_positions(self.config)

    def build(self, input_shape: Shape | None = None) -> None:
        config = self.config

        def table(name: str, rows: int) -> keras.Variable:
            return self.add_weight(
                name=name,
                shape=(rows, config.table_width),
                initializer=initializer(config.initializer_range),
            )

        self.word_embeddings = table("word_embeddings", config.vocab_size)
        if config.type_vocab_size:
            self.token_type_embeddings = table("token_type_embeddings", config.type_vocab_size)
        self.positions.build(self)
        if self.layer_norm is not None:
            self.layer_norm.build((None, None, config.table_width))

    def check_length(self, input_word_ids: Tensor) -> None:
        """Raises ValueError if sequences [B, T] are longer than the position table."""
        length = input_word_ids.shape[1]
        if length is not None and length > self.config.longest_row:
            raise ValueError(
                f"Sequences of {length} tokens, but the position table has "
                f"{self.config.longest_row} rows: shorten the sequences or raise "
                "max_position_embeddings."
            )

    def call(
        self,
        input_word_ids: Tensor,
        input_type_ids: Tensor,
        layout: PaddedBatch | None = None,
        dropout_seed: Tensor | None = None,
        position_ids: Tensor | None = None,
        query_vector: Tensor | None = None,
    ) -> Tensor:
        embeddings = self.sum_tables(
            input_word_ids, input_type_ids, layout, position_ids, query_vector
        )
        if self.layer_norm is not None:
            embeddings = self.layer_norm(embeddings)
        return self.dropout(embeddings, dropout_seed)

    def sum_tables(
        self,
        input_word_ids: Tensor,
        input_type_ids: Tensor,
        layout: PaddedBatch | None = None,
        position_ids: Tensor | None = None,
        query_vector: Tensor | None = None,
    ) -> Tensor:
        """Returns the sum of the embeddings before LayerNorm; the arguments are those of `call`."""
        if position_ids is None:
            self.check_length(input_word_ids)
        length = ops.shape(input_word_ids)[1]
        # RoBERTa's positions follow from the ids, which have to be those of the padded batch.
        if position_ids is None and self.config.position_offset:
            position_ids = self.position_ids_of(input_word_ids)
        if layout is not None and (token_positions := layout.token_positions()) is not None:
            # Padding is left out before the tables are read, not after.
            input_word_ids = layout.unpad(ops.reshape(input_word_ids, (-1,)))  # [U]
            if input_type_ids is not None:
                input_type_ids = layout.unpad(ops.reshape(input_type_ids, (-1,)))
            if position_ids is None:
                position_ids = token_positions
            else:
                position_ids = layout.unpad(ops.reshape(position_ids, (-1,)))
        embeddings = ops.take(self.word_embeddings, input_word_ids, axis=0)  # [B, T, E] or [U, E]
        if query_vector is not None:
            # All queries start from the same vector, whatever the ids are.
            embeddings = ops.zeros_like(embeddings) + ops.cast(query_vector, embeddings.dtype)
        types = self.config.type_vocab_size
        if types == 1:
            # Added to all tokens: the ids of a second text may still be 1.
            embeddings += self.token_type_embeddings[0]
        elif types:
            # With one-hot rows the gradient is a small matrix product instead of a scatter.
            one_hot = ops.one_hot(input_type_ids, types, dtype=self.compute_dtype)  # [..., types]
            embeddings += ops.matmul(one_hot, self.token_type_embeddings)
        return embeddings + ops.cast(self.positions.embed(position_ids, length), embeddings.dtype)

    def position_ids_of(self, input_word_ids: Tensor) -> Tensor:
        """Returns RoBERTa's position ids, int32 [B, T]: the tokens counted from `position_offset`.

        As in the original, padding is determined by the ids. Padding before a text is not counted;
        padding itself gets the row before the first position.
        """
        config = self.config
        is_token = ops.cast(ops.not_equal(input_word_ids, config.pad_token_id), "int32")
        count = ops.cumsum(is_token, axis=1) * is_token  # 1, 2, 3 .. at tokens, 0 at padding
        return count + (config.position_offset - 1)
