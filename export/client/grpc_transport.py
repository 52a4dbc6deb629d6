"""TensorFlow Serving over gRPC, with the optional package tensorflow-serving-api.

Its protocol buffers import those of TensorFlow, so importing this module loads TensorFlow.
"""

from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from export.client import protocol
from export.client.protocol import ServingError, Spec, one_line

PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class GrpcTransport:
    """gRPC with the protocol buffers of tensorflow-serving-api."""

    def __init__(self, server: str, model: str, version: int) -> None:
        if "//" in server or ":" not in server:
            raise ValueError(
                f"server is {server!r}, expected HOST:PORT for --grpc, for example localhost:8500."
            )
        options = [
            ("grpc.max_receive_message_length", protocol.MAX_ANSWER_BYTES),
            # -1: no limit here; the server has its own.
            ("grpc.max_send_message_length", -1),
            # Retries soon after a server has started; gRPC's default is a second.
            ("grpc.initial_reconnect_backoff_ms", 100),
        ]
        channel = grpc.insecure_channel(server, options)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(channel)
        self._server = server
        self._model = model
        self._version = version
        self.close = channel.close

    def status(self, seconds: float) -> list[dict[str, Any]]:
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = self._model
        answer = _to_dict(self._ask(self._models.GetModelStatus, request, seconds))
        return protocol.check_versions(answer, self._server)

    def metadata(self, seconds: float) -> dict[str, Spec]:
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        self._name_model(request)
        answer = self._ask(self._predictions.GetModelMetadata, request, seconds)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        try:
            answer.metadata["signature_def"].Unpack(signatures)
        except DecodeError as error:
            raise ServingError(
                f"{self._server} gave no signatures: {one_line(error)}", "INTERNAL"
            ) from None
        return protocol.check_signatures(_to_dict(signatures)["signature_def"], self._server)

    def predict(
        self, name: str, _: Spec, inputs: dict[str, np.ndarray], seconds: float
    ) -> dict[str, Any]:
        request = predict_pb2.PredictRequest()
        self._name_model(request)
        request.model_spec.signature_name = name
        for key, values in inputs.items():
            kind = tf.string if values.dtype == object else values.dtype
            request.inputs[key].CopyFrom(tf.make_tensor_proto(values, kind, values.shape))
        answer = self._ask(self._predictions.Predict, request, seconds)
        try:
            return {key: tf.make_ndarray(proto) for key, proto in sorted(answer.outputs.items())}
        except (ValueError, TypeError) as error:
            message = f"{self._server} returned unexpected outputs: {one_line(error)}"
            raise ServingError(message, "INTERNAL") from None

    def _name_model(
        self, request: predict_pb2.PredictRequest | get_model_metadata_pb2.GetModelMetadataRequest
    ) -> None:
        """Sets the model and, unless the server chooses it, the version of a request."""
        request.model_spec.name = self._model
        if self._version >= 0:
            request.model_spec.version.value = self._version

    def _ask(self, method: Callable[..., Message], request: Message, seconds: float) -> Message:
        try:
            return method(request, timeout=seconds)
        except grpc.RpcError as error:
            code = error.code()
            message = f"{self._server}: {one_line(error.details())} ({code.name})"
            raise ServingError(message, code.name, code in PASSING) from None


def _to_dict(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
