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

import base64
import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from absl import logging

from bert_tf.config import Config, config_flags, option
from bert_tf.system.extras import install_hint
from bert_tf.system.files import atomic_write, read_lines
from bert_tf.system.printable import json_line, show
from export.serving_rest import (
    ODD_ANSWER,
    RestTransport,
    ServingError,
    Signature,
    Tensor,
    one_line,
)

if TYPE_CHECKING:
    from export.serving_grpc import GrpcTransport

# The inputs of one row by name, or its only input.
Row = dict[str, Any] | str
TEXT_INPUTS = ("text", "text_b", "question", "context")
# Types of the models that this project exports; NumPy chooses the others.
DTYPES: dict[str, Any] = {"float": np.float32, "int32": np.int32, "int64": np.int64}
PROGRESS_SECONDS = 5.0


def read_input(path: str) -> list[Row]:
    """Reads a file of texts: strings, or for .jsonl objects of inputs by name.

    Raises:
      ValueError: naming the line that is not a JSON object.
    """
    lines = [line.removesuffix("\r") for line in read_lines(path)]
    # An empty file has one empty line.
    if lines == [""]:
        return []
    if pathlib.Path(path).suffix != ".jsonl":
        return list(lines)
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line, object_hook=_read_bytes)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number} is not JSON: {error}.") from None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: expected an object, received {line[:80]}.")
        rows.append(row)
    return rows


def _read_bytes(value: dict[str, Any]) -> Any:
    if set(value) == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    return value


