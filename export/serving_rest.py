"""TensorFlow Serving over REST.

Requests are columns, `{"inputs": {name: values}}`: each name is sent once per request, not once per
row, an empty batch is possible, and outputs are named.
"""

import base64
import http.client
import json
import re
import urllib.parse
from typing import Any, TypeAlias

import numpy as np
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from bert_tf.system.printable import escaped
from bert_tf.system.server_headers import log_headers_briefly

# A TensorInfo, or a SignatureDef, in JSON.
Spec: TypeAlias = dict[str, Any]

PASSING = (429, 502, 503, 504)
FIRST_WAIT_SECONDS = 0.1  # Doubled with each retry, and up to as much again at random.
LONGEST_WAIT_SECONDS = 5.0
MAX_MESSAGE_LENGTH = 500


class ServingError(OSError):
    """A request without an answer, or with an error as the answer."""


class RestTransport:
    """HTTP with JSON on a connection that stays open; for one thread at a time.

    Args:
      server: "http://HOST:PORT".
      model: name of the model.
      version: version of the model; -1 for the one that the server chooses.
      timeout: seconds without a byte from the server after which an attempt ends.
      retries: maximum number of retries.
    """

    def __init__(self, server: str, model: str, version: int, timeout: float, retries: int) -> None:
        parts = urllib.parse.urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"server is {server!r}, expected http://HOST:PORT, usually with port 8501."
            )
        self._server = server
        self._timeout = timeout
        self._model_url = f"{server.rstrip('/')}/v1/models/{urllib.parse.quote(model, '')}"
        self._url = self._model_url + (f"/versions/{version}" if version >= 0 else "")
        log_headers_briefly()
        # Jitter, so that many clients do not return at once. No request changes the server, so a
        # POST may be repeated too.
        policy = Retry(
            retries,
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

    def status(self) -> list[dict[str, Any]]:
        versions = self._field(self._ask("GET", self._model_url), "model_version_status")
        if not isinstance(versions, list) or not all(map(_is_version, versions)):
            raise self._unexpected("versions", versions)
        return versions

    def signatures(self) -> dict[str, Spec]:
        answer = self._ask("GET", f"{self._url}/metadata")
        signatures = self._field(answer, "metadata", "signature_def", "signature_def")
        if not isinstance(signatures, dict) or not all(map(_is_signature, signatures.values())):
            raise self._unexpected("signatures", signatures)
        return signatures

    def predict(self, name: str, spec: Spec, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        columns = {key: values.tolist() for key, values in inputs.items()}
        request = {"signature_name": name, "inputs": columns}
        body = json.dumps(request, default=_write_bytes).encode()
        outputs = self._field(self._ask("POST", f"{self._url}:predict", body), "outputs")
        if len(spec["outputs"]) == 1:  # The server omits its name.
            return dict.fromkeys(spec["outputs"], outputs)
        return {key: self._field(outputs, key) for key in spec["outputs"]}

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

    def _field(self, answer: Any, *path: str) -> Any:
        """Returns a field of an answer, given as the names on the way to it."""
        found = answer
        for name in path:
            if not isinstance(found, dict) or name not in found:
                raise self._unexpected(name, answer)
            found = found[name]
        return found

    def _unexpected(self, name: str, value: object) -> ServingError:
        return ServingError(
            f"{self._server} sent no {one_line(name)} but {one_line(value)}; is this a REST port "
            "of TensorFlow Serving?"
        )


def _is_version(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("status", {}), dict)


def _is_signature(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    for part in ("inputs", "outputs"):
        specs = value.get(part, {})
        if not isinstance(specs, dict) or not all(map(_is_spec, specs.values())):
            return False
    return True


def _is_spec(value: object) -> bool:
    """Returns whether a value is a TensorInfo; sizes are numbers, written as strings."""
    if not isinstance(value, dict) or not isinstance(value.get("dtype"), str):
        return False
    shape = value.get("tensor_shape", {})
    axes = shape.get("dim", []) if isinstance(shape, dict) else None
    if not isinstance(axes, list) or not all(isinstance(axis, dict) for axis in axes):
        return False
    return all(re.fullmatch(r"-?\d{1,18}", str(axis.get("size", 0))) for axis in axes)


def _write_bytes(value: bytes) -> str | dict[str, str]:
    """Returns a string input for JSON: text, or base64 for bytes that are not UTF-8."""
    try:
        return value.decode("utf8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def one_line(message: object) -> str:
    """Returns a server's message as one short line, without the names of graph nodes.

    Control characters are escaped, because a terminal would execute them.
    """
    line = " ".join(re.sub(r"\[\[.*?\]\]", " ", str(message), flags=re.DOTALL).split())
    line = escaped(line)
    return line if len(line) <= MAX_MESSAGE_LENGTH else line[:MAX_MESSAGE_LENGTH] + "..."
