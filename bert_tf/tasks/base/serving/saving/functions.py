"""Writes functions of a model as a SavedModel."""

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.system.startup_lines import hidden_lines
from bert_tf.system.type_names import Tensor


def save_functions(
    folder: str | os.PathLike, functions: dict[str, Any], tokenizers: Sequence[Any] = ()
) -> None:
    """Writes a SavedModel of functions and the objects they use, without gradients and layers.

    Args:
      folder: new.
      functions: concrete functions by the name of the signature.
      tokenizers: objects with tables that the functions use.
    """
    variables: list[Tensor] = []
    for function in functions.values():
        variables.extend(function.variables)
    module = tf.Module()
    module.weights = variables
    module.tokenizers = list(tokenizers)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)  # TensorFlow logs every file that it writes.
    try:
        with hidden_lines():  # The graph optimizer speaks of oneDNN.
            tf.saved_model.save(module, str(folder), functions, options)
    finally:
        logging.set_verbosity(before)
