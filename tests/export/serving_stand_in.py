"""A stand-in for TensorFlow Serving, for tests: its REST and gRPC interfaces over a SavedModel.

    python -m tests.export.serving_stand_in --model_name=bert --model_base_path=models/bert

It is not TensorFlow Serving and proves nothing about it: it answers as that server's documentation
and sources say it answers, so that a client can be tested where the server cannot be had. Like the
server it takes the folders of the highest numbers below the base path, feeds and fetches the graph
by the names in the SignatureDef, and answers in threads. It has no batching, no warm-up, no labels,
no classify and regress, and takes columns only, not rows.
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
import threading
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

VERSIONS = 2  # As many stay loaded, as in export/serving/models.config.
NOT_FOUND = 5
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

    def __init__(self, base_paths: dict[str, pathlib.Path]) -> None:
        self.models = {
            name: {int(version.name): Servable(version) for version in find_versions(path)}
            for name, path in base_paths.items()
        }
        self.faults: collections.deque[int | str] = collections.deque()
        self.requests = self.connections = 0
        self.closed = threading.Event()
        self._rest = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _RestRequest)
        self._rest.stand_in = self
        threading.Thread(target=self._rest.serve_forever, args=(0.05,), daemon=True).start()
        self._grpc = grpc.server(concurrent.futures.ThreadPoolExecutor(64))
        service = _GrpcService(self)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, self._grpc)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(service, self._grpc)
        self.rest = f"http://127.0.0.1:{self._rest.server_port}"
        self.grpc = f"127.0.0.1:{self._grpc.add_insecure_port('127.0.0.1:0')}"
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
            raise Refusal(NOT_FOUND, f"Servable not found for request: {name}, {version}")
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
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for key, signature in self.find(name, version)[1].signatures.items():
            signatures.signature_def[key].CopyFrom(signature)
        return signatures

    def next_fault(self) -> int | str | None:
        self.requests += 1
        return self.faults.popleft() if self.faults else None


def find_versions(base_path: pathlib.Path) -> list[pathlib.Path]:
    """Returns the folders of the highest numbers, lowest first; other names are no versions."""
    folders = [path for path in base_path.iterdir() if re.fullmatch(r"[0-9]+", path.name)]
    return sorted(folders, key=lambda path: int(path.name))[-VERSIONS:]


class _RestRequest(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        self.stand_in = self.server.stand_in
        self.stand_in.connections += 1
        with contextlib.suppress(ConnectionError):  # The client has given up.
            super().handle()

    def do_GET(self) -> None:
        self._answer(self._read_model)

    def do_POST(self) -> None:
        # Bytes that are not UTF-8 go through as lone surrogates.
        body = self.rfile.read(int(self.headers["Content-Length"])).decode(
            "utf8", "surrogateescape"
        )
        fault = self.stand_in.next_fault()
        if isinstance(fault, int):
            self._send(fault, {"error": f"fault {fault}"})
        elif fault:
            self.close_connection = True
            self.stand_in.closed.wait(30 if fault == "hang" else 0)
        else:
            self._answer(lambda name, version, _: self._predict(name, version, json.loads(body)))

    def _answer(self, make) -> None:
        name, version, part = PATH.fullmatch(urllib.parse.unquote(self.path)).groups()
        try:
            self._send(200, make(name, int(version) if version else None, part))
        except Refusal as error:
            self._send(HTTP_STATUS.get(error.code, 500), {"error": str(error)})

    def _send(self, status: int, answer: dict) -> None:
        text = json.dumps(answer, ensure_ascii=False, default=_to_text)
        body = text.encode("utf8", "surrogateescape")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _read_model(self, name: str, version: int | None, part: str | None) -> dict:
        if not part:
            return _to_dict(self.stand_in.status(name))
        return {"metadata": {"signature_def": _to_dict(self.stand_in.signatures(name, version))}}

    def _predict(self, name: str, version: int | None, request: dict) -> dict:
        _, servable = self.stand_in.find(name, version)
        signature = request["signature_name"]
        specs = servable.signatures[signature].inputs
        inputs = {
            key: _to_array(values, tf.as_dtype(specs[key].dtype))
            for key, values in request["inputs"].items()
        }
        found = servable.predict(signature, inputs)
        outputs = {key: values.tolist() for key, values in found.items()}
        # One output alone comes without its name.
        return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}


def _to_dict(message) -> dict:
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _to_text(value: bytes) -> str:
    return value.decode("utf8", "surrogateescape")


def _to_array(values: list, dtype: tf.DType) -> np.ndarray:
    def to_bytes(value):
        is_coded = isinstance(value, dict)
        return base64.b64decode(value["b64"]) if is_coded else value.encode("utf8")

    array = np.array(values, dtype.as_numpy_dtype)
    return np.frompyfunc(to_bytes, 1, 1)(array) if dtype == tf.string else array


class _GrpcService(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
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
    options = parser.parse_args()
    with StandIn({options.model_name: options.model_base_path}) as stand_in:
        print(f"Stand-in at {stand_in.rest} and, for gRPC, {stand_in.grpc}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
