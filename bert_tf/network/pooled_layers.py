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
            kernel = initializer(initializer_range)
            is_square = step.in_features == step.out_features
            if is_square and step.activation == "linear" and not (step.use_bias or step.residual):
                # A layer with nothing but its kernel does not change the vectors at the start.
                kernel = keras.initializers.Identity()
            layer = keras.layers.Dense(
                step.out_features,
                activation=ops.sigmoid if is_sigmoid else activation(step.activation),
                use_bias=step.use_bias,
                kernel_initializer=kernel,
                name=name,
                dtype="float32",
            )
            layer.build((None, step.in_features))
            setattr(model, name, layer)
            if step.has_residual_kernel:
                _add_residual(model, name, step, initializer_range)
        elif step.norm == "layer_norm":
            layer = keras.layers.LayerNormalization(
                epsilon=NORM_EPSILON, name=name, dtype="float32"
            )
            layer.build((None, step.size))
            setattr(model, name, layer)


def _add_residual(model: keras.Model, name: str, step: DenseStep, initializer_range: float) -> None:
    """Adds the kernel through which a dense layer's input is added to its output."""
    with keras.name_scope(name):
        layer = keras.layers.Dense(
            step.out_features,
            use_bias=False,
            kernel_initializer=initializer(initializer_range),
            name="residual",
            dtype="float32",
        )
        layer.build((None, step.in_features))
    setattr(model, f"{name}_residual", layer)


def apply_layers(model: keras.Model, steps: Sequence[Step], vectors: Tensor) -> Tensor:
    """Returns vectors after the layers that `add_layers` added, float32 [..., D] to [..., N]."""
    for index, step in enumerate(steps):
        name = layer_name(index, step)
        if isinstance(step, DenseStep):
            added = vectors
            if step.has_residual_kernel:
                added = getattr(model, f"{name}_residual")(vectors)
            vectors = getattr(model, name)(vectors)
            if step.residual:
                vectors += added
        elif step.norm == "layer_norm":
            vectors = getattr(model, name)(vectors)
        else:
            vectors = l2_normalize(vectors)
    return vectors
