"""The demo's web server, on Starlette and uvicorn: the page, and the JSON API that it calls.

    GET /                 the page
    GET /api/model        metadata of the model
    POST /api/answer      {"inputs": {"text": ["...", ...]}} -> {"outputs": {...}, ...}
    POST /api/attention   {"inputs": {"text": ["..."]}} -> {"pieces": [...], ...}
    POST /api/rewrite     {"inputs": {"text": ["..."]}} -> {"text": "..."}

Errors are answered as {"error": "one line"}. Only this page may call the API: a request must name
the server by an address or by its name, so that no other name can be redirected to it (DNS
rebinding), and must contain JSON, which pages of other sites may not send without permission.
"""

import asyncio
import ipaddress
import json
import mimetypes
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn
from absl import logging
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from bert_tf.system.printable import escaped

if TYPE_CHECKING:
    from export.page.model import DemoModel

PAGE_FOLDER = pathlib.Path(__file__).parent / "static"
MAX_BODY_BYTES = 1 << 20
MAX_CONNECTIONS = 256
SECONDS_OF_KEEP_ALIVE = 15
SECONDS_TO_END = 2
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# The default type depends on the machine, and browsers run no script with another type.
mimetypes.add_type("text/javascript", ".js")


def make_server(model: "DemoModel", host: str) -> uvicorn.Server:
    """Returns the server of a model, whose `run(sockets=[...])` serves until a signal."""
    # Concurrent calls would only slow each other down, so they are answered in order of arrival.
    turn = asyncio.Lock()

    async def card(_: Request) -> Response:
        return JSONResponse(model.card())

    def asks(function: Callable[[Any], dict[str, Any]]) -> Callable:
        async def endpoint(request: Request) -> Response:
            inputs = await read_inputs(request)
            async with turn:
                # The client may have left while it waited.
                if await request.is_disconnected():
                    raise ClientDisconnect
                return JSONResponse(await run_in_threadpool(function, inputs))

        return endpoint

    errors = (HTTPException, ValueError, ClientDisconnect, Exception)
    app = Starlette(
        routes=[
            Route("/api/model", card),
            Route("/api/answer", asks(model.answer), methods=["POST"]),
            Route("/api/attention", asks(model.attention), methods=["POST"]),
            Route("/api/rewrite", asks(model.rewrite), methods=["POST"]),
            Mount("/", StaticFiles(directory=PAGE_FOLDER, html=True)),
        ],
        exception_handlers=dict.fromkeys(errors, tell_error),
    )
    config = uvicorn.Config(
        own_page_only(app, host),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # `tell_error` logs failures; a lost connection is not a failure.
        server_header=False,
        headers=list(HEADERS.items()),
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=SECONDS_OF_KEEP_ALIVE,
        timeout_graceful_shutdown=SECONDS_TO_END,
    )
    return uvicorn.Server(config)


async def read_inputs(request: Request) -> Any:
    """Returns the inputs in the body of a request."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "Expected application/json.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"Expected at most {MAX_BODY_BYTES} bytes.")
    try:
        return json.loads(body)["inputs"]
    except (ValueError, RecursionError, LookupError, TypeError):
        raise HTTPException(400, 'Expected JSON: {"inputs": {...}}.') from None


async def tell_error(request: Request, error: Exception) -> Response:
    """Answers an exception with one line; logs it if it is a fault of the program."""
    if isinstance(error, ClientDisconnect):
        return Response()  # The client is gone.
    if isinstance(error, HTTPException):
        return refusal(error.status_code, error.detail)
    if isinstance(error, ValueError):
        return refusal(400, str(error))
    logging.error("%s failed.", request.scope["path"], exc_info=error)
    return refusal(500, "The program failed; its terminal shows the reason.")


def refusal(status: int, message: str) -> Response:
    """Returns an error in the form that the page and scripts read."""
    return JSONResponse({"error": escaped(message)}, status)


def own_page_only(app: ASGIApp, own: str) -> ASGIApp:
    """Returns an application that rejects requests from pages of other sites."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        answer = app
        host = headers.get("host", "")
        if not is_own_name(host, own):
            answer = refusal(403, f"This server is not {host[:100]!r}; open it as {own}.")
        elif headers.get("origin", f"http://{host}") != f"http://{host}":
            answer = refusal(403, "Only the page of this server may call it.")
        await answer(scope, receive, send)

    return guarded


def is_own_name(host: str, own: str) -> bool:
    """Returns whether a Host header names this server: by an address, localhost, or its name.

    A name may belong to another site and still resolve to this server, but an address is not
    resolved.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in ("localhost", own.lower()) or bool(ipaddress.ip_address(name))
    except ValueError:
        return False
