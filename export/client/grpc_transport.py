"""TensorFlow Serving over gRPC, with the optional package tensorflow-serving-api.

Its protocol buffers import TensorFlow's, so this way loads TensorFlow.
"""

from typing import Any

import numpy as np

from export.client.protocol import ServingError, Signature, as_text, one_line


class GrpcTransport:
    """gRPC with the protocol buffers of tensorflow-serving-api."""

    def __init__(self, server: str, model: str, version: int | None) -> None:
        try:
            import grpc
            from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc
        except ImportError as error:
            raise ValueError(
                f"--grpc needs tensorflow-serving-api ({error}); install it with "
                "`pip install '.[serving]'` in the folder of the project."
            ) from None
        if "//" in server or ":" not in server:
            raise ValueError(
                f"server is {server!r}, expected HOST:PORT for --grpc, as localhost:8500."
            )
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 100),
        ]
        self._channel = grpc.insecure_channel(server, options)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)
        self._server, self._model, self._version = server, model, version

    def close(self) -> None:
        self._channel.close()

    def status(self, timeout: float) -> dict[str, Any]:
        from google.protobuf import json_format
        from tensorflow_serving.apis import get_model_status_pb2

        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = self._model
        answer = self._ask(self._models.GetModelStatus, request, timeout)
        return json_format.MessageToDict(answer, preserving_proto_field_name=True)

    def metadata(self, timeout: float) -> dict[str, Any]:
        from google.protobuf import json_format
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        self._name_model(request)
        answer = self._ask(self._predictions.GetModelMetadata, request, timeout)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(signatures)
        fields = json_format.MessageToDict(signatures, preserving_proto_field_name=True)
        return fields.get("signature_def", {})

    def predict(
        self, name: str, signature: Signature, inputs: dict[str, np.ndarray], timeout: float
    ) -> dict[str, Any]:
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        self._name_model(request)
        request.model_spec.signature_name = name
        for key, values in inputs.items():
            kind = tf.string if values.dtype == object else values.dtype
            request.inputs[key].CopyFrom(tf.make_tensor_proto(values, kind, values.shape))
        answer = self._ask(self._predictions.Predict, request, timeout)
        outputs = {
            key: _from_tensor(tf.make_ndarray(proto)) for key, proto in answer.outputs.items()
        }
        return dict(sorted(outputs.items()))

    def _name_model(self, request: Any) -> None:
        request.model_spec.name = self._model
        if self._version is not None:
            request.model_spec.version.value = self._version

    def _ask(self, method: Any, request: Any, timeout: float) -> Any:
        import grpc

        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            code = error.code()
            may_pass = code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
            raise ServingError(
                f"{self._server}: {one_line(error.details() or '')} ({code.name})",
                code.name,
                may_pass,
            ) from None


def _from_tensor(array: np.ndarray) -> Any:
    if array.dtype != object:
        return array

    def decoded(value: Any) -> Any:
        return [decoded(item) for item in value] if isinstance(value, list) else as_text(value)

    return decoded(array.tolist())
