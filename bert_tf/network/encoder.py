"""The encoder: embeddings, L layers, pooler (BERT section 3; Vaswani et al. 2017).

  input ids, mask, types [B, T]
    -> BertEmbeddings [B, T, E], projected to D -> tokens [U, D]
    -> L layers, see `blocks.py`, of which groups may share a block; after the last of the pre-norm
       form a LayerNorm
    -> sequence_output [B, T, D], and tanh(W x) of the first token: pooled_output [B, D]

Layers have the names of google-research/bert's scopes and are built in the constructor, so
`variable.path` is that program's variable name, e.g. bert/encoder/layer_3/output/dense/kernel.
"""

import functools
import typing
from typing import Unpack

import keras
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.network.activations import activation
from bert_tf.network.attention import AttentionPattern
from bert_tf.network.blocks import BLOCKS, Block
from bert_tf.network.compensated_stream import find_stream
from bert_tf.network.dropout import mix, repeated_seed
from bert_tf.network.embeddings import BertEmbeddings
from bert_tf.network.layer_norm import layer_norm
from bert_tf.network.layout import PaddedBatch, find_layout
from bert_tf.network.memories import count_tokens, new_memories
from bert_tf.network.position_schemes import make_positions
from bert_tf.network.positions import dense_layer, initializer
from bert_tf.network.pretrained import FromPretrained
from bert_tf.network.query_stream import QueryStream
from bert_tf.system.type_names import (
    Batch,
    Fields,
    LayerOptions,
    ModelOptions,
    Outputs,
    Shape,
    Tensor,
)

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(keras.layers.Layer):
    """A dense layer with an activation on the first position: the token that represents the text.

    Args:
      initializer_range: standard deviation of the initial kernel.
      act: name of the activation; BERT's is tanh.

    Call arguments:
      inputs: float [B, T, D].

    Returns:
      float [B, D].
    """

    def __init__(
        self, initializer_range: float, act: str = "tanh", **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.initializer_range = initializer_range
        self.act = act

    def build(self, input_shape: Shape) -> None:
        self.dense = dense_layer(
            self, input_shape[-1], self.initializer_range, activation=activation(self.act)
        )
        self.dense.build((None, input_shape[-1]))

    def call(self, inputs: Tensor) -> Tensor:
        return self.dense(inputs[:, 0])


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoder(FromPretrained, keras.Model):
    """The encoder without heads.

    Args:
      config: shape of the network.
      use_pooler: whether there is a pooler.
      recompute: whether the backward pass recomputes each layer instead of keeping its intermediate
        values. This costs a second forward pass; dropout masks and gradients stay the same.
      unpad: whether the layers skip padding, see `layout.py`; not possible under XLA. Output at
        padding is then 0. It has no effect on packed rows.
      embeddings: the embeddings of another encoder, to share; None makes new ones.
      trains_queries: whether the vector of a query stream, if it has one (`query_vector`), is
        trained; other models do not use it.

    Call arguments:
      inputs: dict of int32 [B, T]: `input_word_ids`, `input_mask`, `input_type_ids`; other keys are
        ignored but for these, which are optional.
        `packed_positions` [R, T], `packed_starts` [B]: the layers work on packed rows, see
          `layout.py`; output at padding is then 0.
        `key_ranks`, `query_ranks` [B, T]: each token attends to those before it in an order, see
          `layout.Ranks`.
        `query_positions`, `query_word_ids` [B, K]: a second stream predicts the tokens at these
          positions, -1 for none, see `query_stream.py`; the ids are those of [MASK], which
          `query_vector` makes superfluous.
        `query_content_ids` [B, K]: the ids of the tokens at `query_positions`, where the text has
          [MASK]: they are predicted in that order, see `compensated_stream.py`.
        `computed_mask` [B, T]: outputs at padding are computed and count, which attends to tokens
          but to which no token attends; `unpad` has no effect.
        `token_factors` float [B, T]: the embedding of each token is multiplied by its factor, for
          gradients by single tokens.
      training: whether dropout is on.
      dropout_seed: int32 []; with `training` and without a seed, as in `fit`, one is drawn from the
        model's generator.
      output_attentions: whether to return the attention probabilities of all heads, which costs a
        second product of queries and keys.
      memories: the `memories` of the segment before, which the tokens also attend to; an empty list
        for the first segment. None: memories are neither read nor returned. The segments are rows
        without padding, and their types count as 0 in the next one.

    Returns:
      dict: `sequence_output` float [B, T, D], with a pooler `pooled_output` float [B, D], and
      `encoder_outputs`, a list of L + 1 float [B, T, D]: the input of the first layer, and every
      layer's output; in the pre-norm form the last is `sequence_output` before its LayerNorm. With
      `output_attentions` also `attentions`, a list of L float32 [B, N, T, T]: the attention
      probabilities without dropout; the last axis sums to 1. With `query_positions` also
      `query_output` float [B, K, D], and `query_outputs`, a list of L + 1 of them. With `memories`
      also `memories`, a list of L float [B, M, D]: the inputs of the layers at the last tokens.

    Reference: Devlin et al. 2019, section 3.
    """

    def __init__(
        self,
        config: ModelConfig,
        recompute: bool = False,
        use_pooler: bool = True,
        unpad: bool = False,
        name: str = "bert",
        embeddings: BertEmbeddings | None = None,
        trains_queries: bool = False,
        **kwargs: Unpack[ModelOptions],
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.config = config
        self.recompute = recompute
        self.use_pooler = use_pooler
        self.trains_queries = trains_queries
        self.leave_out_padding(unpad)
        self.autocast = False  # Keras would round ids that come as floats.
        if embeddings is None:
            embeddings = BertEmbeddings(config, name="embeddings", dtype=self.dtype_policy)
        self.embeddings = embeddings
        self.positions = make_positions(config)
        if config.projects_embeddings:
            self.embeddings_project = dense_layer(
                self, config.hidden_size, config.initializer_range, "embeddings_project"
            )
        for index in range(config.num_unique_layers):
            make = BLOCKS[config.block_type]
            block = make(config, index, name=f"layer_{index}", dtype=self.dtype_policy)
            # One attribute for each layer: tf.train.Checkpoint does not look into Keras' lists.
            setattr(self, f"layer_{index}", block)
        if config.block_type == "pre_norm":
            self.final_norm = layer_norm(config, self.dtype_policy)
        if use_pooler:
            self.pooler = Pooler(
                config.initializer_range, config.pooler_act, name="pooler", dtype=self.dtype_policy
            )
        seeds = "dropout_seeds" if name == "bert" else f"{name}_dropout_seeds"
        self.dropout_seeds = keras.random.SeedGenerator(name=seeds)
        self.build()

    @property
    def unique_layers(self) -> list[Block]:
        """The layers with separate weights."""
        return [getattr(self, f"layer_{i}") for i in range(self.config.num_unique_layers)]

    @property
    def encoder_layers(self) -> list[Block]:
        """The L layers in the order of computation; layers of a group are the same object."""
        layers = self.unique_layers
        config = self.config
        return [layers[config.unique_layer(i)] for i in range(config.num_hidden_layers)]

    def leave_out_padding(self, unpad: bool) -> None:
        """Sets whether the layers skip padding, which XLA cannot compile."""
        self.unpad = unpad
        self.supports_jit = not unpad

    def prepare_for_inference(self) -> None:
        """Permanently makes calls faster; training then has no effect."""
        for layer in self.unique_layers:
            layer.prepare_for_inference()

    def build(self, input_shape: Shape | None = None) -> None:
        size = self.config.hidden_size
        if not self.embeddings.built:
            self.embeddings.build()
        if self.config.projects_embeddings:
            self.embeddings_project.build((None, self.config.table_width))
        if self.config.query_vector:
            self.query_vector = self.add_weight(
                name="query_vector",
                shape=(1, 1, self.config.table_width),
                initializer=initializer(self.config.initializer_range),
                trainable=self.trains_queries,
            )
        with keras.name_scope("encoder"):
            self.positions.build_encoder(self)
            for layer in self.unique_layers:
                layer.build((None, size))
            if self.config.block_type == "pre_norm":
                self.final_norm.build((None, size))
        if self.use_pooler:
            self.pooler.build((None, None, size))

    def draw_dropout_seed(self, training: bool, dropout_seed: Tensor | None) -> Tensor:
        """Returns the dropout seed of a call: the given one, a new one, or None in inference."""
        if not training:
            return None
        if dropout_seed is not None:
            return dropout_seed
        # The generator's state is its seed and a counter; mixing the counter makes every bit
        # change.
        start, count = ops.unstack(ops.cast(self.dropout_seeds.next(), "int32"))
        return ops.bitwise_xor(start, mix(count))

    def layer_dropout_seed(self, index: int, dropout_seed: Tensor | None) -> Tensor:
        """Returns the dropout seed of a layer; layers of a group get different masks by it."""
        config = self.config
        group = config.unique_layer(index)
        # A shared block has one salt: without another seed its masks would be the same each time.
        earlier = [i for i in range(index) if config.unique_layer(i) == group]
        if dropout_seed is None or not earlier:
            return dropout_seed
        return repeated_seed(dropout_seed, len(earlier))

    def embed(self, inputs: Batch, dropout_seed: Tensor | None, layout: PaddedBatch) -> Tensor:
        """Returns the input of the first layer, float [U, D]."""
        # Under MirroredStrategy `fit` first calls the model with averaged ids, which are floats.
        word_ids = ops.cast(inputs["input_word_ids"], "int32")
        type_ids = ops.cast(inputs["input_type_ids"], "int32")
        embedded = self.embeddings(word_ids, type_ids, layout=layout, dropout_seed=dropout_seed)
        if "token_factors" in inputs:
            embedded = ops.reshape(embedded, (-1, self.config.table_width))
            factors = ops.reshape(inputs["token_factors"], (-1, 1))  # [B*T, 1]
            embedded *= ops.cast(layout.unpad(factors), embedded.dtype)
        return self._project(embedded)

    def _project(self, embedded: Tensor) -> Tensor:
        """Returns embeddings in the width of the layers: float [..., E] -> [U, D]."""
        embedded = ops.reshape(embedded, (-1, self.config.table_width))
        if self.config.projects_embeddings:
            return self.embeddings_project(embedded)
        return embedded

    def embed_queries(
        self, inputs: Batch, stream: QueryStream, dropout_seed: Tensor | None
    ) -> Tensor:
        """Returns the input of the query stream, float [B*V, D].

        It is the embedding of [MASK] at each target's position, or one learned vector for all.
        """
        # -1, no target, reads position 0; `scatter` leaves its vector out.
        positions = ops.maximum(stream.vector_positions, 0)
        type_ids = ops.take_along_axis(ops.cast(inputs["input_type_ids"], "int32"), positions, 1)
        position_ids = positions
        if self.config.position_offset:
            word_ids = ops.cast(inputs["input_word_ids"], "int32")
            position_ids = self.embeddings.position_ids_of(word_ids)
            position_ids = ops.take_along_axis(position_ids, positions, 1)
        query_vector = self.query_vector if self.config.query_vector else None
        if query_vector is None:
            word_ids = stream.word_ids(inputs)
        elif "query_content_ids" in inputs:
            raise ValueError(
                "query_content_ids need targets that start as [MASK], but this network has a "
                "query_vector; leave one of them out."
            )
        else:
            # The ids are not used, but their shape is.
            word_ids = positions * 0
        embedded = self.embeddings(
            word_ids,
            type_ids,
            position_ids=position_ids,
            dropout_seed=stream.dropout_seed(dropout_seed),
            query_vector=query_vector,
        )
        return self._project(embedded)

    def call(
        self,
        inputs: Batch,
        training: bool = False,
        dropout_seed: Tensor | None = None,
        output_attentions: bool = False,
        memories: list[Tensor] | None = None,
    ) -> Outputs:
        if output_attentions:
            _check_attentions(inputs, memories)
        config = self.config
        dropout_seed = self.draw_dropout_seed(training, dropout_seed)
        has_types = self.positions.has_segment_terms
        layout = find_layout(inputs, self.unpad, has_types, training)
        memory_length = count_tokens(memories, inputs, layout, config, self.positions.has_memory)
        hidden = self.embed(inputs, dropout_seed, layout)  # [U, D]
        stream = find_stream(inputs, layout)
        queries = None
        if stream is not None:
            queries = self.embed_queries(inputs, stream, dropout_seed)  # [B*V, D]
        hidden_states, query_states = self._run_layers(
            hidden,
            queries,
            layout,
            stream,
            dropout_seed,
            recompute=self.recompute and training,
            memories=memories or [],
            memory_length=memory_length,
        )
        by_sequence = (-1, layout.length, config.hidden_size)
        # Callers see padded batches, whatever the layout of the layers is.
        outputs = [ops.reshape(layout.pad(states), by_sequence) for states in hidden_states]
        result = {
            "sequence_output": outputs[-1],  # [B, T, D]
            # In the pre-norm form `outputs` has one more: the final LayerNorm's.
            "encoder_outputs": outputs[: config.num_hidden_layers + 1],
        }
        if self.use_pooler:
            is_first = config.pooled_token == "first"
            pick = layout.first_tokens if is_first else layout.last_tokens
            # From the layout: with packed rows the first token is not at position 0 of its row.
            token = pick(hidden_states[-1], outputs[-1])  # [B, D]
            result["pooled_output"] = self.pooler(token[:, None])
        if stream is not None:
            query_outputs = list(map(stream.predictions, query_states))  # [B, K, D]
            result["query_output"] = query_outputs[-1]
            result["query_outputs"] = query_outputs[: config.num_hidden_layers + 1]
        if output_attentions:
            result["attentions"] = self._attentions(inputs, result["encoder_outputs"])
        if memories is not None:
            result["memories"] = new_memories(memories, result["encoder_outputs"], config)
        return result

    def _run_layers(
        self,
        hidden: Tensor,
        queries: Tensor | None,
        layout: PaddedBatch,
        stream: QueryStream | None,
        dropout_seed: Tensor | None,
        *,
        recompute: bool,
        memories: list[Tensor],
        memory_length: int,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Returns the input of the first layer, the output of each, and the normalized last output.

        Args:
          hidden: float [U, D], the input.
          queries: float [B*V, D], the input of the query stream; None without one.
          stream: the query stream; None without one.
          recompute: whether the backward pass computes each layer a second time.
          memories: the inputs of the layers for an earlier segment, or [].
          memory_length: number of tokens in the memories.

        Returns:
          The states of the tokens, float [U, D], and those of the query stream, float [B*V, D].
        """
        config = self.config
        patterns = {}
        # Masks and biases are computed once for all layers of a kind, not in each layer.
        for is_local in set(map(config.is_local, range(config.num_hidden_layers))):
            patterns[is_local] = AttentionPattern(
                layout, config, is_local, memory_length=memory_length
            )
        if stream is not None:
            stream.add_patterns(patterns.values())
        shared_terms = self.shared_terms(layout, memory_length)
        shared = [] if shared_terms is None else [shared_terms]
        hidden_states = [hidden]
        query_states = [queries]
        for index, layer in enumerate(self.encoder_layers):
            run = functools.partial(
                _run_block,
                layer,
                patterns[config.is_local(index)],
                stream,
                self.layer_dropout_seed(index, dropout_seed),
            )
            # `keras.remat` keeps only the arguments of the layer.
            if recompute:
                run = keras.remat(run)
            streams = [hidden] if queries is None else [hidden, queries]
            memory = [memories[index]] if memory_length and memories else []
            hidden, *others = run(*streams, *shared, *memory)  # [U, D]
            hidden_states.append(hidden)
            if others:
                queries = others[0]
                query_states.append(queries)
        if config.block_type == "pre_norm":
            hidden_states.append(self.final_norm(hidden))
            if queries is not None:
                query_states.append(self.final_norm(queries))
        return hidden_states, query_states

    def shared_terms(self, layout: PaddedBatch, memory_length: int = 0) -> Tensor | None:
        """Returns the tensor of `Positions.shared_terms` for the rows of a layout."""
        return self.positions.shared_terms(self, layout.length + memory_length)

    def _attentions(self, inputs: Batch, states: list[Tensor]) -> list[Tensor]:
        """Returns the attention probabilities of each layer, float32 [B, N, T, T]."""
        layout = find_layout(inputs, False, self.positions.has_segment_terms)
        shared_terms = self.shared_terms(layout)
        attentions = []
        for index, layer in enumerate(self.encoder_layers):
            pattern = AttentionPattern(layout, self.config, self.config.is_local(index))
            probabilities = layer.attention_probabilities(states[index], pattern, shared_terms)
            attentions.append(probabilities)
        return attentions

    def get_config(self) -> Fields:
        return {
            **super().get_config(),
            "use_pooler": self.use_pooler,
            "trains_queries": self.trains_queries,
        }

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> Outputs:
        return {"use_pooler": "pooler" in checkpoint.heads}


def _check_attentions(inputs: Batch, memories: list[Tensor] | None) -> None:
    """Raises ValueError for inputs of which no attentions can be returned."""
    if "packed_positions" in inputs:
        raise ValueError("output_attentions is not for packed rows; give rows of one text.")
    if memories:
        raise ValueError("output_attentions shows no attention to memories; leave one of them out.")


def _run_block(
    layer: Block,
    pattern: AttentionPattern,
    stream: QueryStream | None,
    dropout_seed: Tensor | None,
    hidden: Tensor,
    *others: Tensor,
) -> tuple[Tensor, ...]:
    """Calls a layer, with and without a query stream; all that has a gradient is an argument.

    `keras.remat` loses the gradients of tensors that a function captures, and TensorFlow warns
    about arguments without a gradient.

    Args:
      others: the query stream's vectors, with a stream; then the shared terms and the memory, if
        there are any.

    Returns:
      The new vectors of tokens and, with a stream, of targets.
    """
    rest = list(others)
    queries = rest.pop(0) if stream is not None else None
    shared_terms = rest.pop(0) if rest else None
    memory = rest.pop(0) if rest else None
    result = layer(
        hidden,
        shared_terms,
        queries,
        memory,
        pattern=pattern,
        dropout_seed=dropout_seed,
        stream=stream,
    )
    return (result,) if queries is None else result
