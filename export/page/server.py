"""The demo's web server: a page, its style and scripts, and the JSON API that they call.

    GET /                 the page
    GET /api/model        what the model is
    POST /api/answer      {"inputs": {"text": ["...", ...]}} -> {"outputs": {...}, ...}
    POST /api/attention   {"inputs": {"text": ["..."]}} -> {"pieces": [...], ...}

What goes wrong is answered as {"error": "one clear line"}. Only this page may call the API: a
request must name the server by an address or by its own name, so that no foreign name can be bent
to it (DNS rebinding), and must carry JSON, which other sites' pages may not send unasked.
"""

import contextlib
import errno
import http.server
import ipaddress
import json
import pathlib
import socket
import socketserver
from http import HTTPStatus
from typing import Any, Protocol

from absl import logging

PAGE_FOLDER = pathlib.Path(__file__).parent / "static"
HTML, CSS, SCRIPT = (f"text/{name}; charset=utf-8" for name in ("html", "css", "javascript"))
FILES = {
    "/": ("index.html", HTML),
    "/page.css": ("page.css", CSS),
    **{f"/{name}.js": (f"{name}.js", SCRIPT) for name in ("page", "answers", "attention", "dom")},
}
JSON = "application/json"
MAX_BODY_BYTES = 1 << 20
SECONDS_FOR_REQUEST, SECONDS_TO_LINGER = 30, 0.5
LINGER_BYTES = 1 << 16
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Answering(Protocol):
    """What the server asks: see `DemoModel`."""

    def card(self) -> dict[str, Any]: ...

    def answer(self, inputs: Any) -> dict[str, Any]: ...

    def attention(self, inputs: Any) -> dict[str, Any]: ...


class RequestError(ValueError):
    """A request that is refused, with the HTTP status that says so."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class DemoServer(http.server.ThreadingHTTPServer):
    """Binds to its address at once, and answers once it has a model.

    Args:
      host: name or address to listen at.
      port: 0 for a free one.

    Attributes:
      model: set it before `serve_forever`.

    Raises:
      OSError: if the address is no address of this machine, or the port is in use.
    """

    daemon_threads = True
    model: Answering

    def __init__(self, host: str = "127.0.0.1", port: int = 8000) -> None:
        self.host = host
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), DemoRequest)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                message = f"Port {port} of {host} is in use; give another --port, or 0 for any."
            elif error.errno == errno.EACCES:
                message = f"Port {port} is the system's; give a --port above 1023, or 0 for any."
            else:
                message = f"Cannot listen at {host}: {error.strerror or error}."
            raise OSError(message) from None

    def server_bind(self) -> None:
        """Binds without asking a name server for this machine's name, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.host, self.server_address[1]

    @property
    def url(self) -> str:
        """The address of the page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_port}/"


class DemoRequest(http.server.BaseHTTPRequestHandler):
    """One connection of a browser."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "bert_tf", ""
    timeout = SECONDS_FOR_REQUEST
    server: DemoServer

    def do_GET(self) -> None:
        self._reply(self._get)

    def do_POST(self) -> None:
        self._reply(self._post)

    def _get(self) -> tuple[bytes, str]:
        path = self.path.partition("?")[0]
        if path == "/api/model":
            return as_bytes(self.server.model.card()), JSON
        if path not in FILES:
            raise RequestError(HTTPStatus.NOT_FOUND, f"There is nothing at {path[:100]}.")
        name, content_type = FILES[path]
        return (PAGE_FOLDER / name).read_bytes(), content_type

    def _post(self) -> tuple[bytes, str]:
        model = self.server.model
        functions = {"/api/answer": model.answer, "/api/attention": model.attention}
        if self.path not in functions:
            raise RequestError(HTTPStatus.NOT_FOUND, f"There is nothing at {self.path[:100]}.")
        request = self._read_json()
        return as_bytes(functions[self.path](request.get("inputs"))), JSON

    def _reply(self, answer: Any) -> None:
        try:
            self._check_origin()
            body, content_type = answer()
            self._send(HTTPStatus.OK, body, content_type)
        except RequestError as error:
            self.send_error(error.status, str(error))
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except ValueError as error:
            self.send_error(HTTPStatus.BAD_REQUEST, str(error))
        except Exception:
            logging.exception("A request failed.")
            message = "The program failed at this; its terminal says why."
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, message)

    def _check_origin(self) -> None:
        """Refuses what comes from another site's page."""
        host = self.headers.get("Host", "")
        if not is_own_name(host, self.server.host):
            raise RequestError(
                HTTPStatus.FORBIDDEN,
                f"This server is not {host[:100]!r}; open {self.server.url} instead.",
            )
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            raise RequestError(HTTPStatus.FORBIDDEN, "Only this server's own page may ask.")

    def _read_json(self) -> dict[str, Any]:
        """Reads the body, one JSON object."""
        if self.headers.get_content_type() != JSON:
            raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Expected {JSON}.")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "Expected a Content-Length.")
        if len(length) > 9 or int(length) > MAX_BODY_BYTES:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The request has {length[:20]} bytes; expected at most {MAX_BODY_BYTES}.",
            )
        body = self.rfile.read(int(length))
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            raise RequestError(HTTPStatus.BAD_REQUEST, "The request is not JSON.") from None
        if not isinstance(request, dict):
            raise RequestError(HTTPStatus.BAD_REQUEST, 'Expected {"inputs": {...}}.')
        return request

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Sends an error as JSON; the connection ends, since its body may be unread."""
        self.close_connection = True
        text = message or HTTPStatus(code).phrase
        self._send(HTTPStatus(code), as_bytes({"error": text}), JSON)
        self._linger()

    def _linger(self) -> None:
        """Reads what is still on its way: a client that is cut off does not see the answer."""
        self.connection.settimeout(SECONDS_TO_LINGER)
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            for _ in range(2 * MAX_BODY_BYTES // LINGER_BYTES):
                if not self.rfile.read1(LINGER_BYTES):
                    return

    def _send(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        logging.debug("%s %s", self.client_address[0], format % args)


def as_bytes(value: dict[str, Any]) -> bytes:
    """Returns a JSON object as UTF-8."""
    return json.dumps(value, allow_nan=False).encode("utf8")


def is_own_name(host: str, own: str) -> bool:
    """Returns whether a Host header names this server: by an address, localhost, or its own name.

    A name that is looked up may belong to another site, and point here all the same; an address
    is not looked up.

    >>> [is_own_name(h, "127.0.0.1") for h in ("127.0.0.1:8000", "[::1]", "localhost:1", "a.com")]
    [True, True, True, False]
    """
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name = host
    elif not (port.isascii() and port.isdigit()):
        return False
    if name.lower() in ("localhost", own.lower()):
        return True
    is_bracketed = name.startswith("[") and name.endswith("]")
    try:
        address = ipaddress.ip_address(name[1:-1] if is_bracketed else name)
    except ValueError:
        return False
    return (address.version == 6) == is_bracketed


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
