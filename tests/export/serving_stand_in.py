"""A stand-in for TensorFlow Serving, for tests: its REST and gRPC interfaces over a SavedModel.

    python -m tests.export.serving_stand_in --model_name=bert --model_base_path=models/bert

It is not TensorFlow Serving and proves nothing about it: it answers as that server's documentation
and sources say it answers, so that a client can be tested where the server cannot be had. Like the
server it takes the folder of the highest number below the base path, feeds and fetches the graph by
the names in the SignatureDef, and answers in threads. It has no batching, no warm-up, no labels,
and no classify and regress.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import http.server
import json
import pathlib
import re
import socket
import threading
import time
import urllib.parse

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  Its ops are in the server too.
from google.protobuf import json_format
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.export.stand_in_json import INVALID_ARGUMENT, Refusal, read_tensors, write_tensors

NOT_FOUND, FAILED_PRECONDITION, UNIMPLEMENTED = 5, 9, 12
# The status of HTTP for each code of TensorFlow.
HTTP_STATUS = {1: 499, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 400, 10: 409, 11: 400}
HTTP_STATUS |= {12: 501, 14: 503, 16: 401}
GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}
PREDICT_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?:(classify|regress|predict)")
STATUS_PATH = re.compile(r"/v1/models(?:/([^/:]+))?(?:/versions/(\d+))?(/metadata)?")


class Servable:
    """One version of a model, as a session on its graph."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            meta_graph = tf.compat.v1.saved_model.load(self._session, ["serve"], str(folder))
        self.signatures = dict(meta_graph.signature_def)

    def predict(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        signature = self.signatures[name]
        for key, values in inputs.items():
            expected = tf.as_dtype(signature.inputs[key].dtype)
            received = tf.string if values.dtype == object else tf.as_dtype(values.dtype)
            if received != expected:
                raise Refusal(
                    INVALID_ARGUMENT, f"{key} is of {received.name}, expected {expected.name}"
                )
        feeds = {signature.inputs[key].name: values for key, values in inputs.items()}
        fetches = {key: tensor.name for key, tensor in signature.outputs.items()}
        try:
            return self._session.run(fetches, feeds)
        except tf.errors.OpError as error:
            # Python adds where the graph was made; the server gives the message of below.
            message = getattr(error.__context__, "message", error.message)
            raise Refusal(error.error_code, message) from None
        except ValueError as error:
            raise Refusal(INVALID_ARGUMENT, str(error)) from None


class StandIn:
    """Serves models by name until closed, on free ports of this machine.

    `faults` is what the next predict requests meet instead of an answer, first to last: a status
    of HTTP, "close" (the connection is closed), "hang" (no answer until closed), or "drip" (the
    answer comes a byte at a time). gRPC knows "hang" and statuses that stand for a code.
    """

    def __init__(
        self,
        base_paths: dict[str, pathlib.Path],
        *,
        all_versions: bool = False,
        rest_port: int = 0,
        grpc_port: int = 0,
    ) -> None:
        self.models: dict[str, dict[int, Servable]] = {}
        for name, path in base_paths.items():
            versions = find_versions(path)
            chosen = versions if all_versions else versions[-1:]
            self.models[name] = {version: Servable(path / folder) for version, folder in chosen}
        self.faults: collections.deque[int | str] = collections.deque()
        self.requests = 0
        self.connections = 0
        self.closed = threading.Event()
        self._rest = _RestServer(("127.0.0.1", rest_port), _RestRequest)
        self._rest.stand_in = self
        threading.Thread(target=self._rest.serve_forever, args=(0.05,), daemon=True).start()
        self._grpc = grpc.server(concurrent.futures.ThreadPoolExecutor(64))
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            _Predictions(self), self._grpc
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(_Models(self), self._grpc)
        self.rest_port = self._rest.server_port
        self.grpc_port = self._grpc.add_insecure_port(f"127.0.0.1:{grpc_port}")
        self._grpc.start()

    @property
    def rest(self) -> str:
        return f"http://127.0.0.1:{self.rest_port}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def close(self) -> None:
        self.closed.set()
        self._rest.shutdown()
        self._rest.server_close()
        self._grpc.stop(None).wait()

    def __enter__(self) -> "StandIn":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def find(self, name: str, version: int | None) -> tuple[int, Servable]:
        versions = self.models.get(name, {})
        chosen = max(versions, default=None) if version is None else version
        if chosen not in versions:
            wanted = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise Refusal(NOT_FOUND, f"Servable not found for request: {wanted}")
        return chosen, versions[chosen]

    def status(self, name: str, version: int | None):
        response = get_model_status_pb2.GetModelStatusResponse()
        versions = [v for v in self.models.get(name, {}) if version in (None, v)]
        if not versions:
            wanted = "any versions" if version is None else f"version {version}"
            raise Refusal(NOT_FOUND, f"Could not find {wanted} of model {name}")
        for number in sorted(versions, reverse=True):
            row = response.model_version_status.add(version=number)
            row.state = get_model_status_pb2.ModelVersionStatus.AVAILABLE
            row.status.error_message = ""
        return response

    def metadata(self, name: str, version: int | None):
        chosen, servable = self.find(name, version)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = name
        response.model_spec.version.value = chosen
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for key, signature in servable.signatures.items():
            signatures.signature_def[key].CopyFrom(signature)
        response.metadata["signature_def"].Pack(signatures)
        return response, signatures

    def next_fault(self) -> int | str | None:
        self.requests += 1
        return self.faults.popleft() if self.faults else None


def find_versions(base_path: pathlib.Path) -> list[tuple[int, str]]:
    """Returns (number, folder) of the versions, lowest first; other names are no versions."""
    names = [path.name for path in pathlib.Path(base_path).iterdir() if path.is_dir()]
    return sorted((int(name), name) for name in names if re.fullmatch(r"[0-9]+", name))


class _RestServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    stand_in: StandIn

    def process_request(self, request, address) -> None:
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stand_in.connections += 1
        super().process_request(request, address)


class _RestRequest(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _RestServer

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # The client has given up.
            super().handle()

    def do_GET(self) -> None:
        self._answer(self._read_model)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.stand_in.next_fault()
        if fault == "close":
            self.close_connection = True
        elif fault == "hang":
            self.server.stand_in.closed.wait(30)
            self.close_connection = True
        elif isinstance(fault, int):
            self._send(fault, json.dumps({"error": f"fault {fault}"}))
        else:
            self._answer(lambda: self._predict(body), is_slow=fault == "drip")

    def _answer(self, make, is_slow: bool = False) -> None:
        try:
            status, text = 200, make()
        except Refusal as error:
            status, text = HTTP_STATUS.get(error.code, 500), json.dumps({"error": str(error)})
        self._send(status, text, is_slow)

    def _send(self, status: int, text: str, is_slow: bool = False) -> None:
        body = text.encode("utf8", "surrogateescape")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for index in range(len(body) if is_slow else 0):
            self.wfile.write(body[index : index + 1])
            self.server.stand_in.closed.wait(0.05)
        if not is_slow:
            self.wfile.write(body)

    def _match(self, pattern: re.Pattern) -> tuple[str, int | None, str]:
        path = urllib.parse.urlsplit(self.path).path
        found = pattern.fullmatch(path)
        if not found:
            raise Refusal(INVALID_ARGUMENT, f"Malformed request: {self.command} {path}")
        name, version, ending = found.groups()
        if not name:
            raise Refusal(INVALID_ARGUMENT, "Missing model name in request.")
        return urllib.parse.unquote(name), int(version) if version else None, ending or ""

    def _read_model(self) -> str:
        name, version, ending = self._match(STATUS_PATH)
        options = {
            "preserving_proto_field_name": True,
            "always_print_fields_with_no_presence": True,
        }
        if not ending:
            return json_format.MessageToJson(self.server.stand_in.status(name, version), **options)
        response, signatures = self.server.stand_in.metadata(name, version)
        spec = json_format.MessageToDict(response.model_spec, **options)
        definitions = json_format.MessageToDict(signatures, **options)
        return json.dumps({"model_spec": spec, "metadata": {"signature_def": definitions}})

    def _predict(self, body: bytes) -> str:
        name, version, method = self._match(PREDICT_PATH)
        if method != "predict":
            raise Refusal(UNIMPLEMENTED, f"the stand-in knows no {method}")
        try:
            request = json.loads(body.decode("utf8", "surrogateescape"))
        except (ValueError, RecursionError) as error:
            raise Refusal(INVALID_ARGUMENT, f"JSON Parse error: {error}") from None
        if not isinstance(request, dict):
            raise Refusal(INVALID_ARGUMENT, f"JSON Value: {request} Is not object")
        _, servable = self.server.stand_in.find(name, version)
        signature_name = request.get("signature_name", "serving_default")
        if signature_name not in servable.signatures:
            message = f'Serving signature name: "{signature_name}" not found in signature def'
            raise Refusal(INVALID_ARGUMENT, message)
        inputs, is_row = read_tensors(request, servable.signatures[signature_name].inputs)
        return write_tensors(servable.predict(signature_name, inputs), is_row)


class _Predictions(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, stand_in: StandIn) -> None:
        self._stand_in = stand_in

    def Predict(self, request, context):
        fault = self._stand_in.next_fault()
        if fault == "hang":
            self._stand_in.closed.wait(min(30, context.time_remaining() + 0.2))
        elif isinstance(fault, int):
            code = next(code for code, status in HTTP_STATUS.items() if status == fault)
            context.abort(GRPC_CODES[code], f"fault {fault}")
        return _answer(context, lambda: self._predict(request))

    def _predict(self, request):
        version, servable = self._stand_in.find(*_named(request))
        name = request.model_spec.signature_name or "serving_default"
        if name not in servable.signatures:
            raise Refusal(FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
        expected, received = set(servable.signatures[name].inputs), set(request.inputs)
        if expected != received:
            message = f"input size does not match signature: Sent extra: {received - expected}. "
            raise Refusal(
                INVALID_ARGUMENT, message + f"Missing but required: {expected - received}"
            )
        inputs = {key: tf.make_ndarray(proto) for key, proto in request.inputs.items()}
        response = predict_pb2.PredictResponse()
        response.model_spec.CopyFrom(request.model_spec)
        response.model_spec.version.value = version
        for key, values in servable.predict(name, inputs).items():
            kind = tf.string if values.dtype == object else values.dtype
            response.outputs[key].CopyFrom(tf.make_tensor_proto(values, kind, values.shape))
        return response

    def GetModelMetadata(self, request, context):
        if list(request.metadata_field) != ["signature_def"]:
            message = "GetModelMetadataRequest must specify at least one metadata_field"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
        return _answer(context, lambda: self._stand_in.metadata(*_named(request))[0])


class _Models(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, stand_in: StandIn) -> None:
        self._stand_in = stand_in

    def GetModelStatus(self, request, context):
        return _answer(context, lambda: self._stand_in.status(*_named(request)))


def _named(request) -> tuple[str, int | None]:
    spec = request.model_spec
    return spec.name, spec.version.value if spec.HasField("version") else None


def _answer(context, make):
    try:
        return make()
    except Refusal as error:
        context.abort(GRPC_CODES[error.code], str(error))


def main() -> None:
    parser = argparse.ArgumentParser(description="A stand-in for TensorFlow Serving.")
    parser.add_argument("--model_name", required=True)
    parser.add_argument("--model_base_path", type=pathlib.Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="Of gRPC; 0 for a free one.")
    parser.add_argument("--rest_api_port", type=int, default=0, help="0 for a free one.")
    options = parser.parse_args()
    base_paths = {options.model_name: options.model_base_path}
    with StandIn(base_paths, rest_port=options.rest_api_port, grpc_port=options.port) as stand_in:
        print(f"Stand-in at {stand_in.rest} and, for gRPC, {stand_in.grpc}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


if __name__ == "__main__":
    main()