def as_columns(rows: list[Row], inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Returns the inputs of a batch by name.

    Args:
      rows: rows of one batch; a plain text is the only input.
      inputs: those of the signature; an input without axes is a number for the whole batch.

    Raises:
      ValueError: if a row has other inputs than the first, or another number for the batch.
    """
    only = min(inputs, default="")
    named = [{only: row} if isinstance(row, str) else row for row in rows]
    columns: dict[str, Any] = {name: [row.get(name) for row in named] for name in named[0]}
    if odd := [row for row in named if row.keys() != columns.keys()]:
        raise ValueError(f"inputs are {' and '.join(columns)}, but then {' and '.join(odd[0])}.")
    for name in columns:
        if name in inputs and inputs[name].sizes == []:
            first, *others = columns[name]
            if any(other != first for other in others):
                raise ValueError(
                    f"{name} is one number for all rows of a request; received {columns[name]}. "
                    "Give --batch_size=1, or the same number in all."
                )
            columns[name] = first
    return columns


def as_plain(values: object) -> Any:
    """Returns an output as nested lists for JSON; texts are already lists."""
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype == np.float32:
        # 0.1, not 0.10000000149011612: the shortest digits that give the same float32.
        values = values.astype(str).astype(float)
    return values.tolist()


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
    retries: int = option(3, "Maximum number of retries after temporary errors.", lower=0)
    grpc: bool = option(False, "Use gRPC; needs tensorflow-serving-api.")


class ServingClient:
    """A model behind TensorFlow Serving; not thread-safe.

    Retries after a lost connection and errors that may pass (HTTP 429, 502, 503, 504; gRPC
    UNAVAILABLE), with growing, partly random waits. No request changes the server, so all are safe
    to repeat.

    Args:
      server: "http://HOST:PORT", or "HOST:PORT" for gRPC.
      model: name of the model at the server.
      options: version, signature, timeout, retries and grpc, as fields of `ClientConfig`.

    Raises:
      ValueError: if the address has another form, or gRPC's package is missing.
    """

    def __init__(self, server: str, model: str, **options: Any) -> None:
        config = ClientConfig(server, model, **options)
        transport = _grpc_transport() if config.grpc else RestTransport
        self._transport = transport(config)
        self._name = f"Model {model} at {server}"
        self._signature = config.signature
        # Signatures by name, asked for with the first request.
        self._known: dict[str, Signature] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def describe(self) -> str:
        """Returns the server's description of the model: its versions and signatures."""
        lines = self._transport.versions()
        for name, signature in self._transport.signatures().items():
            takes, gives = map(_described, signature)
            lines.append(f"{name}: takes {takes}; gives {gives}")
        return "\n".join(map(one_line, lines))

    def spec(self) -> Signature:
        """Returns the signature that `predict` calls.

        Raises:
          ValueError: if the model has none of this name.
          ServingError: if the server cannot be asked or refuses.
        """
        self._known = self._known or self._transport.signatures()
        if self._signature not in self._known:
            raise ValueError(
                f"{self._name} has no signature {self._signature}; it has {_listed(self._known)}."
            )
        return self._known[self._signature]

    def predict(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the outputs of one batch, in one request.

        Args:
          inputs: by name, nested lists or arrays: str or bytes for string inputs, numbers for
            others. The server checks their types and shapes.

        Returns:
          Outputs by name; numbers as arrays, strings as nested lists of str.

        Raises:
          ValueError: if the names are not those of the signature.
          ServingError: if the server cannot be asked or refuses.
        """
        spec = self.spec()
        # The server ignores names that it does not know.
        if set(inputs) != set(spec.inputs):
            raise ValueError(
                f"{self._name} takes {_listed(spec.inputs)}; received "
                f"{_listed(inputs) or 'nothing'}. Files of inputs by name are .jsonl."
            )
        # Asked for again after an error: the server may have changed to another version.
        known, self._known = self._known, {}
        outputs = self._transport.predict(self._signature, spec, inputs)
        try:
            answers = {name: _to_output(outputs[name], spec.outputs[name]) for name in spec.outputs}
        except ODD_ANSWER as error:
            raise ServingError(
                f"{self._name} sent other outputs than it announced: {one_line(error)}."
            ) from None
        self._known = known
        return answers


def _listed(names: dict[str, Any]) -> str:
    return one_line(" and ".join(sorted(names)))


def _grpc_transport() -> "type[GrpcTransport]":
    try:
        from export.serving_grpc import GrpcTransport
    except ImportError as error:
        raise ValueError(
            f"--grpc needs tensorflow-serving-api ({error}); {install_hint('serving')}."
        ) from None
    return GrpcTransport


def _to_output(values: object, tensor: Tensor) -> Any:
    """Returns nested lists of JSON, or an array of gRPC, as an array; strings as nested lists."""
    if tensor.kind == "string":
        return np.asarray(np.frompyfunc(_decode, 1, 1)(np.array(values, object))).tolist()
    return np.asarray(values, DTYPES.get(tensor.kind))


def _decode(value: str | bytes | dict[str, str]) -> str:
    """Returns a string output as text: str, the bytes of gRPC, or {"b64": ...} of JSON."""
    if isinstance(value, dict):
        value = base64.b64decode(value["b64"])
    if isinstance(value, str):
        return value
    return value.decode("utf8", "replace")


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
            outputs = client.predict(as_columns(batch, client.spec().inputs))
            plain = {name: as_plain(values) for name, values in outputs.items()}
            # Signatures of other projects may have outputs without a batch.
            if odd := [name for name in plain if np.shape(outputs[name])[:1] != (len(batch),)]:
                raise ServingError(f"{odd[0]} has not one row for each of {len(batch)} texts.")
        except (ServingError, ValueError) as error:
            if len(rows) > 1:  # The rows of a file; a single row needs no number.
                error.args = (f"Rows {start + 1} to {start + len(batch)}: {error}",)
            raise
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
      texts: inputs of one row by name; {} for a file or the description.
    """
    with ServingClient(**dataclasses.asdict(config)) as client:
        if not texts and not config.input_file:
            show(client.describe())
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


def _described(tensors: dict[str, Tensor]) -> str:
    return ", ".join(f"{name} {tensor}" for name, tensor in tensors.items())


if __name__ == "__main__":
    # Defined here and not on import, because a program that uses the class may have flags of the
    # same names.
    config_flags.define_flags(ClientConfig)
    config_flags.run(main)
