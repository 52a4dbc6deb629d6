"""Embeddings: word + segment + position, LayerNorm, dropout (BERT section 3, figure 2).

input_word_ids [B, T] -> table [V, E] ---+
input_type_ids [B, T] -> table [2, E] ---+--> sum -> LayerNorm -> dropout -> [B, T, E]
0 .. T-1              -> positions ------+    -> a dense layer to [B, T, D] where E is not D
"""

from typing import Any

import keras
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.network.configured import ConfiguredLayer
from bert_tf.network.dropout import Dropout
from bert_tf.network.layer_norm import layer_norm
from bert_tf.network.layout import PaddedBatch
from bert_tf.network.positions import initializer, make_positions


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbeddings(ConfiguredLayer):
    """Turns piece ids into vectors.

    Args:
      config: shape of the network; its tables are E = `table_width` wide.

    Call arguments:
      input_word_ids: int32 [B, T].
      input_type_ids: int32 [B, T].
      layout: where the pieces stand; None for the padded batch.
      dropout_seed: int32 [] in training, else None.

    Returns:
      float [B, T, E]; [U, E] with a layout that leaves padding out.
    """

    def __init__(self, config: ModelConfig | dict[str, Any], **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.layer_norm = layer_norm(self.config, self.dtype_policy)
        self.dropout = Dropout(self.config.hidden_dropout_prob, salt=0, dtype=self.dtype_policy)
        self.positions = make_positions(self.config)

    def build(self, input_shape: Any = None) -> None:
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
        self.layer_norm.build((None, None, config.table_width))

    def check_length(self, input_word_ids: Any) -> None:
        """Raises ValueError if sequences [B, T] are longer than the position table."""
        length = input_word_ids.shape[1]
        if length is not None and length > self.config.longest_row:
            raise ValueError(
                f"Sequences of {length} pieces, but the position table has "
                f"{self.config.longest_row} rows: shorten the sequences or raise "
                "max_position_embeddings."
            )

    def call(
        self,
        input_word_ids: Any,
        input_type_ids: Any,
        layout: PaddedBatch | None = None,
        dropout_seed: Any = None,
    ) -> Any:
        self.check_length(input_word_ids)
        length, places = ops.shape(input_word_ids)[1], None
        if self.config.position_offset:
            places = self._places_of_ids(input_word_ids)
        if layout is not None and (own := layout.piece_places()) is not None:
            flat = (input_word_ids, input_type_ids, places)
            input_word_ids, input_type_ids, places = (
                None if x is None else layout.unpad(ops.reshape(x, (-1,))) for x in flat
            )
            places = own if places is None else places
        embeddings = ops.take(self.word_embeddings, input_word_ids, axis=0)  # [B, T, E] or [U, E]
        types = self.config.type_vocab_size
        if types == 1:  # Of all pieces: a second text may still be marked as one.
            embeddings += self.token_type_embeddings[0]
        elif types:
            # A product with one-hot rows: the gradient is a small product too, not a scatter.
            one_hot = ops.one_hot(input_type_ids, types, dtype=self.compute_dtype)
            embeddings += ops.matmul(one_hot, self.token_type_embeddings)
        embeddings += ops.cast(self.positions.embed(places, length), embeddings.dtype)
        return self.dropout(self.layer_norm(embeddings), dropout_seed)

    def _places_of_ids(self, input_word_ids: Any) -> Any:
        """Counts what is no padding, from `position_offset`: int32 [B, T] (RoBERTa).

        By the ids, as the original: padding before a text takes no position. Padding itself is
        given the row before the first.
        """
        config = self.config
        is_piece = ops.cast(ops.not_equal(input_word_ids, config.pad_token_id), "int32")
        count = ops.cumsum(is_piece, axis=1) * is_piece
        return count + (config.position_offset - 1)
