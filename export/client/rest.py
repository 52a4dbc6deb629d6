"""TensorFlow Serving over REST.

Requests are columnar, `{"inputs": {name: values}}`: each name is sent once per request, not once
per row, and outputs are named. The server omits the name of a signature's only output; the metadata
provide it.
"""

import base64
import functools
import http.client
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

import numpy as np
import requests
import urllib3
from requests.adapters import HTTPAdapter

from bert_tf.system.server_headers import log_headers_briefly
from export.client import protocol
from export.client.protocol import ServingError, Spec, one_line

# gRPC's codes of the HTTP statuses that TensorFlow Serving sends; 502 comes from a proxy.
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


class _Adapter(HTTPAdapter):
    """Keeps the socket of a response, so that another thread can end it.

    The timeout of requests limits a single read. A server that sends a byte of the headers or the
    body now and then never exceeds it.
    """

    _socket: socket.socket | None = None

    def cut(self) -> None:
        """Ends the response that is being read."""
        try:
            # The base class's method also works for the socket of TLS.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # type: ignore[arg-type]
        except (OSError, TypeError):
            pass  # The socket is closed already, or not there yet.

    # requests and urllib3 have no public way to the socket of a response, so their classes are
    # replaced from the pool down to the response.
    def get_connection_with_tls_context(
        self, *arguments: Any, **options: Any
    ) -> urllib3.HTTPConnectionPool:
        pool: Any = super().get_connection_with_tls_context(*arguments, **options)
        pool.ConnectionCls = functools.partial(self._connect, type(pool).ConnectionCls)
        return pool

    def _connect(
        self, make: Callable[..., http.client.HTTPConnection], **options: Any
    ) -> http.client.HTTPConnection:
        connection = make(**options)
        connection.response_class = self._respond  # type: ignore[assignment]
        return connection

    def _respond(self, sock: socket.socket, **options: Any) -> http.client.HTTPResponse:
        self._socket = sock
        return http.client.HTTPResponse(sock, **options)


class RestTransport:
    """HTTP with JSON on a connection that stays open; for one thread at a time."""

    def __init__(self, server: str, model: str, version: int) -> None:
        parts = urllib.parse.urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"server is {server!r}, expected http://HOST:PORT, usually with port 8501."
            )
        self._server = server
        self._model_url = f"{server.rstrip('/')}/v1/models/{urllib.parse.quote(model, '')}"
        self._url = self._model_url + (f"/versions/{version}" if version >= 0 else "")
        log_headers_briefly()
        self._session = requests.Session()
        self._adapter = _Adapter()
        self._session.mount(f"{parts.scheme}://", self._adapter)
        # Uncompressed, so that an answer takes no more memory than was received.
        self._session.headers["Accept-Encoding"] = "identity"
        self.close = self._session.close

    def status(self, seconds: float) -> list[dict[str, Any]]:
        return protocol.check_versions(self._ask("GET", self._model_url, seconds), self._server)

    def metadata(self, seconds: float) -> dict[str, Spec]:
        answer = self._ask("GET", f"{self._url}/metadata", seconds)
        try:
            signatures = answer["metadata"]["signature_def"]["signature_def"]
        except (KeyError, TypeError):
            message = f"{self._server} gave no signatures: {one_line(answer)}"
            raise ServingError(message, "INTERNAL") from None
        return protocol.check_signatures(signatures, self._server)

    def predict(
        self, name: str, signature: Spec, inputs: dict[str, np.ndarray], seconds: float
    ) -> dict[str, Any]:
        columns = {key: values.tolist() for key, values in inputs.items()}
        request = {"signature_name": name, "inputs": columns}
        body = json.dumps(request, default=_write_bytes).encode()
        answer = self._ask("POST", f"{self._url}:predict", seconds, body)
        outputs = answer.get("outputs")
        specs = signature["outputs"]
        if len(specs) == 1:  # The server omits its name.
            outputs = dict.fromkeys(specs, outputs)
        if not isinstance(outputs, dict):
            message = f"{self._server} returned unexpected outputs: {one_line(answer)}"
            raise ServingError(message, "INTERNAL")
        return outputs

    def _ask(
        self, method: str, url: str, seconds: float, body: bytes | None = None
    ) -> dict[str, Any]:
        """Sends a request and returns the answer, both within `seconds`."""
        end = time.monotonic() + seconds
        # `timeout` limits each read, the timer all of them.
        timer = threading.Timer(seconds, self._adapter.cut)
        timer.start()
        try:
            with self._session.request(
                method, url, data=body, timeout=seconds, stream=True, allow_redirects=False
            ) as response:
                return self._read(response, end)
        except requests.RequestException as error:
            # A response that was cut off fails in various ways, so the clock decides.
            if isinstance(error, requests.Timeout) or time.monotonic() >= end:
                code = "DEADLINE_EXCEEDED"
                message = (
                    f"gave no answer within {seconds:.3g} s; raise --timeout or send smaller "
                    "batches."
                )
            else:
                code = "UNAVAILABLE"
                message = (
                    f"cannot be reached: {_reason(error)}. Is the server running, and is this its "
                    "REST port?"
                )
            raise ServingError(f"{self._server} {message}", code, may_pass=True) from None
        finally:
            timer.cancel()

    def _read(self, response: requests.Response, end: float) -> dict[str, Any]:
        content = bytearray()
        for part in response.iter_content(1 << 16):
            content += part
            if len(content) > protocol.MAX_ANSWER_BYTES:
                message = f"{self._server} sends more than {protocol.MAX_ANSWER_BYTES:,} bytes; "
                raise ServingError(f"{message}send smaller batches.", "RESOURCE_EXHAUSTED")
        if time.monotonic() >= end:
            raise requests.Timeout  # An answer that was cut off may look complete.
        text = content.decode("utf8", "replace")
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
    """Returns the cause of an error, below the wrappers of requests and urllib3."""
    layers = (requests.RequestException, urllib3.exceptions.HTTPError)
    while isinstance(error, layers) and error.__context__:
        error = error.__context__
    return one_line(error)


def _write_bytes(value: bytes) -> str | dict[str, str]:
    """Returns a string input for JSON: text, or base64 for bytes that are not UTF-8."""
    try:
        return value.decode("utf8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}
