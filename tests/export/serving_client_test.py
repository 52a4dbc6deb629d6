"""The client of TensorFlow Serving against a stand-in of that server, and against it where it is.

Expected answers are those of the SavedModel itself, called without any server.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from export.serving_client import (
    ClientConfig,
    ServingClient,
    answer_rows,
    as_columns,
    ask,
    read_input,
)
from export.serving_rest import ServingError, one_line, read_signatures
from tests.export.serving_stand_in import StandIn
from tests.export.toy_model import save_toy_model
from tests.float_bounds import assert_close
from tests.slow_variants import slow_unless

TEXTS = ["A fine film.", "", "Größe, 中文, 🎈", 'quote " and \\ and \n', "null\0byte", "x" * 5000]
BOTH = pytest.mark.parametrize("way", ["rest", "grpc"])
REST = pytest.mark.parametrize("way", ["rest"])


@pytest.fixture(scope="module")
def base_path(tmp_path_factory):
    """Two versions of the toy model; beside them folders that are no versions."""
    path = tmp_path_factory.mktemp("toy")
    save_toy_model(path / "9")
    save_toy_model(path / "10", seed=1)
    for name in ("11.tmp", "latest"):
        (path / name).mkdir()
    return path


@pytest.fixture(scope="module")
def stand_in(base_path):
    with StandIn({"toy": base_path, "one": base_path}) as stand_in:
        del stand_in.models["one"][9]
        yield stand_in


@pytest.fixture(scope="module")
def signatures(base_path):
    """The signatures of version 10 as functions."""
    return tf.saved_model.load(str(base_path / "10")).signatures


@pytest.fixture
def connect(stand_in, way):
    """Makes clients of the stand-in, over one way."""
    clients = []
    stand_in.faults.clear()
    stand_in.requests = 0

    def make(model="toy", **options):
        address = stand_in.grpc if way == "grpc" else stand_in.rest
        clients.append(ServingClient(address, model, grpc=way == "grpc", **options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def call(function, **inputs):
    """Returns the outputs of a SavedModel's function, strings as nested lists of str."""
    outputs = function(**{name: tf.constant(values) for name, values in inputs.items()})
    arrays = {name: value.numpy() for name, value in outputs.items()}
    return {name: [v.decode() for v in a] if a.dtype == object else a for name, a in arrays.items()}


def assert_answers_as_the_model(client, function):
    outputs, expected = client.predict({"text": TEXTS}), call(function, text=TEXTS)
    assert set(outputs) == {"label", "score", "probabilities"}
    assert outputs["label"] == expected["label"]
    for name in ("score", "probabilities"):
        assert outputs[name].dtype == np.float32
        np.testing.assert_allclose(outputs[name], expected[name], rtol=1e-6)


@pytest.mark.parametrize("way", slow_unless("grpc", ["rest", "grpc"]))
def test_every_form_of_inputs_and_outputs(connect, signatures):
    assert_answers_as_the_model(connect(), signatures["serving_default"])
    # One output alone has no name in REST.
    outputs = connect(signature="compare").predict({"text": ["four", "é"], "text_b": ["ab", ""]})
    assert list(outputs) == ["value"] and outputs["value"].tolist() == [3.0, 2.0]
    outputs = connect(signature="tag").predict({"text": ["a café", "one", ""]})
    assert outputs["words"] == [["a", "café"], ["one", ""], ["", ""]]
    assert outputs["ends"].dtype == np.int32
    assert outputs["ends"].tolist() == [[1, 6], [3, -1], [-1, -1]]
    ids = {"input_word_ids": [[5, 6, 7], [8, 9, 1]], "input_mask": [[1, 1, 0], [1, 0, 0]]}
    ids["input_type_ids"] = np.array([[0, 1, 1], [0, 0, 0]])
    outputs = connect(signature="ids").predict(ids)
    assert outputs["embedding"].tolist() == [[11.0, 2.0], [8.0, 0.0]]
    # A serialized tf.Example is no UTF-8; answers are texts.
    values = [b"\xff\x00\x01", b"", "é".encode(), bytes(range(256))]
    outputs = connect(signature="examples").predict({"examples": values})
    assert outputs["back"] == [value.decode("utf8", "replace") for value in values]
    outputs = connect().predict({"text": []})
    assert outputs["label"] == [] and outputs["probabilities"].size == 0


