"""Asks a model behind TensorFlow Serving, over REST or gRPC, for one text or for a file of them.

    python -m export.serving_client --server=http://127.0.0.1:8501 --model=bert --text='Fine!'
    python -m export.serving_client --server=127.0.0.1:8500 --grpc --model=bert --text='Fine!'

--input_file=texts.txt --output_file=answers.jsonl asks for a file of texts, --batch_size at once.

A text file holds one text a line. A .jsonl file holds one JSON object a line with the inputs of the
signature by name, `{"question": "...", "context": "..."}`; bytes are written `{"b64": "..."}`.
Answers are JSON objects, one a line, in the order of the texts. Without any text the program prints
what the server says of the model: its versions, its signatures, their inputs and outputs.

From Python:

    with ServingClient("http://127.0.0.1:8501", "bert") as client:
        client.predict({"text": ["A fine film.", "A dull one."]})["label"]
"""

import dataclasses
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self, TypeVar

from absl import logging

from bert_tf import config_flags
from bert_tf.config import Config, option
from bert_tf.files import atomic_write
from export.client.protocol import (
    ServingError,
    Signature,
    as_array,
    empty_output,
    one_line,
    printable,
    read_signatures,
)
from export.client.rest import RestTransport
from export.client.rows import Row, as_columns, as_plain, read_input

TEXT_INPUTS = ("text", "text_b", "question", "context")
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 5.0
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
    input_file: str = option("", "Texts, one a line, or .jsonl with the inputs by name.")
    output_file: str = option("", "Where answers go as .jsonl; empty for the terminal.")
    batch_size: int = option(32, "Texts a request, at most the server's max_batch_size.", lower=1)
    timeout: float = option(10.0, "Seconds for one try of a request.", lower=0.001)
    deadline: float = option(60.0, "Seconds for a whole call, all its tries.", lower=0.001)
    retries: int = option(3, "Tries after the first, where another may succeed.", lower=0)
    grpc: bool = option(False, "Use gRPC; needs tensorflow-serving-api.")


class VersionStatus(NamedTuple):
    """A version of a model: START, LOADING, AVAILABLE, UNLOADING or END, and why."""

    version: int
    state: str
    error: str


