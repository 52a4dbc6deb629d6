"""Output shapes in `model.summary()`, which Keras only shows for functional models."""

import contextlib
from collections.abc import Iterator
from typing import Any

Shape = tuple[int | None, ...]


@contextlib.contextmanager
def shown_shapes(shapes: dict[Any, Shape]) -> Iterator[None]:
    """Lets Keras' summary show the output shapes of these layers.

    Keras reads `output_shape` of layers that were built with a shape. Saved layers are built again
    from the same record, so it is set only while the summary is made.
    """
    before = {layer: layer._build_shapes_dict for layer in shapes}
    for layer, shape in shapes.items():
        layer._build_shapes_dict = {"input_shape": shape}
        layer.output_shape = shape
    try:
        yield
    finally:
        for layer in shapes:
            layer._build_shapes_dict = before[layer]
            del layer.output_shape


def encoder_shapes(encoder: Any) -> dict[Any, Shape]:
    """Returns the output shapes of an encoder, B and T unknown, and of its layers."""
    config = encoder.config
    sequence = (None, None, config.hidden_size)
    shapes: dict[Any, Shape] = {encoder: sequence}
    shapes[encoder.embeddings] = (None, None, config.table_width)
    if config.table_width != config.hidden_size:
        shapes[encoder.embeddings_project] = sequence
    shapes |= dict.fromkeys(encoder.encoder_layers, sequence)
    if config.block_type == "pre_norm":
        shapes[encoder.final_norm] = sequence
    if encoder.use_pooler:
        shapes[encoder.pooler] = (None, config.hidden_size)
    return shapes
