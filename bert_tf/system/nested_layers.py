"""The layers of a Keras model at every depth."""

from bert_tf.system.type_names import Layer, Model


def nested_layers(model: Model) -> list[Layer]:
    """Returns all layers in a model, outer before inner ones, without the model itself.

    Keras has no public way: `Model.layers` ends at the first level, and a `Layer` has none. See
    `tests/stack_test.py` for the version of Keras with which this private method was tried.
    """
    layers: list[Layer] = model._flatten_layers(include_self=False)
    return layers
