"""A stand-in for TensorFlow Serving, for tests: its REST and gRPC interfaces over a SavedModel.

    python -m tests.export.serving_stand_in --model_name=bert --model_base_path=models/bert

It is not TensorFlow Serving and proves nothing about it: it answers as that server's documentation
and sources say it answers, so that a client can be tested where the server cannot be had. Like the
server it takes the folder of the highest number below the base path, feeds and fetches the graph by
the names in the SignatureDef, and answers in threads. It has no batching, no warm-up, no labels, no
classify and regress, and takes columns only, not rows.
"""

import argparse
import base64
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

INVALID_ARGUMENT, NOT_FOUND = 3, 5
# The status of HTTP for each code of TensorFlow.
HTTP_STATUS = {3: 400, 4: 504, 5: 404, 8: 429, 12: 501, 14: 503}
GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}
PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(/metadata|:predict)?")


class Refusal(Exception):
    """An error with a code of TensorFlow."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Servable:
    """One version of a model, as a session on its graph."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            meta_graph = tf.compat.v1.saved_model.load(self._session, ["serve"], str(folder))
        self.signatures = dict(meta_graph.signature_def)

    def predict(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        signature = self.signatures[name]
        if set(inputs) != set(signature.inputs):
            message = f"inputs are {sorted(inputs)}, expected {sorted(signature.inputs)}"
            raise Refusal(INVALID_ARGUMENT, message)
        for key, values in inputs.items():
            expected = tf.as_dtype(signature.inputs[key].dtype)
            if tf.as_dtype(values.dtype) != expected:
                raise Refusal(INVALID_ARGUMENT, f"{key} is {values.dtype}, not {expected.name}")
        feeds = {signature.inputs[key].name: values for key, values in inputs.items()}
        fetches = {key: tensor.name for key, tensor in signature.outputs.items()}
        try:
            return self._session.run(fetches, feeds)
        except tf.errors.OpError as error:
            # Python adds where the graph was made; the server gives the message of below.
            message = getattr(error.__context__, "message", error.message)
            raise Refusal(error.error_code, message) from None


class StandIn:
    """Serves models by name until closed, on free ports of this machine.

    `faults` is what the next predict requests meet instead of an answer, first to last: a status
    of HTTP, "close" (the connection is closed), or "hang" (no answer until closed). gRPC knows
    "hang" and statuses that stand for a code.
    """

    def __init__(
        self, base_paths: dict[str, pathlib.Path], *, all_versions: bool = False, ports=(0, 0)
    ) -> None:
        self.models: dict[str, dict[int, Servable]] = {}
        for name, path in base_paths.items():
            versions = find_versions(path)
            chosen = versions if all_versions else versions[-1:]
            self.models[name] = {version: Servable(path / folder) for version, folder in chosen}
        self.faults: collections.deque[int | str] = collections.deque()
        self.requests = self.connections = 0
        self.closed = threading.Event()
        self._rest = _RestServer(("127.0.0.1", ports[0]), _RestRequest)
        self._rest.stand_in = self
        threading.Thread(target=self._rest.serve_forever, args=(0.05,), daemon=True).start()
        self._grpc = grpc.server(concurrent.futures.ThreadPoolExecutor(64))
        service = _GrpcService(self)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, self._grpc)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(service, self._grpc)
        self.rest = f"http://127.0.0.1:{self._rest.server_port}"
        self.grpc = f"127.0.0.1:{self._grpc.add_insecure_port(f'127.0.0.1:{ports[1]}')}"
        self._grpc.start()

    def __enter__(self) -> "StandIn":
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self._rest.shutdown()
        self._rest.server_close()
        self._grpc.stop(None).wait()

    def find(self, name: str, version: int | None) -> tuple[int, Servable]:
        versions = self.models.get(name, {})
        chosen = max(versions, default=None) if version is None else version
        if chosen not in versions:
            wanted = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise Refusal(NOT_FOUND, f"Servable not found for request: {wanted}")
        return chosen, versions[chosen]

    def status(self, name: str):
        if not self.models.get(name):
            raise Refusal(NOT_FOUND, f"Could not find any versions of model {name}")
        response = get_model_status_pb2.GetModelStatusResponse()
        for number in sorted(self.models[name], reverse=True):
            row = response.model_version_status.add(version=number)
            row.state = get_model_status_pb2.ModelVersionStatus.AVAILABLE
            row.status.error_message = ""
        return response

    def signatures(self, name: str, version: int | None):
        _, servable = self.find(name, version)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for key, signature in servable.signatures.items():
            signatures.signature_def[key].CopyFrom(signature)
        return signatures

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
        self._answer(lambda name, version, part: self._read_model(name, version, part))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.stand_in.next_fault()
        if isinstance(fault, int):
            self._send(fault, {"error": f"fault {fault}"})
        elif fault:
            self.close_connection = True
            self.server.stand_in.closed.wait(30 if fault == "hang" else 0)
        else:
            self._answer(lambda name, version, _: self._predict(name, version, body))

    def _answer(self, make) -> None:
        try:
            found = PATH.fullmatch(urllib.parse.unquote(self.path))
            if not found:
                raise Refusal(INVALID_ARGUMENT, f"Malformed request: {self.command} {self.path}")
            name, version, part = found.groups()
            self._send(200, make(name, int(version) if version else None, part))
        except Refusal as error:
            self._send(HTTP_STATUS.get(error.code, 500), {"error": str(error)})

    def _send(self, status: int, answer: dict) -> None:
        body = json.dumps(answer, ensure_ascii=False).encode("utf8", "surrogateescape")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _read_model(self, name: str, version: int | None, part: str | None) -> dict:
        options = {
            "preserving_proto_field_name": True,
            "always_print_fields_with_no_presence": True,
        }
        if not part:
            return json_format.MessageToDict(self.server.stand_in.status(name), **options)
        signatures = self.server.stand_in.signatures(name, version)
        return {"metadata": {"signature_def": json_format.MessageToDict(signatures, **options)}}

    def _predict(self, name: str, version: int | None, body: bytes) -> dict:
        request = json.loads(body.decode("utf8", "surrogateescape"))
        _, servable = self.server.stand_in.find(name, version)
        signature = request.get("signature_name", "serving_default")
        specs = servable.signatures[signature].inputs
        inputs = {
            key: _to_array(values, tf.as_dtype(specs[key].dtype))
            for key, values in request["inputs"].items()
        }
        outputs = {
            key: _to_json(values, key.endswith("_bytes"))
            for key, values in servable.predict(signature, inputs).items()
        }
        # One output alone comes without its name.
        return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}