@BOTH
def test_versions_status_and_metadata(connect):
    scores = {
        version: connect(version=version).predict({"text": TEXTS})["score"].tolist()
        for version in (-1, 9, 10)
    }
    assert scores[-1] == scores[10] != scores[9]
    assert [line.split(":")[0] for line in connect().describe().splitlines()] == [
        *("version 10", "version 9", "compare", "examples", "ids", "serving_default", "tag")
    ]
    assert sorted(connect(signature="compare").spec().inputs) == ["text", "text_b"]
    assert connect().spec().outputs == {
        "label": ("string", [-1]),
        "probabilities": ("float", [-1, 3]),
        "score": ("float", [-1]),
    }


@BOTH
def test_wrong_inputs_are_refused(connect, stand_in):
    for inputs, message in [
        ({"question": ["a"]}, "toy .*text; .*question"),
        ({"text": ["a"], "more": ["b"]}, "toy .*text; .*more .*text"),
        ({}, "toy .*text; .*nothing"),
    ]:
        with pytest.raises(ValueError, match=message):
            connect().predict(inputs)
    with pytest.raises(ValueError, match="signature tagger; .*compare"):
        connect(signature="tagger").predict({"text": ["a"]})
    assert stand_in.requests == 0


@pytest.mark.parametrize("way", ["grpc"])
def test_inputs_of_another_type_are_named(connect):
    for text in ([1], "\ud800"):
        with pytest.raises(ValueError, match=r"^text takes string"):
            connect().predict({"text": text})


def test_a_number_for_all_rows():
    infos = {
        "k": {"dtype": "DT_INT32", "tensor_shape": {}},
        "query": {"dtype": "DT_STRING", "tensor_shape": {"unknown_rank": True}},
    }
    inputs = read_signatures({"signature_def": {"find": {"inputs": infos}}})["find"].inputs
    assert inputs == {"k": ("int32", []), "query": ("string", None)}
    rows = [{"query": "a", "k": 5}, {"query": "b", "k": 5}]
    assert as_columns(rows, inputs) == {"k": 5, "query": ["a", "b"]}
    with pytest.raises(ValueError, match=r"^k .*\[5, 6\].*--batch_size=1"):
        as_columns([*rows[:1], {"query": "b", "k": 6}], inputs)


@BOTH
def test_errors_of_the_server(connect, stand_in, signatures):
    for client in (connect("nix"), connect("one", version=9)):
        for ask_it in (client.spec, lambda c=client: c.predict({"text": ["a"]})):
            with pytest.raises(ServingError, match="--model .*models.config, .*--version"):
                ask_it()
    client = connect()
    with pytest.raises(ServingError, match=r"HTTP 400|INVALID_ARGUMENT") as caught:
        client.predict({"text": ["fine", b"caf\xe9"]})
    assert "\n" not in str(caught.value) and "[[" not in str(caught.value)
    assert stand_in.requests == 1  # It was not tried again.
    assert_answers_as_the_model(client, signatures["serving_default"])


def test_server_that_cannot_be_reached():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ServingClient(f"http://127.0.0.1:{port}", "toy", retries=1) as client:
        with pytest.raises(ServingError, match=f"127.0.0.1:{port} .*refused"):
            client.predict({"text": ["a"]})
    for server, grpc in [("127.0.0.1:8501", False), ("http://127.0.0.1:8500", True), ("a", True)]:
        with pytest.raises(ValueError, match=f"'{server}', .*HOST:PORT"):
            ServingClient(server, "toy", grpc=grpc)


@BOTH
def test_tries_again_what_may_pass_and_nothing_else(connect, stand_in, way):
    client = connect(timeout=5.0, retries=2)
    client.spec()
    for faults in [[503, 503], *([[504], [429, 502], ["close"]] * (way == "rest"))]:
        stand_in.faults.extend(faults)
        stand_in.requests = 0
        assert len(client.predict({"text": TEXTS})["label"]) == len(TEXTS)
        assert stand_in.requests == len(faults) + 1
    stand_in.faults.extend([503] * 3)
    with pytest.raises(ServingError, match="fault 503"):
        client.predict({"text": ["a"]})
    assert not stand_in.faults
    for status in (400, 404, 501):
        client.spec()
        stand_in.faults.extend([status])
        with pytest.raises(ServingError, match=f"fault {status}"):
            client.predict({"text": ["a"]})
        assert not stand_in.faults


