"""The layers of the encoder: attention, then the feed-forward part, in two forms.

  PostNormBlock   x = LayerNorm(x + dropout(attention(x)))            BERT, RoBERTa, DistilBERT
                  x = LayerNorm(x + dropout(W2 activation(W1 x)))
  PreNormBlock    x = x + dropout(attention(LayerNorm(x)))            ModernBERT
                  x = x + dropout(W2 activation(W1 LayerNorm(x)))

With a gate W1 is twice as wide, and the input of W2 is activation(first half) * second half (GeGLU,
Shazeer 2020).
"""

import abc
from typing import Unpack

import keras
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.network.activations import activation, inference_form
from bert_tf.network.attention import AttentionPattern, SelfAttention
from bert_tf.network.configured import ConfiguredLayer
from bert_tf.network.dropout import Dropout
from bert_tf.network.layer_norm import LayerNorm, layer_norm
from bert_tf.network.position_schemes import make_positions
from bert_tf.network.positions import dense_layer
from bert_tf.network.query_stream import QueryStream
from bert_tf.system.type_names import Fields, LayerOptions, Shape, Tensor


class Block(ConfiguredLayer):
    """Base class of both forms: makes the dense layers.

    Args:
      index: number of the unique layer, from 0; it determines the salts of the three dropouts.

    Call arguments:
      inputs: float [U, D].
      shared_terms: see `Positions.shared_terms`.
      queries: float [B*V, D], the vectors of a query stream; None without one.
      memory: float [B, M, D], the inputs of the layer at earlier tokens; None without memories.
      pattern: see `AttentionPattern`.
      dropout_seed: int32 [] in training, else None.
      stream: the query stream, see `query_stream.py`.

    Returns:
      float [U, D]; with queries also float [B*V, D].
    """

    def __init__(
        self, config: ModelConfig | Fields, index: int, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(config, **kwargs)
        self.index = index
        self.activation = activation(self.config.hidden_act)

    def build(self, input_shape: Shape) -> None:
        # The sublayers are made here and not in the constructor, because the order in which layers
        # are made determines the initial weights that a seed gives.
        config = self.config
        # Salt 0 is that of the embeddings' dropout.
        salt = 1 + 3 * self.index
        self.self_attention = SelfAttention(
            config.num_attention_heads,
            config.attention_probs_dropout_prob,
            salt,
            config.initializer_range,
            use_bias=config.has_bias("attention"),
            positions=make_positions(config),
            name="self",
            dtype=self.dtype_policy,
        )
        self.attention_output = self._dense("attention", config.hidden_size, is_last=True)
        self.attention_norm: Tensor = self._norm() if self.has_attention_norm else None
        # The gate and the values come from one product of twice the width.
        width = config.intermediate_size * (2 if config.gated_feed_forward else 1)
        self.intermediate = self._dense("feed_forward", width)
        self.output_dense = self._dense("feed_forward", config.hidden_size, is_last=True)
        self.feed_forward_norm = self._norm()
        rate = config.hidden_dropout_prob
        self.attention_dropout = Dropout(rate, salt + 1, dtype=self.dtype_policy)
        self.output_dropout = Dropout(rate, salt + 2, dtype=self.dtype_policy)
        self.build_parts(input_shape)

    @abc.abstractmethod
    def build_parts(self, input_shape: Shape) -> None:
        """Builds the sublayers under the variable names of google-research/bert."""

    @property
    def has_attention_norm(self) -> bool:
        return True

    def _norm(self) -> LayerNorm:
        return layer_norm(self.config, self.dtype_policy)

    def _dense(self, part: str, units: int, is_last: bool = False) -> keras.layers.Dense:
        """Makes a dense layer; `is_last` says that its result is added to the block's input."""
        return dense_layer(
            self, units, self._deviation(is_last), use_bias=self.config.has_bias(part)
        )

    def _deviation(self, is_last: bool) -> float:
        """Returns the standard deviation of a dense layer's initial kernel."""
        return self.config.initializer_range

    def call(
        self,
        inputs: Tensor,
        shared_terms: Tensor | None = None,
        queries: Tensor | None = None,
        memory: Tensor | None = None,
        *,
        pattern: AttentionPattern,
        dropout_seed: Tensor | None = None,
        stream: QueryStream | None = None,
    ) -> Tensor:
        if stream is None or queries is None:
            attended = self.attend(inputs, pattern, dropout_seed, shared_terms, memory)
            return self.transform(attended, dropout_seed)
        context, query_context = self.self_attention(
            self.before_attention(inputs),
            pattern=pattern,
            dropout_seed=dropout_seed,
            shared_terms=shared_terms,
            queries=self.before_attention(queries),
            attend_queries=stream.attend,
            memory=self._memory_keys(memory),
        )
        # Both streams have the same weights, but different dropout masks.
        query_seed = stream.dropout_seed(dropout_seed)
        attended = self.after_attention(inputs, context, dropout_seed)
        attended_queries = self.after_attention(queries, query_context, query_seed)
        return (
            self.transform(attended, dropout_seed),
            self.transform(attended_queries, query_seed),
        )

    def attend(
        self,
        inputs: Tensor,
        pattern: AttentionPattern,
        dropout_seed: Tensor | None,
        shared_terms: Tensor | None = None,
        memory: Tensor | None = None,
    ) -> Tensor:
        """Returns the result of the attention half, float [U, D]."""
        context = self.self_attention(
            self.before_attention(inputs),
            pattern=pattern,
            dropout_seed=dropout_seed,
            shared_terms=shared_terms,
            memory=self._memory_keys(memory),
        )
        return self.after_attention(inputs, context, dropout_seed)

    def _memory_keys(self, memory: Tensor | None) -> Tensor | None:
        """Returns the vectors that memory gives to keys and values, float [B, M, D]."""
        return None if memory is None else self.before_attention(memory)

    @abc.abstractmethod
    def before_attention(self, inputs: Tensor) -> Tensor:
        """Returns the input of attention, float [U, D]."""

    @abc.abstractmethod
    def after_attention(
        self, inputs: Tensor, context: Tensor, dropout_seed: Tensor | None
    ) -> Tensor:
        """Returns the result of the attention half, float [U, D], from the output of attention."""

    @abc.abstractmethod
    def transform(self, inputs: Tensor, dropout_seed: Tensor | None) -> Tensor:
        """Returns the result of the feed-forward half, float [U, D]."""

    def feed_forward(self, inputs: Tensor) -> Tensor:
        """Returns W2 activation(W1 x), float [U, D]."""
        inner = self.intermediate(inputs)  # [U, F]; with a gate [U, 2*F]
        if self.config.gated_feed_forward:
            inner, gate = ops.split(inner, 2, axis=-1)  # each [U, F]
            inner = self._activate(inner) * gate
        else:
            inner = self._activate(inner)
        return self.output_dense(inner)

    def _activate(self, inner: Tensor) -> Tensor:
        return inner if self.activation is None else self.activation(inner)

    def attention_probabilities(
        self, inputs: Tensor, pattern: AttentionPattern, shared_terms: Tensor | None
    ) -> Tensor:
        """Returns `SelfAttention.probabilities` of the block's input, float [B, T, D]."""
        normal = self.before_attention(inputs)
        return self.self_attention.probabilities(normal, pattern, shared_terms)

    def prepare_for_inference(self) -> None:
        """Permanently makes calls faster; training then has no effect."""
        self.self_attention.fuse_qkv()
        if self.activation is not None:
            self.activation = inference_form(self.activation)

    def get_config(self) -> Fields:
        return {**super().get_config(), "index": self.index}


@keras.saving.register_keras_serializable(package="bert_tf")
class PostNormBlock(Block):
    """LayerNorm after each half; see `Block`."""

    def build_parts(self, input_shape: Shape) -> None:
        # The scopes give the variables the names of google-research/bert, which has no scope for
        # the feed-forward half, but one each for its two dense layers.
        wide = (None, self.config.intermediate_size)
        with keras.name_scope("attention"):
            self.self_attention.build(input_shape)
            with keras.name_scope("output"):
                self.attention_output.build(input_shape)
                self.attention_norm.build(input_shape)
        with keras.name_scope("intermediate"):
            self.intermediate.build(input_shape)
        with keras.name_scope("output"):
            self.output_dense.build(wide)
            self.feed_forward_norm.build(input_shape)

    def before_attention(self, inputs: Tensor) -> Tensor:
        return inputs

    def after_attention(
        self, inputs: Tensor, context: Tensor, dropout_seed: Tensor | None
    ) -> Tensor:
        output = self.attention_output(context)
        return self.attention_norm(inputs + self.attention_dropout(output, dropout_seed))

    def transform(self, inputs: Tensor, dropout_seed: Tensor | None) -> Tensor:
        output = self.feed_forward(inputs)
        return self.feed_forward_norm(inputs + self.output_dropout(output, dropout_seed))


@keras.saving.register_keras_serializable(package="bert_tf")
class PreNormBlock(Block):
    """LayerNorm before each half; see `Block`.

    The first block has none before its attention, as the embeddings end with a LayerNorm; a block
    that is shared by several layers always has one.
    """

    @property
    def has_attention_norm(self) -> bool:
        return self.index > 0 or self.config.num_layer_groups > 0

    def _deviation(self, is_last: bool) -> float:
        # This keeps the variance of the sum over 2 L halves constant (GPT-2; ModernBERT).
        scale = (2 * self.config.num_hidden_layers) ** -0.5 if is_last else 1.0
        return self.config.initializer_range * scale

    def build_parts(self, input_shape: Shape) -> None:
        with keras.name_scope("attention"):
            if self.attention_norm:
                self.attention_norm.build(input_shape)
            self.self_attention.build(input_shape)
            with keras.name_scope("output"):
                self.attention_output.build(input_shape)
        with keras.name_scope("intermediate"):
            self.feed_forward_norm.build(input_shape)
            self.intermediate.build(input_shape)
        with keras.name_scope("output"):
            self.output_dense.build((None, self.config.intermediate_size))

    def before_attention(self, inputs: Tensor) -> Tensor:
        return self.attention_norm(inputs) if self.attention_norm else inputs

    def after_attention(
        self, inputs: Tensor, context: Tensor, dropout_seed: Tensor | None
    ) -> Tensor:
        return inputs + self.attention_dropout(self.attention_output(context), dropout_seed)

    def transform(self, inputs: Tensor, dropout_seed: Tensor | None) -> Tensor:
        output = self.feed_forward(self.feed_forward_norm(inputs))
        return inputs + self.output_dropout(output, dropout_seed)


BLOCKS: dict[str, type[Block]] = {"post_norm": PostNormBlock, "pre_norm": PreNormBlock}