class ServingClient:
    """A model behind TensorFlow Serving; for one thread at a time.

    Tries again after a lost connection, no answer in time, and the answers that mean "later"
    (HTTP 429, 502, 503, 504; gRPC UNAVAILABLE, DEADLINE_EXCEEDED), each time after about twice the
    wait, with some chance in it so that many clients do not come back at once. Other errors are
    raised as they come. All requests are safe to repeat: none changes the server.

    Args:
      server: "http://HOST:PORT", or "HOST:PORT" for gRPC.
      model: its name at the server.
      version: None for the one the server chooses, as a rule the highest.
      signature: which of the model's signatures `predict` calls.
      timeout: seconds for one try.
      deadline: seconds for a whole call: all its requests and tries.
      retries: tries of a request after the first.
      grpc: use gRPC.

    Raises:
      ValueError: if the address is of another form, or gRPC's package is missing.
    """

    def __init__(
        self,
        server: str,
        model: str,
        *,
        version: int | None = None,
        signature: str = "serving_default",
        timeout: float = 10.0,
        deadline: float = 60.0,
        retries: int = 3,
        grpc: bool = False,
    ) -> None:
        kind = _grpc_transport() if grpc else RestTransport
        self._transport = kind(server, model, version)
        self._server, self._model, self._signature = server, model, signature
        self._timeout, self._deadline, self._retries = timeout, deadline, retries
        self._known: dict[str, Signature] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def status(self) -> list[VersionStatus]:
        """Returns the state of each version of the model.

        Raises:
          ServingError: if the server cannot be asked or knows no such model.
        """
        return _rows(self._try(self._end(), self._transport.status))

    def metadata(self) -> dict[str, Signature]:
        """Returns the signatures of the model by name.

        Raises:
          ServingError: if the server cannot be asked or serves no such model or version.
        """
        return self._metadata(self._end())

    def predict(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the outputs of one batch, in one request.

        An empty batch needs no request: its outputs are empty.

        Args:
          inputs: by name, each a list or an array whose first axis is the batch's: str or bytes
            for string inputs, numbers in rows of one length for others.

        Returns:
          Outputs by name; numbers as arrays, strings as nested lists of str, or of bytes where they
          are not UTF-8.

        Raises:
          ValueError: if the inputs are not those of the signature.
          ServingError: if the server cannot be asked or refuses.
        """
        end = self._end()
        signature = self._find_signature(end)
        if set(inputs) != set(signature.inputs):
            raise ValueError(
                f"Signature {self._signature} of model {self._model} takes "
                f"{_listed(signature.inputs)}; received {' and '.join(inputs) or 'nothing'}."
            )
        sizes = {name: len(values) for name, values in inputs.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"The inputs are of different sizes: {sizes}; expected one batch.")
        if not any(sizes.values()):
            return {name: empty_output(spec) for name, spec in signature.outputs.items()}
        arrays = {
            name: as_array(name, inputs[name], spec) for name, spec in signature.inputs.items()
        }
        try:
            return self._try(
                end,
                lambda seconds: self._transport.predict(
                    self._signature, signature, arrays, seconds
                ),
            )
        except ServingError:
            self._known = {}  # Another version may be served by now, with other signatures.
            raise

    def find_inputs(self) -> list[str]:
        """Returns the names of the signature's inputs."""
        return list(self._find_signature(self._end()).inputs)

    def _end(self) -> float:
        return time.monotonic() + self._deadline

    def _find_signature(self, end: float) -> Signature:
        self._known = self._known or self._metadata(end)
        if self._signature not in self._known:
            raise ValueError(
                f"Model {self._model} has no signature {self._signature}; it has "
                f"{_listed(self._known)}."
            )
        return self._known[self._signature]

    def _metadata(self, end: float) -> dict[str, Signature]:
        return read_signatures(self._try(end, self._transport.metadata))

    def _try(self, end: float, ask: Callable[[float], Answer]) -> Answer:
        """Calls `ask(seconds)` until it succeeds, fails for good, or tries or time are used up."""
        tries, wait = 0, FIRST_WAIT_SECONDS
        while True:
            tries += 1
            try:
                return ask(max(min(self._timeout, end - time.monotonic()), 0.001))
            except ServingError as error:
                pause = wait * random.uniform(0.5, 1.0)
                if error.may_pass and tries <= self._retries and time.monotonic() + pause < end:
                    logging.debug("%s Trying again in %.1f s.", error, pause)
                    time.sleep(pause)
                    wait = min(2 * wait, LONGEST_WAIT_SECONDS)
                    continue
                more = f" Gave up after {tries} tries." if tries > 1 else ""
                if error.code == "NOT_FOUND":
                    more += self._what_there_is(end)
                raise ServingError(f"{error}{more}", error.code, error.may_pass) from None

    def _what_there_is(self, end: float) -> str:
        """Returns a sentence on what the server has instead of what it did not find."""
        try:
            answer = self._transport.status(max(end - time.monotonic(), 0.001))
        except ServingError:
            return (
                f". There is no model {self._model} at {self._server}: compare --model with the "
                "names in models.config."
            )
        found = ", ".join(f"{row.version} {row.state} {row.error}".strip() for row in _rows(answer))
        return f". What {self._server} has of model {self._model}: version {found}."


def _rows(answer: dict[str, Any]) -> list[VersionStatus]:
    """Reads a GetModelStatusResponse in JSON."""
    return sorted(
        VersionStatus(
            int(row.get("version", 0)),
            row.get("state", "UNKNOWN"),
            one_line(row.get("status", {}).get("error_message", "")),
        )
        for row in answer.get("model_version_status", [])
    )


def _listed(names: Iterable[str]) -> str:
    return printable(" and ".join(names))


def _grpc_transport() -> Any:
    try:
        from export.client.grpc_transport import GrpcTransport
    except ImportError as error:
        raise ValueError(
            f"--grpc needs tensorflow-serving-api ({error}); install it with "
            "`pip install '.[serving]'` in the folder of the project."
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
            outputs = client.predict(as_columns(batch, client.find_inputs()))
            sizes = {name: len(values) for name, values in outputs.items()}
            if set(sizes.values()) != {len(batch)}:
                raise ServingError(f"{len(batch)} rows gave {sizes} answers.", "INTERNAL")
        except (ServingError, ValueError) as error:
            if len(rows) > 1:  # of a file
                error.args = (f"Rows {start + 1} to {start + len(batch)}: {error}",)
            raise
        columns = {name: as_plain(values) for name, values in outputs.items()}
        for index in range(len(batch)):
            yield {name: values[index] for name, values in columns.items()}


def main(_: list[str]) -> None:
    config = config_flags.from_flags(ClientConfig)
    given = config_flags.given(ClientConfig)
    texts = {name: given[name] for name in TEXT_INPUTS if name in given}
    if not config.server or not config.model:
        raise ValueError("Give --server and --model: where to ask, and which model.")
    if texts and config.input_file:
        raise ValueError(f"Give either --{next(iter(texts))} or --input_file, not both.")
    ask(config, texts)


def ask(config: ClientConfig, texts: dict[str, str]) -> None:
    """Does what the flags say; `texts` are the inputs of one row, by name."""
    with ServingClient(
        config.server,
        config.model,
        version=None if config.version < 0 else config.version,
        signature=config.signature,
        timeout=config.timeout,
        deadline=config.deadline,
        retries=config.retries,
        grpc=config.grpc,
    ) as client:
        if not texts and not config.input_file:
            print(describe(client))
            return
        rows: list[Row] = read_input(config.input_file) if config.input_file else [texts]
        lines = (
            json.dumps(answer, ensure_ascii=False) + "\n"
            for answer in answer_rows(client, rows, config.batch_size)
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
    """Returns what the server says of the model, for reading."""
    lines = [f"version {row.version}: {row.state} {row.error}".strip() for row in client.status()]
    for name, signature in client.metadata().items():
        takes, gives = (
            ", ".join(
                f"{key} {spec.dtype.removeprefix('DT_').lower()} {list(spec.shape or ())}"
                for key, spec in specs.items()
            )
            for specs in signature
        )
        lines.append(f"{name}: takes {takes}; gives {gives}")
    return "\n".join(map(printable, lines))


if __name__ == "__main__":
    # Not when the module is imported: who uses the class may have flags of the same names.
    config_flags.define_flags(ClientConfig)
    config_flags.run(main)
