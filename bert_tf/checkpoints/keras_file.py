"""Reads the weights of a model of this package in a Keras file: `model.save("mine.keras")`."""

import contextlib
import dataclasses
import math
import pathlib
from typing import Any

import keras

from bert_tf.checkpoints import keras_archive
from bert_tf.checkpoints.archives import UNPACKING_ERRORS
from bert_tf.checkpoints.checkpoint import Checkpoint, encoder_shapes
from bert_tf.config import ModelConfig
from bert_tf.system.bounded_files import open_zip
from bert_tf.system.nested_layers import nested_layers
from bert_tf.system.printable import first_line

WEIGHTS_NAME = "model.weights.h5"


def read_keras_file(path: pathlib.Path, electra_network: str = "") -> Checkpoint:
    """Reads a Keras file of a model of this package, or of a functional model around one.

    Raises:
      ValueError: if it cannot be read, or holds no model of this package.
    """
    values = keras_archive.read_config(path)  # Names a missing or damaged file before Keras does.
    _check_sizes(path, values)
    try:
        model = keras.models.load_model(path, compile=False)
    except (*UNPACKING_ERRORS, TypeError, KeyError) as error:
        raise ValueError(f"{path} is not a readable Keras model: {first_line(error)}") from None
    # The model itself, or one inside a functional model.
    layers = [model, *nested_layers(model)]
    found: Any = next((layer for layer in layers if hasattr(layer, "to_checkpoint")), None)
    if found is None:
        raise ValueError(
            f"{path} holds no model of bert_tf; save one of its models, or a functional model "
            "around it."
        )
    checkpoint = dataclasses.replace(
        found.to_checkpoint(electra_network),
        source=str(path),
        form="keras",
        settings=keras_archive.read_settings(path),
    )
    if tokenizer := keras_archive.read_tokenizer(path):
        vocab, do_lower_case = tokenizer
        # A preprocessor may have another casing than the encoder's configuration.
        config = dataclasses.replace(checkpoint.config, do_lower_case=do_lower_case)
        changes = {"vocab": vocab, "config": config, "stated_casing": do_lower_case}
        checkpoint = dataclasses.replace(checkpoint, **changes)
    return checkpoint


def _check_sizes(path: pathlib.Path, values: dict[str, Any]) -> None:
    """Checks that the file is as large as the weights it describes, which Keras makes first."""
    with open_zip(path) as archive:
        if WEIGHTS_NAME not in archive.namelist():
            return  # Keras says so.
        size = archive.getinfo(WEIGHTS_NAME).file_size
    for saved in keras_archive.saved_objects(values):
        numbers = _count_numbers(saved)
        if numbers > size:
            raise ValueError(
                f"{path} is not a readable Keras model: {saved.name} has {numbers} numbers by "
                f"config.json, but {WEIGHTS_NAME} has {size} bytes."
            )


def _count_numbers(saved: keras_archive.SavedObject) -> int:
    """Returns how many numbers the encoder and the labels of a saved class have, at least."""
    fields = saved.arguments.get("config")
    with contextlib.suppress(TypeError, ValueError):  # Keras names the object that it cannot make.
        if isinstance(fields, dict) and "hidden_size" in fields:
            config = ModelConfig.from_dict(fields)
            labels = saved.arguments.get("num_labels")
            of_labels = config.hidden_size * labels if isinstance(labels, int) else 0
            return of_labels + sum(map(math.prod, encoder_shapes(config).values()))
    return 0