@BOTH
def test_a_server_that_does_not_answer(connect, stand_in):
    client = connect(timeout=0.3, retries=1)
    client.spec()
    stand_in.faults.extend(["hang", "hang"])
    start = time.monotonic()
    with pytest.raises(ServingError):
        client.predict({"text": ["a"]})
    assert time.monotonic() - start < 10  # The stand-in would wait for 30 s.
    stand_in.faults.clear()


@REST
def test_one_connection_serves_many_requests(connect, stand_in):
    client = connect(retries=0)
    before = stand_in.connections
    for _ in range(5):
        client.predict({"text": ["a"]})
    assert stand_in.connections == before + 1


@contextlib.contextmanager
def raw_server(answer):
    """Sends these bytes to whoever connects, again and again; yields its address."""

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # Closed below.
            with connection, contextlib.suppress(OSError):
                connection.recv(10_000)
                connection.sendall(answer)

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


HEAD = b"HTTP/1.1 200 OK\r\n"


def test_a_message_of_the_server_cannot_move_the_terminal(capsys):
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\x7f \u202e é中"
    body = json.dumps({"error": evil}).encode()
    error = b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with raw_server(error) as server, ServingClient(server, "toy") as client:
        with pytest.raises(ServingError) as caught:
            client.describe()
    assert str(caught.value).isprintable() and r"\x1b[2J" in str(caught.value)
    assert "é中" in str(caught.value) and r"\u202e" in str(caught.value)
    spec = {evil: {"dtype": "DT_FLOAT", "tensor_shape": {}}}
    signatures = {"serving_default": {"inputs": spec, "outputs": spec}}
    answer = {
        "model_version_status": [{"state": evil, "status": {"error_message": evil}}],
        "metadata": {"signature_def": {"signature_def": signatures}},
    }
    body = json.dumps(answer).encode()
    found = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    with raw_server(found) as server:
        ask(ClientConfig(server=server, model="toy"), {})
        assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())
        with ServingClient(server, "toy") as client, pytest.raises(ValueError) as refused:
            client.predict({"text": ["a"]})
        assert str(refused.value).isprintable()


def test_server_that_is_another():
    page = HEAD + b"Content-Length: 6\r\n\r\n<html>"
    moved = b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    broken = HEAD + b"Content-Length: 6\r\n\r\n<ht"
    for answer, message in [
        (page, "127.0.0.1.*<html>"),
        (moved, "HTTP 301|redirects"),
        (broken, "127.0.0.1.*IncompleteRead"),
        (b"SSH-2.0\r\n", "127.0.0.1.*SSH-2.0"),
    ]:
        with (
            raw_server(answer) as server,
            ServingClient(server, "toy", retries=0) as client,
            pytest.raises(ServingError, match=message),
        ):
            client.predict({"text": ["a"]})


def test_damaged_headers_are_one_line(caplog):
    answer = (
        HEAD + b'no colon\r\nA: b\r\n\r\n{"metadata": {"signature_def": {"signature_def": {}}}}'
    )
    with raw_server(answer) as server, ServingClient(server, "toy") as client:
        with pytest.raises(ValueError, match="serving_default"):
            client.spec()
    (record,) = [record for record in caplog.records if record.name.startswith("urllib3")]
    assert not record.exc_info and not record.exc_text and "\n" not in record.getMessage()


def test_program_answers_a_file_in_its_order(stand_in, signatures, tmp_path):
    texts = [f"text {number} " + "ä" * (number % 50) for number in range(1000)]
    source, target = tmp_path / "texts.txt", tmp_path / "answers.jsonl"
    source.write_text("".join(f"{text}\n" for text in texts), "utf8")
    command = [sys.executable, "-X", "importtime", "-m", "export.serving_client", "--model=toy"]
    command += [f"--server={stand_in.rest}", f"--input_file={source}", f"--output_file={target}"]
    done = subprocess.run([*command, "--batch_size=33"], capture_output=True, text=True, timeout=99)
    assert done.returncode == 0, done.stderr
    assert "requests" in done.stderr and "tensorflow" not in done.stderr  # What was imported.
    answers = [json.loads(line) for line in target.read_text().splitlines()]
    expected = call(signatures["serving_default"], text=texts)
    assert [answer["label"] for answer in answers] == expected["label"]
    scores = [answer["score"] for answer in answers]
    assert_close(scores, expected["score"])
    assert len(f"{scores[0]}") <= 12  # As many digits as float32 has.

    stand_in.faults.extend([400])
    with pytest.raises(ServingError, match="^Rows 1 to 32: .*fault 400"):
        ask(ClientConfig(stand_in.rest, "toy", input_file=str(source), output_file=str(target)), {})
    assert len(target.read_text().splitlines()) == 1000


