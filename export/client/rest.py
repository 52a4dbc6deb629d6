"""TensorFlow Serving over REST, with the standard library and NumPy alone.

Requests are columnar, `{"inputs": {name: values}}`: an empty batch is possible, each name is sent
once and not once a row, and outputs come under their names. Where a signature has one output alone
the server leaves its name out; the metadata give it back.
"""

import base64
import http.client
import json
import time
import urllib.parse
from typing import Any

import numpy as np

from export.client.protocol import TYPES, ServingError, Signature, TensorSpec, as_text, one_line

# The codes of TensorFlow and gRPC as TensorFlow Serving turns them into HTTP, and 502 of a proxy.
HTTP_CODES = {
    400: "INVALID_ARGUMENT",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
PASSING = (429, 502, 503, 504)


class RestTransport:
    """HTTP with JSON on one connection that stays open; for one thread at a time."""

    def __init__(self, server: str, model: str, version: int | None) -> None:
        parts = urllib.parse.urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"server is {server!r}, expected http://HOST:PORT, as a rule port 8501."
            )
        kind = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        self._connection = kind[parts.scheme](parts.hostname, parts.port)
        self._server = server
        self._model_path = f"{parts.path.rstrip('/')}/v1/models/{urllib.parse.quote(model, '')}"
        self._path = self._model_path + (f"/versions/{version}" if version is not None else "")

    def close(self) -> None:
        self._connection.close()

    def status(self, timeout: float) -> dict[str, Any]:
        return self._ask("GET", self._model_path, None, timeout)

    def metadata(self, timeout: float) -> dict[str, Any]:
        answer = self._ask("GET", f"{self._path}/metadata", None, timeout)
        try:
            return answer["metadata"]["signature_def"]["signature_def"]
        except (KeyError, TypeError):
            raise ServingError(f"{self._server} gave no signatures: {answer}", "INTERNAL") from None

    def predict(
        self, name: str, signature: Signature, inputs: dict[str, np.ndarray], timeout: float
    ) -> dict[str, Any]:
        columns = {key: _to_json(values.tolist()) for key, values in inputs.items()}
        body = {"signature_name": name, "inputs": columns}
        coded = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        answer = self._ask("POST", f"{self._path}:predict", coded, timeout)
        outputs: Any = answer.get("outputs")
        if len(signature.outputs) == 1:
            outputs = dict.fromkeys(signature.outputs, outputs)
        try:
            return {key: _from_json(outputs[key], spec) for key, spec in signature.outputs.items()}
        except (KeyError, TypeError, ValueError):
            raise ServingError(
                f"{self._server} gave other outputs than its metadata say: {str(answer)[:200]}",
                "INTERNAL",
            ) from None

    def _ask(self, method: str, path: str, body: bytes | None, timeout: float) -> dict[str, Any]:
        """Sends a request and returns its answer, both within the time given."""
        end = time.monotonic() + timeout
        was_open = self._connection.sock is not None
        try:
            try:
                status, text = self._exchange(method, path, body, end)
            except (ConnectionError, http.client.HTTPException):
                self._connection.close()
                if not was_open:
                    raise
                # The server had closed a connection that lay idle: that is no failure of its.
                status, text = self._exchange(method, path, body, end)
        except TimeoutError:
            self._connection.close()
            raise ServingError(
                f"{self._server} gave no answer within {timeout:.3g} s; raise --timeout or send "
                "smaller batches.",
                "DEADLINE_EXCEEDED",
                may_pass=True,
            ) from None
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ServingError(
                f"{self._server} cannot be reached: {one_line(str(error))}. Is the server running, "
                "and is this its REST port?",
                "UNAVAILABLE",
                may_pass=True,
            ) from None
        return self._read_answer(status, text)

    def _exchange(self, method: str, path: str, body: bytes | None, end: float) -> tuple[int, str]:
        connection = self._connection
        connection.timeout = _time_left(end)
        if connection.sock:
            connection.sock.settimeout(_time_left(end))
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request(method, path, body, headers)
        sock = connection.sock
        with connection.getresponse() as response:
            parts = []
            # Read in parts: a server that sends a byte now and then must not outlive the time.
            while True:
                sock.settimeout(_time_left(end))
                part = response.read1(1 << 16)
                if not part:
                    break
                parts.append(part)
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
        return response.status, b"".join(parts).decode("utf8", "surrogateescape")

    def _read_answer(self, status: int, text: str) -> dict[str, Any]:
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if status == http.client.OK:
            if isinstance(answer, dict):
                return answer
            raise ServingError(
                f"{self._server} gave no JSON object but {text[:80]!r}; is this a REST port of "
                "TensorFlow Serving?",
                "INTERNAL",
            )
        said = answer.get("error", text) if isinstance(answer, dict) else text
        message = one_line(str(said)) or http.client.responses.get(status, "no message")
        raise ServingError(
            f"{self._server}: {message} (HTTP {status})",
            HTTP_CODES.get(status, "UNKNOWN"),
            may_pass=status in PASSING,
        )


def _time_left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _to_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, bytes):
        text = as_text(value)
        return text if isinstance(text, str) else {"b64": base64.b64encode(value).decode()}
    return value


def _from_json(values: Any, spec: TensorSpec) -> Any:
    """Returns an output as an array of its type, strings as nested lists."""
    if spec.dtype in TYPES:
        array = np.array(values, TYPES[spec.dtype])
        if not array.size and spec.shape:  # JSON's [] tells nothing of the other axes.
            array = array.reshape([0, *(max(size, 0) for size in spec.shape[1:])])
        return array
    if isinstance(values, list):
        return [_from_json(item, spec) for item in values]
    if isinstance(values, str):
        return as_text(values.encode("utf8", "surrogateescape"))
    if isinstance(values, dict) and set(values) == {"b64"}:
        return as_text(base64.b64decode(values["b64"]))
    return values
