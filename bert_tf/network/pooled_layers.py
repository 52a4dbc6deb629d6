"""Keras layers of `bert_tf.config.pooled_layers`, between a pooled vector and its head."""

from collections.abc import Sequence

import keras
from keras import ops

from bert_tf.config.pooled_layers import NORM_EPSILON, DenseStep, Step, layer_name
from bert_tf.network.activations import activation
from bert_tf.network.pooling import l2_normalize
from bert_tf.network.positions import initializer
from bert_tf.system.type_names import Tensor


def add_layers(model: keras.Model, steps: Sequence[Step], initializer_range: float) -> None:
    """Adds the layers to a model as attributes, named as in checkpoints.

    The name scope of the caller is that of the weights.
    """
    for index, step in enumerate(steps):
        name = layer_name(index, step)
        if isinstance(step, DenseStep):
            # `activation` has the functions of encoders, without the sigmoid.
            is_sigmoid = step.activation == "sigmoid"
            layer = keras.layers.Dense(
                step.out_features,
                activation=ops.sigmoid if is_sigmoid else activation(step.activation),
                use_bias=step.use_bias,
                kernel_initializer=initializer(initializer_range),
                name=name,
                dtype="float32",
            )
            layer.build((None, step.in_features))
            setattr(model, name, layer)
        elif step.norm == "layer_norm":
            layer = keras.layers.LayerNormalization(
                epsilon=NORM_EPSILON, name=name, dtype="float32"
            )
            layer.build((None, step.size))
            setattr(model, name, layer)


def apply_layers(model: keras.Model, steps: Sequence[Step], vectors: Tensor) -> Tensor:
    """Returns pooled vectors after the layers that `add_layers` added, float32 [B, N]."""
    for index, step in enumerate(steps):
        if isinstance(step, DenseStep) or step.norm == "layer_norm":
            vectors = getattr(model, layer_name(index, step))(vectors)
        else:
            vectors = l2_normalize(vectors)
    return vectors
