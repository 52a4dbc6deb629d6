"""The encoder: embeddings, L post-norm layers, pooler (BERT section 3; Vaswani et al. 2017).

  input ids, mask, types [B, T]
    -> BertEmbeddings [B, T, D] -> rows [B*T, D]
    -> L times  x = LayerNorm(x + dropout(attention(x)))
                x = LayerNorm(x + dropout(W2 activation(W1 x)))
    -> sequence_output [B, T, D], and tanh(W x) of the first position: pooled_output [B, D]

Layers carry the names of google-research/bert's scopes and are built inside the constructor, so
`variable.path` is that program's variable name, e.g. bert/encoder/layer_3/output/dense/kernel.
"""

import functools
import typing
from typing import Any

import keras
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.modeling.activations import activation, without_slope
from bert_tf.modeling.attention import SelfAttention, attention_bias
from bert_tf.modeling.dropout import Dropout, mix
from bert_tf.modeling.embeddings import BertEmbeddings, initializer
from bert_tf.modeling.layer_norm import LayerNorm
from bert_tf.modeling.packed_rows import PackedRows, find_packed_rows
from bert_tf.modeling.pretrained import FromPretrained
from bert_tf.modeling.unpadding import Layout, find_pieces

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


@keras.saving.register_keras_serializable(package="bert_tf")
class ResidualOutput(keras.layers.Layer):
    """Dense, dropout, add the residual, LayerNorm: the end of both halves of a layer.

    Args:
      units: D.
      dropout_rate: dropout of the dense output.
      salt: number of that dropout.
      layer_norm_eps: epsilon of the LayerNorm.
      initializer_range: standard deviation of the initial kernel.

    Call arguments:
      inputs: float [B*T, D or F].
      residual: float [B*T, D].
      dropout_seed: int32 [] in training, else None.

    Returns:
      float [B*T, D].
    """

    def __init__(
        self,
        units: int,
        dropout_rate: float,
        salt: int,
        layer_norm_eps: float,
        initializer_range: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.dense = keras.layers.Dense(
            units,
            kernel_initializer=initializer(initializer_range),
            name="dense",
            dtype=self.dtype_policy,
        )
        self.dropout = Dropout(dropout_rate, salt, dtype=self.dtype_policy)
        self.layer_norm = LayerNorm(
            epsilon=layer_norm_eps, name="LayerNorm", dtype=self.dtype_policy
        )

    def build(self, input_shape: Any) -> None:
        self.dense.build(input_shape)
        self.layer_norm.build((None, self.units))

    def call(self, inputs: Any, residual: Any, dropout_seed: Any = None) -> Any:
        return self.layer_norm(residual + self.dropout(self.dense(inputs), dropout_seed))


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderLayer(keras.layers.Layer):
    """One transformer layer: self-attention, then the feed-forward part, each with LayerNorm after.

    Args:
      num_heads: N.
      intermediate_size: F.
      hidden_act: name of the activation, see `activation`.
      hidden_dropout: dropout of both outputs.
      attention_dropout: dropout of the attention probabilities.
      salt: number of the first of this layer's three dropouts.
      layer_norm_eps: epsilon of both LayerNorms.
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
        intermediate_size: int,
        hidden_act: str,
        hidden_dropout: float,
        attention_dropout: float,
        salt: int,
        layer_norm_eps: float,
        initializer_range: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._config: dict[str, Any] = {
            "num_heads": num_heads,
            "intermediate_size": intermediate_size,
            "hidden_act": hidden_act,
            "hidden_dropout": hidden_dropout,
            "attention_dropout": attention_dropout,
            "salt": salt,
            "layer_norm_eps": layer_norm_eps,
            "initializer_range": initializer_range,
        }

    def build(self, input_shape: Any) -> None:
        size, config = input_shape[-1], self._config
        wide = (None, config["intermediate_size"])
        common = {"initializer_range": config["initializer_range"], "dtype": self.dtype_policy}

        def residual_output(salt: int) -> ResidualOutput:
            rate, eps = config["hidden_dropout"], config["layer_norm_eps"]
            return ResidualOutput(size, rate, salt, eps, name="output", **common)

        self.self_attention = SelfAttention(
            config["num_heads"], config["attention_dropout"], config["salt"], name="self", **common
        )
        self.attention_output = residual_output(config["salt"] + 1)
        self.intermediate = keras.layers.Dense(
            config["intermediate_size"],
            activation=activation(config["hidden_act"]),
            kernel_initializer=initializer(config["initializer_range"]),
            name="dense",
            dtype=self.dtype_policy,
        )
        self.feed_forward_output = residual_output(config["salt"] + 2)
        with keras.name_scope("attention"):
            self.self_attention.build(input_shape)
            self.attention_output.build(input_shape)
        with keras.name_scope("intermediate"):
            self.intermediate.build(input_shape)
        self.feed_forward_output.build(wide)

    def call(
        self, inputs: Any, bias: Any, dropout_seed: Any = None, layout: Layout | None = None
    ) -> Any:
        context = self.self_attention(inputs, bias, dropout_seed, layout)
        attended = self.attention_output(context, inputs, dropout_seed)
        return self.feed_forward_output(self.intermediate(attended), attended, dropout_seed)


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(keras.layers.Layer):
    """A dense layer with tanh on the first position, [CLS].

    Args:
      initializer_range: standard deviation of the initial kernel.

    Call arguments:
      inputs: float [B, T, D].

    Returns:
      float [B, D].
    """

    def __init__(self, initializer_range: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.initializer_range = initializer_range

    def build(self, input_shape: Any) -> None:
        self.dense = keras.layers.Dense(
            input_shape[-1],
            activation="tanh",
            kernel_initializer=initializer(self.initializer_range),
            name="dense",
            dtype=self.dtype_policy,
        )
        self.dense.build((None, input_shape[-1]))

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs[:, 0])


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoder(FromPretrained, keras.Model):
    """The encoder without heads.

    Args:
      config: shape of the network.
      use_pooler: whether there is a pooler.
      recompute: whether the backward pass recomputes each layer instead of keeping its inside.
        Costs a second forward pass; the masks are the same, so the gradients are.
      unpad: whether the layers work on the pieces alone, see `unpadding.py`. Not under XLA. Output
        at padding is then 0. Without effect on packed rows.

    Call arguments:
      inputs: dict of int32 [B, T]: `input_word_ids`, `input_mask`, `input_type_ids`; other keys are
        ignored. With `packed_places` [R, T] and `packed_starts` [B] the layers work on packed rows,
        see `packed_rows.py`; output at padding is then 0, too.
      training: whether dropout is on.
      dropout_seed: int32 []; with `training` and without a seed, one is drawn from this model's own
        generator (what `fit` does).

    Returns:
      dict: `sequence_output` float [B, T, D], with a pooler `pooled_output` float [B, D], and
      `encoder_outputs`, a list of L + 1 float [B, T, D]: the embeddings and every layer's output.

    Reference: Devlin et al. 2019, section 3.
    """

    def __init__(
        self,
        config: ModelConfig,
        recompute: bool = False,
        use_pooler: bool = True,
        unpad: bool = False,
        name: str = "bert",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.config, self.recompute, self.use_pooler = config, recompute, use_pooler
        self.unpad = unpad
        self.autocast = False  # Ids are never rounded, in whatever type they come.
        self.embeddings = BertEmbeddings(
            config.vocab_size,
            config.hidden_size,
            config.max_position_embeddings,
            config.type_vocab_size,
            config.hidden_dropout_prob,
            config.layer_norm_eps,
            config.initializer_range,
            name="embeddings",
            dtype=self.dtype_policy,
        )
        for index in range(config.num_hidden_layers):
            layer = EncoderLayer(
                config.num_attention_heads,
                config.intermediate_size,
                config.hidden_act,
                config.hidden_dropout_prob,
                config.attention_probs_dropout_prob,
                salt=1 + 3 * index,
                layer_norm_eps=config.layer_norm_eps,
                initializer_range=config.initializer_range,
                name=f"layer_{index}",
                dtype=self.dtype_policy,
            )
            # An attribute each, not a list: tf.train.Checkpoint does not look into Keras' lists.
            setattr(self, f"layer_{index}", layer)
        if use_pooler:
            self.pooler = Pooler(config.initializer_range, name="pooler", dtype=self.dtype_policy)
        self.dropout_seeds = keras.random.SeedGenerator(name="dropout_seeds")
        self.build()

    @property
    def encoder_layers(self) -> list[EncoderLayer]:
        return [getattr(self, f"layer_{i}") for i in range(self.config.num_hidden_layers)]

    def prepare_for_inference(self) -> None:
        """Makes calls faster, for good; training has no effect any more."""
        for layer in self.encoder_layers:
            layer.self_attention.join()
            layer.intermediate.activation = without_slope(layer.intermediate.activation)

    def build(self, input_shape: Any = None) -> None:
        size = self.config.hidden_size
        self.embeddings.build()
        with keras.name_scope("encoder"):
            for layer in self.encoder_layers:
                layer.build((None, size))
        if self.use_pooler:
            self.pooler.build((None, None, size))

    def draw_dropout_seed(self, training: bool, dropout_seed: Any) -> Any:
        """Returns the seed of a call's dropout: the one given, a new one, or None at inference."""
        if not training:
            return None
        if dropout_seed is not None:
            return dropout_seed
        start, count = ops.unstack(ops.cast(self.dropout_seeds.next(), "int32"))
        return ops.bitwise_xor(start, mix(count))

    def _embed(
        self, inputs: dict[str, Any], dropout_seed: Any, layout: Layout | PackedRows | None
    ) -> Any:
        """Returns the embeddings without the axis of sequences."""
        # Under MirroredStrategy `fit` first calls the model with means of ids, which are floats.
        word_ids = ops.cast(inputs["input_word_ids"], "int32")
        type_ids = ops.cast(inputs["input_type_ids"], "int32")
        if layout is None:
            embedded = self.embeddings(word_ids, type_ids, dropout_seed)
            return ops.reshape(embedded, (-1, self.config.hidden_size))
        self.embeddings.check_length(word_ids)
        ids, types = (layout.unpad(ops.reshape(x, (-1,))) for x in (word_ids, type_ids))
        positions = layout.places % ops.shape(word_ids)[1]
        return self.embeddings(ids, types, dropout_seed, positions)

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Any = None
    ) -> dict[str, Any]:
        dropout_seed = self.draw_dropout_seed(training, dropout_seed)
        rows = find_packed_rows(inputs)
        pieces = find_pieces(inputs["input_mask"]) if self.unpad and rows is None else None
        layout = rows or pieces
        hidden = self._embed(inputs, dropout_seed, layout)  # [B*T, D], [R*T, D] or [U, D]
        bias = rows.attention_bias() if rows else attention_bias(inputs["input_mask"])
        by_sequence = (-1, ops.shape(inputs["input_mask"])[1], self.config.hidden_size)
        outputs = [hidden]
        for layer in self.encoder_layers:
            # No arguments here: TensorFlow warns of those that have no gradient.
            run = functools.partial(layer.__call__, dropout_seed=dropout_seed, layout=pieces)
            hidden = (keras.remat(run) if self.recompute and training else run)(hidden, bias)
            outputs.append(hidden)
        if layout is not None:
            outputs = [layout.pad(output) for output in outputs]
        outputs = [ops.reshape(output, by_sequence) for output in outputs]  # [B, T, D]
        result = {"sequence_output": outputs[-1], "encoder_outputs": outputs}
        if self.use_pooler:
            first = rows.first_pieces(hidden)[:, None] if rows else outputs[-1]  # [B, 1 or T, D]
            result["pooled_output"] = self.pooler(first)
        return result

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "recompute": self.recompute,
            "use_pooler": self.use_pooler,
            "unpad": self.unpad,
        }

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        return {"use_pooler": "pooler" in checkpoint.heads}
