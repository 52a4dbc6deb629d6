"""TensorFlow Serving over gRPC, with the optional package tensorflow-serving-api.

Its protocol buffers import those of TensorFlow, so importing this module loads TensorFlow.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc
import tensorflow as tf
from google.protobuf import json_format
from google.protobuf.message import Message
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from export.serving_rest import (
    FIRST_WAIT_SECONDS,
    LONGEST_WAIT_SECONDS,
    ServingError,
    Signature,
    one_line,
    read_signatures,
    read_versions,
)

if TYPE_CHECKING:
    from export.serving_client import ClientConfig


class GrpcTransport:
    """gRPC with the stubs of tensorflow-serving-api.

    The timeout is that of a call with all its attempts.
    """

    def __init__(self, config: "ClientConfig") -> None:
        server = config.server
        if "//" in server or ":" not in server:
            raise ValueError(
                f"server is {server!r}, expected HOST:PORT for --grpc, for example localhost:8500."
            )
        # -1: no limit here; the server has its own.
        options: list[tuple[str, object]] = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
        ]
        if config.retries:
            policy = {
                "maxAttempts": config.retries + 1,  # gRPC makes at most five.
                "initialBackoff": f"{FIRST_WAIT_SECONDS}s",
                "maxBackoff": f"{LONGEST_WAIT_SECONDS}s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            }
            methods = {"methodConfig": [{"name": [{}], "retryPolicy": policy}]}
            options.append(("grpc.service_config", json.dumps(methods)))
        channel = grpc.insecure_channel(server, options)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(channel)
        self._server = server
        self._timeout = config.timeout
        self._spec = model_pb2.ModelSpec(name=config.model)
        if config.version >= 0:
            self._spec.version.value = config.version
        self.close = channel.close

    def versions(self) -> list[str]:
        spec = model_pb2.ModelSpec(name=self._spec.name)
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=spec)
        return read_versions(_to_dict(self._ask(self._models.GetModelStatus, request)))

    def signatures(self) -> dict[str, Signature]:
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=self._spec, metadata_field=["signature_def"]
        )
        answer = self._ask(self._predictions.GetModelMetadata, request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(signatures)
        return read_signatures(_to_dict(signatures))

    def predict(self, name: str, spec: Signature, inputs: dict[str, Any]) -> dict[str, Any]:
        request = predict_pb2.PredictRequest(model_spec=self._spec)
        request.model_spec.signature_name = name
        for key, values in inputs.items():
            try:
                proto = tf.make_tensor_proto(values, spec.inputs[key].kind)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{key} takes {spec.inputs[key]}: {one_line(error)}") from None
            request.inputs[key].CopyFrom(proto)
        answer = self._ask(self._predictions.Predict, request)
        return {key: tf.make_ndarray(proto) for key, proto in sorted(answer.outputs.items())}

    def _ask(self, method: Callable[..., Any], request: Message) -> Any:
        try:
            return method(request, timeout=self._timeout)
        except grpc.RpcError as error:
            code = error.code()
            message = f"{self._server}: {one_line(error.details())} ({code.name})."
            if code == grpc.StatusCode.NOT_FOUND:
                message += " Compare --model with the names in models.config, or drop --version."
            raise ServingError(message) from None


def _to_dict(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
