"""Warm-up requests, which TensorFlow Serving sends to a model before it reports it as available.

They are `PredictionLog`s in a TFRecord file, assets.extra/tf_serving_warmup_requests. The messages
are declared here, so that an export does not need the server's packages.

Reference: tensorflow/serving, apis/prediction_log.proto, predict.proto, model.proto.
"""

import os
import pathlib

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from tensorflow.core.framework import tensor_pb2

Requests = list[tuple[str, dict[str, tf.Tensor]]]
# message: field: (number, type, whether it repeats). A map is encoded as repeated entries.
MESSAGES = {
    "Spec": {"name": (1, "string", False), "signature_name": (3, "string", False)},
    "Entry": {"key": (1, "string", False), "value": (2, "bytes", False)},  # a TensorProto
    "Request": {"model_spec": (1, "Spec", False), "inputs": (2, "Entry", True)},
    "PredictLog": {"request": (1, "Request", False)},
    "PredictionLog": {"predict_log": (6, "PredictLog", False)},
}


def _make_class() -> type[Message]:
    """Declares the messages and returns the class of `PredictionLog`."""
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="warmup.proto", package="warmup")
    file.syntax = "proto3"
    for message, fields in MESSAGES.items():
        declared = file.message_type.add(name=message)
        for name, (number, kind, repeats) in fields.items():
            field = declared.field.add(name=name, number=number)
            field.label = field_type.LABEL_REPEATED if repeats else field_type.LABEL_OPTIONAL
            if kind in MESSAGES:
                field.type = field_type.TYPE_MESSAGE
                field.type_name = f".warmup.{kind}"
            else:
                field.type = getattr(field_type, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("warmup.PredictionLog"))


PredictionLog = _make_class()


def write_warmup(path: str | os.PathLike, model_name: str, requests: Requests) -> None:
    """Writes requests, pairs of a signature's name and its inputs."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in requests:
            writer.write(prediction_log(model_name, signature, inputs))


def prediction_log(model_name: str, signature: str, inputs: dict[str, tf.Tensor]) -> bytes:
    """Returns the serialized `PredictionLog` of one request."""
    log = PredictionLog()
    request = log.predict_log.request
    request.model_spec.name = model_name
    request.model_spec.signature_name = signature
    for name, tensor in inputs.items():
        request.inputs.add(key=name, value=tf.make_tensor_proto(tensor).SerializeToString())
    return log.SerializeToString()


def read_warmup(path: pathlib.Path) -> list[tuple[str, dict[str, np.ndarray]]]:
    """Reads the requests of a file, pairs of a signature's name and its inputs."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; export the model again.")
    try:
        requests = [read_log(record.numpy()) for record in tf.data.TFRecordDataset(str(path))]
    except (tf.errors.DataLossError, DecodeError, TypeError, ValueError):
        raise ValueError(
            f"{path} is damaged: its requests cannot be read; export the model again."
        ) from None
    if not requests:
        raise ValueError(f"{path} has no requests; export the model again.")
    return requests


def read_log(log: bytes) -> tuple[str, dict[str, np.ndarray]]:
    """Returns signature and inputs of a serialized `PredictionLog`."""
    request = PredictionLog.FromString(log).predict_log.request
    inputs = {}
    for entry in request.inputs:
        inputs[entry.key] = tf.make_ndarray(tensor_pb2.TensorProto.FromString(entry.value))
    return request.model_spec.signature_name, inputs
