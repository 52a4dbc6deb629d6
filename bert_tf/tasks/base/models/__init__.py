"""The base classes of the Keras models: raw input, `fit`, saving and conversion."""
