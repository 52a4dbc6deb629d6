"""Warm-up requests: TensorFlow Serving sends them to a model before it is said to be there.

They are `PredictionLog`s in a TFRecord file, assets.extra/tf_serving_warmup_requests. The few
messages are written by hand, so that an export needs no package of the server's.

Reference: tensorflow/serving, apis/prediction_log.proto, predict.proto, model.proto.
"""

import os

import tensorflow as tf

Requests = list[tuple[str, dict[str, tf.Tensor]]]

# Field numbers.
PREDICT_LOG, REQUEST = 6, 1  # PredictionLog.predict_log.request
MODEL_SPEC, INPUTS = 1, 2  # PredictRequest
NAME, SIGNATURE_NAME = 1, 3  # ModelSpec
KEY, VALUE = 1, 2  # of a map's entry


def write_warmup(path: str | os.PathLike, model_name: str, requests: Requests) -> None:
    """Writes requests, each a signature's name and its inputs."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in requests:
            writer.write(prediction_log(model_name, signature, inputs))


def prediction_log(model_name: str, signature: str, inputs: dict[str, tf.Tensor]) -> bytes:
    """Returns a serialized `PredictionLog` of one request."""
    spec = _field(NAME, model_name.encode()) + _field(SIGNATURE_NAME, signature.encode())
    request = _field(MODEL_SPEC, spec)
    for name, tensor in inputs.items():
        value = tf.make_tensor_proto(tensor).SerializeToString()
        request += _field(INPUTS, _field(KEY, name.encode()) + _field(VALUE, value))
    return _field(PREDICT_LOG, _field(REQUEST, request))


def _field(number: int, content: bytes) -> bytes:
    """Returns a field of protobuf's kind "length-delimited": key, length, content."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Returns seven bits a byte, the lowest first; the eighth says that more follow."""
    low = b""
    while value > 0x7F:
        low += bytes([value & 0x7F | 0x80])
        value >>= 7
    return low + bytes([value])
