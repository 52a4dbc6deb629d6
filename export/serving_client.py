"""Queries a model behind TensorFlow Serving, over REST or gRPC, with one text or a file.

    python -m export.serving_client --server=http://127.0.0.1:8501 --model=bert --text='Fine!'
    python -m export.serving_client --server=127.0.0.1:8500 --grpc --model=bert --text='Fine!'

--input_file=texts.txt --output_file=answers.jsonl asks for a file of texts, --batch_size at once.

A text file holds one text per line. A .jsonl file holds one JSON object per line with the inputs of
the signature by name, `{"question": "...", "context": "..."}`; bytes are written `{"b64": "..."}`.
Answers are JSON objects, one per line, in the order of the texts. Without any text the program
describes the model at the server: its versions, and its signatures with their inputs and outputs.

From Python:

    with ServingClient("http://127.0.0.1:8501", "bert") as client:
        client.predict({"text": ["A fine film.", "A dull one."]})["label"]
"""

import dataclasses
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

import numpy as np
from absl import logging

from bert_tf.config import Config, config_flags, option
from bert_tf.system.extras import install_hint
from bert_tf.system.files import atomic_write
from bert_tf.system.printable import json_line, show
from export.client.protocol import (
    ServingError,
    Spec,
    check_outputs,
    is_number,
    one_line,
    shape_of,
    to_array,
)
from export.client.rest import RestTransport
from export.client.rows import Row, as_columns, as_plain, read_input

if TYPE_CHECKING:
    from export.client.grpc_transport import GrpcTransport

TEXT_INPUTS = ("text", "text_b", "question", "context")
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
PROGRESS_SECONDS = 5.0

Answer = TypeVar("Answer")


@dataclasses.dataclass(frozen=True)
class ClientConfig(Config):
    """Flags of this program."""

    server: str = option("", "http://HOST:PORT of the REST API; with --grpc HOST:PORT of gRPC.")
    model: str = option("", "Name of the model, as in models.config.")
    version: int = option(-1, "Version of the model; -1 for the one the server chooses.", lower=-1)
    signature: str = option("serving_default", "Which of the model's signatures to call.")
    text: str = option("", "A text, for models that take single texts or pairs.")
    text_b: str = option("", "The second text of a pair.")
    question: str = option("", "A question, for models that answer questions.")
    context: str = option("", "The text that holds the answer.")
    input_file: str = option("", "Texts, one per line, or .jsonl with the inputs by name.")
    output_file: str = option("", "File for the answers as .jsonl; empty: the terminal.")
    batch_size: int = option(32, "Texts per request, at most the server's max_batch_size.", lower=1)
    timeout: float = option(10.0, "Timeout of one attempt, in seconds.", lower=0.001)
    deadline: float = option(
        60.0, "Timeout of a whole call with all attempts, in seconds.", lower=0.001
    )
    retries: int = option(3, "Maximum number of retries after temporary errors.", lower=0)
    grpc: bool = option(False, "Use gRPC; needs tensorflow-serving-api.")


class ClientOptions(TypedDict, total=False):
    """Fields of `ClientConfig` that a `ServingClient` uses."""

    version: int
    signature: str
    timeout: float
    deadline: float
    retries: int
    grpc: bool


