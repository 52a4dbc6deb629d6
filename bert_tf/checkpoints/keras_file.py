"""Reads the weights of a model of this package in a Keras file: `model.save("mine.keras")`."""

import dataclasses
import pathlib
from typing import Any

import keras

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.keras_archive import read_config, read_settings, read_tokenizer
from bert_tf.printable import first_line


def read_keras_file(path: pathlib.Path, tower: str = "") -> Checkpoint:
    """Reads a Keras file of a model of this package, or of a functional model around one.

    Args:
      path: the file.
      tower: which one of ELECTRA's towers; see `read_google`.

    Raises:
      ValueError: if it cannot be read, or holds no model of this package.
    """
    read_config(path)  # Names a missing or damaged file before Keras does.
    try:
        model = keras.models.load_model(path, compile=False)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is not a readable Keras model: {first_line(error)}") from None
    layers = [model, *model._flatten_layers(include_self=False)]
    found: Any = next((layer for layer in layers if hasattr(layer, "to_checkpoint")), None)
    if found is None:
        raise ValueError(
            f"{path} holds no model of bert_tf; save one of its models, or a functional model "
            "around it."
        )
    checkpoint = dataclasses.replace(
        found.to_checkpoint(tower),
        source=str(path),
        form="keras",
        settings=read_settings(path),
    )
    if tokenizer := read_tokenizer(path):
        vocab, do_lower_case = tokenizer
        # A preprocessor may have another casing than the encoder's configuration.
        config = dataclasses.replace(checkpoint.config, do_lower_case=do_lower_case)
        changes = {"vocab": vocab, "config": config, "stated_casing": do_lower_case}
        checkpoint = dataclasses.replace(checkpoint, **changes)
    return checkpoint