@REST
def test_rows_of_jsonl_and_what_is_wrong_with_them(connect, stand_in, tmp_path, capsys):
    path = tmp_path / "rows.jsonl"

    def answers(lines, signature="serving_default", **texts):
        path.write_text(lines, "utf8")
        file = str(path) if lines else ""
        ask(ClientConfig(stand_in.rest, "toy", signature=signature, input_file=file), texts)
        return capsys.readouterr().out

    pairs = '{"text": "four", "text_b": "ab"}\n{"text_b": "", "text": "é"}\n'
    assert answers(pairs, "compare") == '{"value": 3.0}\n{"value": 2.0}\n'
    assert answers('{"examples": {"b64": "w6k="}}\n', "examples") == '{"back": "é"}\n'
    assert answers("", "compare", text="four", text_b="ab") == '{"value": 3.0}\n'
    described = answers("")
    assert "version 10: AVAILABLE\n" in described
    compare = next(line for line in described.splitlines() if line.startswith("compare: "))
    assert "text string [-1], text_b string [-1]; " in compare and "value float [-1]" in compare
    for signature, lines, message in [
        ("serving_default", '{"text": "a"}\n{"text"\n', f"{path}, line 2 .*JSON: "),
        ("serving_default", '{"text": "a"}\n7\n', f"{path}, line 2: .* 7"),
        ("serving_default", '{"text": "a"}\n{"b": "a"}\n', "Rows 1 to 2: .* text, .* b"),
        ("compare", '{"text": "a"}\n', " text_b; .* text. .*jsonl"),
    ]:
        path.write_text(lines)
        with pytest.raises(ValueError, match=message):
            list(answer_rows(connect(signature=signature), read_input(path), 32))


def test_grpc_without_its_package(monkeypatch):
    monkeypatch.delitem(sys.modules, "export.serving_grpc", raising=False)
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(ValueError, match=r"pip install '\.\[serving\]'"):
        ServingClient("127.0.0.1:8500", "toy", grpc=True)


def test_message_of_a_graph_becomes_one_line():
    assert one_line("bad text\n\t [[{{node a/b}}]]\n\t [[c]]\n more") == "bad text more"
    assert len(one_line("x" * 10_000)) < 600


@pytest.fixture
def real_server(base_path):
    """Yields the addresses of TensorFlow Serving itself: one that runs, or one started here."""
    if address := os.environ.get("TF_SERVING_ADDRESS"):
        yield address, os.environ.get("TF_SERVING_GRPC_ADDRESS")
        return
    program = shutil.which("tensorflow_model_server")
    if not program:
        pytest.skip(
            "not run against TensorFlow Serving itself: no tensorflow_model_server on PATH, and "
            "TF_SERVING_ADDRESS (http://HOST:8501 of a server with the toy model) is not set"
        )
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as other:
        ports = [free.getsockname()[1] for free in (one, other)]
    flags = [f"--port={ports[0]}", f"--rest_api_port={ports[1]}", "--model_name=toy"]
    server = subprocess.Popen([program, *flags, f"--model_base_path={base_path}"])
    yield f"http://127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[0]}"
    server.terminate()
    server.wait(30)


def test_the_same_of_tensorflow_serving_itself(real_server, signatures):
    for address in filter(None, real_server):
        is_grpc = not address.startswith("http")
        with ServingClient(address, "toy", grpc=is_grpc, retries=20, timeout=60) as client:
            assert "AVAILABLE" in client.describe()
            assert_answers_as_the_model(client, signatures["serving_default"])
            with pytest.raises(ServingError, match=r"HTTP 400|INVALID_ARGUMENT"):
                client.predict({"text": [b"caf\xe9"]})
            assert client.predict({"text": []})["label"] == []
