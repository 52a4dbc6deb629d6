"""Output shapes in `model.summary()`, which Keras only shows for functional models."""

import contextlib
from collections.abc import Iterator
from typing import Any

Shape = tuple[int | None, ...]


@contextlib.contextmanager
def shown_shapes(shapes: dict[Any, Shape]) -> Iterator[None]:
    """Lets Keras' summary show the output shapes of these layers.

    It looks for them in `output_shape`, of layers that were built with a shape. That record is also
    what a saved layer is built from again, so it stands there for the summary alone.
    """
    before = {layer: layer._build_shapes_dict for layer in shapes}
    for layer, shape in shapes.items():
        layer._build_shapes_dict, layer.output_shape = {"input_shape": shape}, shape
    try:
        yield
    finally:
        for layer in shapes:
            layer._build_shapes_dict = before[layer]
            del layer.output_shape


def encoder_shapes(encoder: Any) -> dict[Any, Shape]:
    """Returns the output shapes of an encoder, B and T unknown, and of its layers."""
    config = encoder.config
    pieces = (None, None, config.hidden_size)
    shapes: dict[Any, Shape] = {encoder: pieces}
    shapes[encoder.embeddings] = (None, None, config.table_width)
    if config.table_width != config.hidden_size:
        shapes[encoder.embeddings_project] = pieces
    shapes |= dict.fromkeys(encoder.encoder_layers, pieces)
    if config.block_type == "pre_norm":
        shapes[encoder.final_norm] = pieces
    if encoder.use_pooler:
        shapes[encoder.pooler] = (None, config.hidden_size)
    return shapes
