"""The heads (BERT sections 3.1 and 4).

MLM:     sequence_output [B, T, D] -> rows at masked_lm_positions [B*P, D]
           -> dense, activation, LayerNorm (XLNet has none)
           -> product with the word table + bias -> [B, P, V]
classes: pooled_output [B, D] or sequence_output [B, T, D]
           -> product with output_weights + bias -> [B, C] or [B, T, C]
"""

from typing import Unpack

import keras
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.network.activations import activation
from bert_tf.network.configured import ConfiguredLayer
from bert_tf.network.layer_norm import layer_norm
from bert_tf.network.positions import dense_layer, initializer
from bert_tf.system.type_names import Fields, LayerOptions, Shape, Tensor


def gather_positions(sequence: Tensor, positions: Tensor) -> Tensor:
    """Picks the vectors of `sequence` float [B, T, D] at positions int32 [B, P]: float [B, P, D].

    It multiplies with one-hot rows, which costs a thousandth of the step. The gradient is then a
    product; that of a gather would be a scatter, which compilers run row by row.
    """
    one_hot = ops.one_hot(positions, ops.shape(sequence)[1], dtype=sequence.dtype)  # [B, P, T]
    return ops.matmul(one_hot, sequence)


@keras.saving.register_keras_serializable(package="bert_tf")
class HeadTransform(ConfiguredLayer):
    """The dense layer, activation and LayerNorm before a head's output layer.

    Args:
      units: E, width of the result.

    Call arguments:
      inputs: float [..., D].

    Returns:
      float [..., E].
    """

    def __init__(
        self, config: ModelConfig | Fields, units: int, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(config, **kwargs)
        self.units = units
        self.dense = dense_layer(
            self,
            units,
            self.config.initializer_range,
            activation=activation(self.config.transform_act),
            use_bias=self.config.has_bias("head"),
        )
        self.layer_norm = layer_norm(self.config, self.dtype_policy)

    def build(self, input_shape: Shape | None = None) -> None:
        self.dense.build((None, self.config.hidden_size))
        self.layer_norm.build((None, self.units))

    def call(self, inputs: Tensor) -> Tensor:
        return self.layer_norm(self.dense(inputs))

    def get_config(self) -> Fields:
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMHead(ConfiguredLayer):
    """Scores the vocabulary for each token to predict, with the encoder's word table as weights.

    Call arguments:
      inputs: float [B, P, D], the vectors of the tokens to predict.
      word_embeddings: float [V, E], the encoder's variable itself (tied weights).

    Returns:
      float32 [B, P, V], unnormalised.
    """

    def __init__(self, config: ModelConfig | Fields, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(config, **kwargs)
        self.transform = None
        if self.config.masked_lm_transform:
            self.transform = HeadTransform(
                self.config, self.config.table_width, name="transform", dtype=self.dtype_policy
            )
        self.output_bias = None

    def build(self, input_shape: Shape | None = None) -> None:
        if self.transform is not None:
            self.transform.build()
        if self.config.has_bias("output"):
            shape = (self.config.vocab_size,)
            self.output_bias = self.add_weight(
                name="output_bias", shape=shape, initializer="zeros", autocast=False
            )

    def transformed(self, rows: Tensor) -> Tensor:
        """Returns the vectors to compare with the word table: float [..., D] -> [..., E]."""
        return rows if self.transform is None else self.transform(rows)

    def call(self, inputs: Tensor, word_embeddings: Tensor) -> Tensor:
        config = self.config
        scores = self.score(ops.reshape(inputs, (-1, config.hidden_size)), word_embeddings)
        return ops.reshape(scores, (-1, ops.shape(inputs)[1], config.vocab_size))

    def score(self, rows: Tensor, word_embeddings: Tensor) -> Tensor:
        """Returns the scores of the vocabulary, float32 [M, V], for rows float [M, D]."""
        rows = self.transformed(rows)  # [M, E]
        # The head gets the float32 variable itself, which autocast has not cast.
        table = ops.cast(word_embeddings, rows.dtype)
        scores = ops.cast(ops.matmul(rows, ops.transpose(table)), "float32")  # [M, V]
        if self.output_bias is not None:
            scores = scores + ops.cast(self.output_bias, "float32")
        return scores


@keras.saving.register_keras_serializable(package="bert_tf")
class DiscriminatorHead(ConfiguredLayer):
    """Scores whether each token was replaced (ELECTRA).

    Call arguments:
      inputs: float [B, T, D].

    Returns:
      float32 [B, T], unnormalised.
    """

    def __init__(self, config: ModelConfig | Fields, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(config, **kwargs)
        deviation = self.config.initializer_range
        act = activation(self.config.hidden_act)
        self.dense = dense_layer(self, self.config.hidden_size, deviation, activation=act)
        self.dense_1 = dense_layer(self, 1, deviation, "dense_1")

    def build(self, input_shape: Shape | None = None) -> None:
        for layer in (self.dense, self.dense_1):
            layer.build((None, self.config.hidden_size))

    def call(self, inputs: Tensor) -> Tensor:
        # [B, T, 1] -> [B, T]
        return ops.cast(self.dense_1(self.dense(inputs)), "float32")[..., 0]


@keras.saving.register_keras_serializable(package="bert_tf")
class LabelHead(keras.layers.Layer):
    """Scores classes of a text or of each position, or positions as start and end of a span.

    With two classes on the pooled output it is the NSP head: 0, the second segment follows the
    first; 1, it is random.

    Args:
      num_labels: C.
      hidden_size: D.
      initializer_range: standard deviation of the initial weights.

    Call arguments:
      inputs: float [B, D] or [B, T, D].

    Returns:
      float32 [B, C] or [B, T, C], unnormalised.
    """

    def __init__(
        self,
        num_labels: int,
        hidden_size: int,
        initializer_range: float,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_labels = num_labels
        self.hidden_size = hidden_size
        self.initializer_range = initializer_range

    def build(self, input_shape: Shape | None = None) -> None:
        # [C, D], as in the checkpoints of google-research/bert.
        self.output_weights = self.add_weight(
            name="output_weights",
            shape=(self.num_labels, self.hidden_size),
            initializer=initializer(self.initializer_range),
        )
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self.num_labels,), initializer="zeros", autocast=False
        )

    def call(self, inputs: Tensor) -> Tensor:
        scores = ops.matmul(inputs, ops.transpose(self.output_weights))
        # The bias is added in float32: a loss needs the exact differences of logits.
        return ops.cast(scores, "float32") + ops.cast(self.output_bias, "float32")


def label_head(model: keras.Model, num_labels: int, name: str) -> LabelHead:
    """Makes and builds a model's head of `num_labels` classes."""
    config = model.config
    head = LabelHead(
        num_labels,
        config.classifier_width if name == "classifier" else config.hidden_size,
        config.initializer_range,
        name=name,
        dtype=model.dtype_policy,
    )
    head.build()
    return head
