"""Reads warm-up requests back, as TensorFlow Serving does when it loads a model."""

import pathlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import tensor_pb2

from export.saving.warmup import (
    INPUTS,
    KEY,
    MODEL_SPEC,
    PREDICT_LOG,
    REQUEST,
    SIGNATURE_NAME,
    VALUE,
)

VARINT, LENGTH_DELIMITED = 0, 2  # Kinds of fields.


def read_warmup(path: pathlib.Path) -> list[tuple[str, dict[str, np.ndarray]]]:
    """Returns the requests of a file, each a signature's name and its inputs.

    Raises:
      ValueError: if there are none, or the file is damaged.
    """
    if not path.is_file():
        raise ValueError(f"{path} is missing; export the model again.")
    try:
        logs = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
        requests = [read_log(log) for log in logs]
    except (tf.errors.DataLossError, DecodeError, LookupError, ValueError):
        raise ValueError(
            f"{path} is damaged: its requests cannot be read; export the model again."
        ) from None
    if not requests:
        raise ValueError(f"{path} holds no request; export the model again.")
    return requests


def read_log(log: bytes) -> tuple[str, dict[str, np.ndarray]]:
    """Returns signature and inputs of a serialized `PredictionLog` of a `PredictRequest`."""
    request = _one(_one(log, PREDICT_LOG), REQUEST)
    signature = _one(_one(request, MODEL_SPEC), SIGNATURE_NAME).decode()
    inputs = {}
    for number, entry in _fields(request):
        if number == INPUTS:
            tensor = tensor_pb2.TensorProto.FromString(_one(entry, VALUE))
            inputs[_one(entry, KEY).decode()] = tf.make_ndarray(tensor)
    return signature, inputs


def _one(message: bytes, number: int) -> bytes:
    """Returns the content of a field.

    Raises:
      LookupError: if the message has no such field.
    """
    for found, content in _fields(message):
        if found == number:
            return content
    raise LookupError(f"a message has no field {number}")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields number and content of each field of the kind "length-delimited"."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        size, place = _varint(message, place)  # A number's value, or the content's length.
        if key & 7 == LENGTH_DELIMITED:
            yield key >> 3, message[place : place + size]
            place += size
        elif key & 7 != VARINT:
            raise ValueError(f"a field is of kind {key & 7}")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Returns a number written seven bits a byte, and the place behind it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