def _to_array(values, dtype: tf.DType) -> np.ndarray:
    def to_bytes(value):
        if isinstance(value, list):
            return [to_bytes(item) for item in value]
        if isinstance(value, dict):
            return base64.b64decode(value["b64"], validate=True)
        return value.encode("utf8", "surrogateescape")

    if dtype == tf.string:
        return np.array(to_bytes(values), object)
    return np.array(values, dtype.as_numpy_dtype)


def _to_json(values: np.ndarray, is_coded: bool):
    def to_text(value):
        if isinstance(value, list):
            return [to_text(item) for item in value]
        if is_coded:
            return {"b64": base64.b64encode(value).decode()}
        return value.decode("utf8", "surrogateescape")

    if values.dtype == object:
        return to_text(values.tolist())
    if values.dtype == np.float32:  # As few digits as give the same number again.
        return values.astype(str).astype(np.float64).tolist()
    return values.tolist()


class _GrpcService:
    """PredictionService and ModelService."""

    def __init__(self, stand_in: StandIn) -> None:
        self._stand_in = stand_in

    def __getattr__(self, name: str):  # Classify and others that the stand-in has not.
        return lambda _, context: context.abort(grpc.StatusCode.UNIMPLEMENTED, name)

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
        inputs = {key: tf.make_ndarray(proto) for key, proto in request.inputs.items()}
        response = predict_pb2.PredictResponse()
        response.model_spec.CopyFrom(request.model_spec)
        response.model_spec.version.value = version
        for key, values in servable.predict(request.model_spec.signature_name, inputs).items():
            kind = tf.string if values.dtype == object else values.dtype
            response.outputs[key].CopyFrom(tf.make_tensor_proto(values, kind, values.shape))
        return response

    def GetModelMetadata(self, request, context):
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        signatures = _answer(context, lambda: self._stand_in.signatures(*_named(request)))
        response.metadata["signature_def"].Pack(signatures)
        return response

    def GetModelStatus(self, request, context):
        return _answer(context, lambda: self._stand_in.status(request.model_spec.name))


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
    with StandIn(base_paths, ports=(options.rest_api_port, options.port)) as stand_in:
        print(f"Stand-in at {stand_in.rest} and, for gRPC, {stand_in.grpc}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


if __name__ == "__main__":
    main()
