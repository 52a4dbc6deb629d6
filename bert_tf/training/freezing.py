"""Freezes layers in fine-tuning."""

import keras


def freeze(model: keras.Model, frozen_layers: int) -> None:
    """Makes the embeddings and the first layers of a model's encoder untrainable.

    Args:
      model: a model with the encoder `bert`.
      frozen_layers: number of encoder layers; 0: only the embeddings; below 0: freeze nothing.

    Raises:
      ValueError: if the encoder has fewer layers.
    """
    layers = model.bert.encoder_layers
    if frozen_layers > len(layers):
        raise ValueError(
            f"--frozen_layers={frozen_layers}, but there are only {len(layers)} layers."
        )
    if frozen_layers < 0:
        return
    frozen = layers[:frozen_layers]
    if any(layer in frozen for layer in layers[frozen_layers:]):
        raise ValueError(
            f"--frozen_layers={frozen_layers} ends within a group of layers that share their "
            f"weights: {len(layers)} layers are in {model.bert.config.num_layer_groups} groups; "
            "freeze whole groups."
        )
    for layer in (model.bert.embeddings, *frozen):
        layer.trainable = False
