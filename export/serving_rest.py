"""TensorFlow Serving over REST.

Requests are columns, `{"inputs": {name: values}}`: each name is sent once per request, not once per
row, an empty batch is possible, and outputs are named.
"""

import base64
import http.client
import json
import re
import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from bert_tf.system.fetching import log_headers_briefly
from bert_tf.system.printable import escaped

if TYPE_CHECKING:
    from export.serving_client import ClientConfig

# What code that reads an answer raises if the answer has another form.
ODD_ANSWER = (AttributeError, LookupError, TypeError, ValueError)
PASSING = (429, 502, 503, 504)
FIRST_WAIT_SECONDS = 0.1  # Doubled with each retry, and up to as much again at random.
LONGEST_WAIT_SECONDS = 5.0
MAX_MESSAGE_LENGTH = 500

Found = TypeVar("Found")


class ServingError(OSError):
    """A request without an answer, or with an error as the answer."""


class Tensor(NamedTuple):
    """An input or an output of a signature."""

    kind: str  # "string", "float", "int32" and so on.
    sizes: list[int] | None  # -1 is any size; None any shape.

    def __str__(self) -> str:
        return f"{self.kind} {self.sizes or []}"


class Signature(NamedTuple):
    """The inputs and outputs of a function of the model, by name."""

    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]


class RestTransport:
    """HTTP with JSON on a connection that stays open; for one thread at a time.

    The timeout is that between two bytes.
    """

    def __init__(self, config: "ClientConfig") -> None:
        server = config.server
        parts = urllib.parse.urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"server is {server!r}, expected http://HOST:PORT, usually with port 8501."
            )
        self._server = server
        self._timeout = config.timeout
        self._model_url = f"{server.rstrip('/')}/v1/models/{urllib.parse.quote(config.model, '')}"
        version = f"/versions/{config.version}" if config.version >= 0 else ""
        self._url = self._model_url + version
        log_headers_briefly()
        # Jitter, so that many clients do not return at once. No request changes the server, so a
        # POST may be repeated too.
        policy = Retry(
            config.retries,
            status_forcelist=PASSING,
            allowed_methods=None,
            redirect=0,
            backoff_factor=FIRST_WAIT_SECONDS,
            backoff_jitter=FIRST_WAIT_SECONDS,
            backoff_max=LONGEST_WAIT_SECONDS,
            raise_on_status=False,
            raise_on_redirect=False,
        )
        self._session = requests.Session()
        self._session.mount(f"{parts.scheme}://", HTTPAdapter(max_retries=policy))
        self.close = self._session.close

    def versions(self) -> list[str]:
        return self._read(self._ask("GET", self._model_url), read_versions)

    def signatures(self) -> dict[str, Signature]:
        answer = self._ask("GET", f"{self._url}/metadata")
        return self._read(answer, lambda found: read_signatures(found["metadata"]["signature_def"]))

    def predict(self, name: str, spec: Signature, inputs: dict[str, Any]) -> dict[str, Any]:
        request = {"signature_name": name, "inputs": inputs}
        body = json.dumps(request, default=_as_json).encode()
        answer = self._ask("POST", f"{self._url}:predict", body)
        outputs = self._read(answer, lambda found: found["outputs"])
        # The server omits the name of a single output.
        if len(spec.outputs) == 1:
            return dict.fromkeys(spec.outputs, outputs)
        return outputs

    def _ask(self, method: str, url: str, body: bytes | None = None) -> object:
        """Sends a request and returns the answer's JSON.

        Raises:
          ServingError: if there is no answer, or if it is an error.
        """
        try:
            response = self._session.request(
                method, url, data=body, timeout=self._timeout, allow_redirects=False
            )
        except requests.RequestException as error:
            raise ServingError(
                f"{self._server} gave no answer: {one_line(error)}. Is the server running, and is "
                "this its REST port?"
            ) from None
        try:
            answer = response.json()
        except (ValueError, RecursionError):
            answer = response.text
        if response.status_code == http.client.OK:
            return answer
        said = answer.get("error") if isinstance(answer, dict) else answer
        message = f"{self._server}: {one_line(said)} (HTTP {response.status_code})."
        if response.status_code == http.client.NOT_FOUND:
            message += " Compare --model with the names in models.config, or drop --version."
        raise ServingError(message)

    def _read(self, answer: object, read: Callable[[Any], Found]) -> Found:
        """Returns what `read` finds in an answer.

        Raises:
          ServingError: if the answer has another form.
        """
        try:
            return read(answer)
        except ODD_ANSWER:
            raise ServingError(
                f"{self._server} answered {one_line(answer)}; is this a REST port of TensorFlow "
                "Serving?"
            ) from None


def read_versions(answer: dict[str, Any]) -> list[str]:
    """Returns a line on each version in a GetModelStatusResponse, given as JSON."""
    lines = []
    for version in answer["model_version_status"]:
        error = version.get("status", {}).get("error_message", "")
        lines.append(f"version {version.get('version')}: {version.get('state')} {error}")
    return lines


def read_signatures(answer: dict[str, Any]) -> dict[str, Signature]:
    """Returns the signatures in a SignatureDefMap, given as JSON, by name."""
    return {
        name: Signature(
            # Protocol buffers leave out empty fields.
            _read_tensors(signature.get("inputs", {})),
            _read_tensors(signature.get("outputs", {})),
        )
        for name, signature in sorted(answer["signature_def"].items())
        # TensorFlow lists __saved_model_init_op among the signatures.
        if not name.startswith("__")
    }


def _read_tensors(infos: dict[str, Any]) -> dict[str, Tensor]:
    """Returns TensorInfos by name."""
    tensors = {}
    for name, info in sorted(infos.items()):
        shape = info.get("tensor_shape", {"unknown_rank": True})
        # JSON has sizes as strings, because they have 64 bits.
        sizes = [int(str(axis.get("size", 0))) for axis in shape.get("dim", [])]
        kind = info["dtype"].removeprefix("DT_").lower()
        tensors[name] = Tensor(kind, None if shape.get("unknown_rank") else sizes)
    return tensors


def _as_json(value: object) -> Any:
    """Returns bytes and arrays in the server's form of JSON."""
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return np.asarray(value).tolist()


def one_line(message: object) -> str:
    """Returns a server's message as one short line, without the names of graph nodes.

    Control characters are escaped, because a terminal would execute them.
    """
    line = " ".join(re.sub(r"\[\[.*?\]\]", " ", str(message), flags=re.DOTALL).split())
    line = escaped(line)
    if len(line) <= MAX_MESSAGE_LENGTH:
        return line
    return line[:MAX_MESSAGE_LENGTH] + "..."