class ServingClient:
    """A model behind TensorFlow Serving; not thread-safe.

    Retries after a lost connection, a timeout, and errors that may pass (HTTP 429, 502, 503, 504;
    gRPC UNAVAILABLE, DEADLINE_EXCEEDED). The wait about doubles with each attempt and is partly
    random, so that many clients do not return at once. Other errors are raised at once. No request
    changes the server, so all are safe to repeat.

    Args:
      server: "http://HOST:PORT", or "HOST:PORT" for gRPC.
      model: name of the model at the server.
      options: see `ClientOptions`.

    Raises:
      ValueError: if the address has another form, or gRPC's package is missing.
    """

    def __init__(self, server: str, model: str, **options: Unpack[ClientOptions]) -> None:
        self._config = ClientConfig(server, model, **options)
        transport = _grpc_transport() if self._config.grpc else RestTransport
        self._transport = transport(server, model, self._config.version)
        self._known: dict[str, Spec] = {}  # signatures by name, asked for with the first request

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def status(self) -> list[dict[str, Any]]:
        """Returns `version`, `state` and `status` of each version, as the server reports them."""
        return self._try(self._transport.status, self._end())

    def metadata(self) -> dict[str, Spec]:
        """Returns the signatures of the model by name, each a SignatureDef in JSON."""
        return self._signatures(self._end())

    def find_inputs(self) -> list[str]:
        """Returns the names of the signature's inputs."""
        return sorted(self._signature(self._end())["inputs"])

    def find_numbers(self) -> list[str]:
        """Returns the names of the inputs that are a single number for all rows of a request."""
        inputs = self._signature(self._end())["inputs"]
        return sorted(name for name, spec in inputs.items() if is_number(spec))

    def predict(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the outputs of one batch, in one request.

        Args:
          inputs: by name, lists or arrays whose first axis is the batch: str or bytes for string
            inputs, numbers in rows of equal length for others; or a single number for all rows, if
            the signature takes one.

        Returns:
          Outputs by name; numbers as arrays, strings as nested lists of str.

        Raises:
          ValueError: if the inputs are not those of the signature.
          ServingError: if the server cannot be asked or refuses.
        """
        end = self._end()
        signature = self._signature(end)
        name = self._config.signature
        if set(inputs) != set(signature["inputs"]):
            raise ValueError(
                f"Signature {name} of model {self._config.model} takes "
                f"{_listed(signature['inputs'])}; received {_listed(inputs) or 'nothing'}."
            )
        arrays = {
            key: to_array(key, inputs[key], spec)
            for key, spec in sorted(signature["inputs"].items())
        }
        # An input that is a single number has no batch.
        sizes = {key: len(inputs[key]) for key, array in arrays.items() if np.ndim(array)}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"The inputs are of different sizes: {sizes}; expected one batch.")
        try:
            outputs = self._try(
                lambda seconds: self._transport.predict(name, signature, arrays, seconds), end
            )
        except ServingError:
            # The server may have changed to another version, with other signatures.
            self._known = {}
            raise
        num_rows = min(sizes.values(), default=1)
        return check_outputs(outputs, signature, num_rows, self._config.server)

    def _end(self) -> float:
        return time.monotonic() + self._config.deadline

    def _signature(self, end: float) -> Spec:
        self._known = self._known or self._signatures(end)
        name = self._config.signature
        if name not in self._known:
            raise ValueError(
                f"Model {self._config.model} has no signature {name}; it has "
                f"{_listed(self._known)}."
            )
        return self._known[name]

    def _signatures(self, end: float) -> dict[str, Spec]:
        signatures = self._try(self._transport.metadata, end)
        # TensorFlow lists __saved_model_init_op among the signatures.
        return {name: signatures[name] for name in sorted(signatures) if name[:2] != "__"}

    def _try(self, ask: Callable[[float], Answer], end: float) -> Answer:
        """Calls `ask(seconds)` until it succeeds, or no attempts or no time are left."""
        tries = 0
        wait = FIRST_WAIT_SECONDS
        while True:
            tries += 1
            try:
                # At least a millisecond, because a timeout must be above 0.
                return ask(max(min(self._config.timeout, end - time.monotonic()), 0.001))
            except ServingError as error:
                pause = wait * random.uniform(0.5, 1.0)
                is_last = tries > self._config.retries or time.monotonic() + pause >= end
                if error.may_pass and not is_last:
                    logging.debug("%s Trying again in %.1f s.", error, pause)
                    time.sleep(pause)
                    wait = min(2 * wait, LONGEST_WAIT_SECONDS)
                    continue
                more = f" Gave up after {tries} tries." if tries > 1 else ""
                if error.code == "NOT_FOUND":
                    more += " Compare --model with the names in models.config, or drop --version."
                raise ServingError(f"{error}{more}", error.code, error.may_pass) from None


def _listed(names: dict[str, Any]) -> str:
    return one_line(" and ".join(sorted(names)))


def _grpc_transport() -> "type[GrpcTransport]":
    try:
        from export.client.grpc_transport import GrpcTransport
    except ImportError as error:
        raise ValueError(
            f"--grpc needs tensorflow-serving-api ({error}); {install_hint('serving')}."
        ) from None
    return GrpcTransport


def answer_rows(
    client: ServingClient, rows: list[Row], batch_size: int
) -> Iterator[dict[str, Any]]:
    """Yields the outputs of each row, in order; asks for `batch_size` of them at once.

    Raises:
      ValueError: naming the rows, if their inputs are not those of the signature.
      ServingError: naming the rows, if the server cannot be asked or refuses.
    """
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        try:
            columns = as_columns(batch, client.find_inputs(), client.find_numbers())
            outputs = client.predict(columns)
        except (ServingError, ValueError) as error:
            if len(rows) > 1:  # The rows of a file; a single row needs no number.
                error.args = (f"Rows {start + 1} to {start + len(batch)}: {error}",)
            raise
        plain = {name: as_plain(values) for name, values in outputs.items()}
        for index in range(len(batch)):
            yield {name: values[index] for name, values in plain.items()}


def main(_: list[str]) -> None:
    config = config_flags.from_flags(ClientConfig)
    given = config_flags.given(ClientConfig)
    texts = {name: given[name] for name in TEXT_INPUTS if name in given}
    if not config.server or not config.model:
        raise ValueError("Give the address as --server and the model's name as --model.")
    if texts and config.input_file:
        raise ValueError(f"Give either --{next(iter(texts))} or --input_file, not both.")
    ask(config, texts)


def ask(config: ClientConfig, texts: dict[str, str]) -> None:
    """Answers a row or a file, or describes the model.

    Args:
      config: the flags.
      texts: inputs of one row by name; {} for a file or the description.
    """
    with ServingClient(**config.to_dict()) as client:
        if not texts and not config.input_file:
            show(describe(client))
            return
        rows: list[Row] = read_input(config.input_file) if config.input_file else [texts]
        lines = (
            json_line(answer) + "\n" for answer in answer_rows(client, rows, config.batch_size)
        )
        if not config.output_file:
            sys.stdout.writelines(lines)
            return
        with atomic_write(config.output_file) as file:
            for number, line in enumerate(lines, 1):
                file.write(line)
                logging.log_every_n_seconds(
                    logging.INFO, "%d of %d texts.", PROGRESS_SECONDS, number, len(rows)
                )


def describe(client: ServingClient) -> str:
    """Returns the server's description of the model as text."""
    lines = []
    for version in client.status():
        message = version.get("status", {}).get("error_message", "")
        lines.append(f"version {version.get('version')}: {version.get('state')} {message}")
    for name, signature in client.metadata().items():
        takes = _describe_tensors(signature["inputs"])
        gives = _describe_tensors(signature["outputs"])
        lines.append(f"{name}: takes {takes}; gives {gives}")
    return "\n".join(map(one_line, lines))


def _describe_tensors(specs: dict[str, Spec]) -> str:
    """Returns names, types and shapes of inputs or outputs, such as `score float [-1]`."""
    tensors = []
    for name, spec in sorted(specs.items()):
        kind = spec["dtype"].removeprefix("DT_").lower()
        tensors.append(f"{name} {kind} {shape_of(spec)}")
    return ", ".join(tensors)


if __name__ == "__main__":
    # Defined here and not on import, because a program that uses the class may have flags of the
    # same names.
    config_flags.define_flags(ClientConfig)
    config_flags.run(main)
