"""TensorFlow Serving over REST.

Requests are columnar, `{"inputs": {name: values}}`: each name is sent once and not once a row, and
outputs come under their names. Where a signature has one output alone the server leaves its name
out; the metadata give it back.
"""

import base64
import functools
import http.client
import io
import json
import time
import urllib.parse
from typing import Any

import numpy as np
import requests
import urllib3
from requests.adapters import HTTPAdapter

from export.client import protocol
from export.client.protocol import ServingError, Signature, TensorSpec, as_text, one_line

# The codes of TensorFlow and gRPC as TensorFlow Serving turns them into HTTP, and 502 of a proxy.
HTTP_CODES = {
    **{400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"},
    **{501: "UNIMPLEMENTED", 502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"},
}
PASSING = (429, 502, 503, 504)


class _TimedAdapter(HTTPAdapter):
    """Ends answers at `end`, of time.monotonic().

    A socket's timeout, which is that of requests, is for one read: a server that sends a byte of
    headers or body now and then outlives it.
    """

    end = 0.0

    def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*arguments, **options)
        pool.ConnectionCls = functools.partial(self._connect, type(pool).ConnectionCls)
        return pool

    def _connect(self, make: Any, **options: Any) -> Any:
        connection = make(**options)
        connection.response_class = self._respond
        return connection

    def _respond(self, sock: Any, **options: Any) -> Any:
        response: Any = http.client.HTTPResponse(sock, **options)
        response.fp = io.BufferedReader(_TimedReader(self, sock, response.fp.detach()))
        return response


class _TimedReader(io.RawIOBase):
    """The bytes of an answer, each read with what is left of the adapter's time."""

    def __init__(self, adapter: _TimedAdapter, sock: Any, raw: Any) -> None:
        self._adapter, self._sock, self._raw = adapter, sock, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._adapter.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class RestTransport:
    """HTTP with JSON on a connection that stays open; for one thread at a time."""

    def __init__(self, server: str, model: str, version: int | None) -> None:
        parts = urllib.parse.urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"server is {server!r}, expected http://HOST:PORT, as a rule port 8501."
            )
        self._server = server
        self._model_url = f"{server.rstrip('/')}/v1/models/{urllib.parse.quote(model, '')}"
        self._url = self._model_url + (f"/versions/{version}" if version is not None else "")
        self._session, self._adapter = requests.Session(), _TimedAdapter()
        self._session.mount(f"{parts.scheme}://", self._adapter)
        self._session.headers["Accept-Encoding"] = "identity"
        self.close = self._session.close

    def status(self, seconds: float) -> dict[str, Any]:
        return self._ask("GET", self._model_url, seconds)

    def metadata(self, seconds: float) -> dict[str, Any]:
        answer = self._ask("GET", f"{self._url}/metadata", seconds)
        try:
            return answer["metadata"]["signature_def"]["signature_def"]
        except (KeyError, TypeError):
            message = f"{self._server} gave no signatures: {one_line(answer)}"
            raise ServingError(message, "INTERNAL") from None

    def predict(
        self, name: str, signature: Signature, inputs: dict[str, np.ndarray], seconds: float
    ) -> dict[str, Any]:
        columns = {key: _to_json(values.tolist()) for key, values in inputs.items()}
        body = json.dumps({"signature_name": name, "inputs": columns}).encode()
        answer = self._ask("POST", f"{self._url}:predict", seconds, body)
        outputs = answer.get("outputs")
        if len(signature.outputs) == 1:
            outputs = dict.fromkeys(signature.outputs, outputs)
        try:
            return {key: _from_json(outputs[key], spec) for key, spec in signature.outputs.items()}
        except (KeyError, TypeError, ValueError):
            message = f"{self._server} gave other outputs than its metadata say: {one_line(answer)}"
            raise ServingError(message, "INTERNAL") from None

    def _ask(self, method: str, url: str, seconds: float, body: bytes | None = None) -> Any:
        """Sends a request and returns its answer, both within the time given."""
        self._adapter.end = time.monotonic() + seconds
        try:
            with self._session.request(
                method, url, data=body, timeout=seconds, stream=True, allow_redirects=False
            ) as response:
                return self._read(response)
        except requests.RequestException as error:
            if isinstance(error, requests.Timeout) or time.monotonic() >= self._adapter.end:
                message = f"gave no answer within {seconds:.3g} s; raise --timeout or send smaller"
                message, code = f"{message} batches.", "DEADLINE_EXCEEDED"
            else:
                message = f"cannot be reached: {_reason(error)}. Is the server running, and is this"
                message, code = f"{message} its REST port?", "UNAVAILABLE"
            raise ServingError(f"{self._server} {message}", code, may_pass=True) from None

    def _read(self, response: requests.Response) -> dict[str, Any]:
        content = bytearray()
        for part in response.iter_content(1 << 16):
            content += part
            if len(content) > protocol.MAX_ANSWER_BYTES:
                message = f"{self._server} sends more than {protocol.MAX_ANSWER_BYTES:,} bytes; "
                raise ServingError(f"{message}send smaller batches.", "RESOURCE_EXHAUSTED")
        text = content.decode("utf8", "surrogateescape")
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        status = response.status_code
        if status != http.client.OK:
            said = answer.get("error", text) if isinstance(answer, dict) else text
            raise ServingError(
                f"{self._server}: {one_line(said) or 'no message'} (HTTP {status})",
                HTTP_CODES.get(status, "UNKNOWN"),
                may_pass=status in PASSING,
            )
        if not isinstance(answer, dict):
            message = f"{self._server} gave no JSON object but {text[:80]!r}; is this a REST port "
            raise ServingError(f"{message}of TensorFlow Serving?", "INTERNAL")
        return answer


def _reason(error: BaseException) -> str:
    """Returns what happened, below the layers of requests and urllib3."""
    layers = (requests.RequestException, urllib3.exceptions.HTTPError)
    while isinstance(error, layers) and error.__context__:
        error = error.__context__
    return one_line(error)


def _to_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    text = as_text(value) if isinstance(value, bytes) else value
    return {"b64": base64.b64encode(text).decode()} if isinstance(text, bytes) else text


def _from_json(values: Any, spec: TensorSpec) -> Any:
    """Returns an output as an array of its type, strings as nested lists."""
    if spec.dtype != "DT_STRING":
        return np.array(values, protocol.TYPES[spec.dtype])
    if isinstance(values, list):
        return [_from_json(item, spec) for item in values]
    is_coded = isinstance(values, dict)
    return as_text(
        base64.b64decode(values["b64"]) if is_coded else values.encode("utf8", "surrogateescape")
    )
