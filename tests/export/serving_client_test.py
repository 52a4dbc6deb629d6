"""The client of TensorFlow Serving against a stand-in of that server, and against it where it is.

Expected answers are those of the SavedModel itself, called without any server.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tensorflow as tf

from export import serving_client
from export.client.protocol import ServingError, TensorSpec, one_line
from export.client.rows import read_input
from export.serving_client import ServingClient, VersionStatus, answer_rows
from tests.export.serving_stand_in import StandIn, find_versions
from tests.export.toy_model import save_toy_model

TEXTS = ["A fine film.", "", "Größe, 中文, 🎈", 'quote " and \\ and \n', "null\0byte", "x" * 5000]
BOTH = pytest.mark.parametrize("way", ["rest", "grpc"])


@pytest.fixture(scope="module")
def base_path(tmp_path_factory):
    """Two versions of the toy model; beside them folders that are no versions."""
    path = tmp_path_factory.mktemp("toy")
    save_toy_model(path / "9")
    save_toy_model(path / "10", seed=1)
    for name in ("11.tmp", "latest", "-3"):
        (path / name).mkdir()
    return path


@pytest.fixture(scope="module")
def stand_in(base_path):
    with StandIn({"toy": base_path, "one": base_path}, all_versions=True) as stand_in:
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
    """Returns the outputs of a SavedModel's function, strings as nested lists of bytes."""
    outputs = function(**{name: tf.constant(values) for name, values in inputs.items()})
    arrays = {name: value.numpy() for name, value in outputs.items()}
    return {name: a.tolist() if a.dtype == object else a for name, a in arrays.items()}


def decode(values):
    return [decode(v) for v in values] if isinstance(values, list) else values.decode()


def post(stand_in, body, model="toy"):
    """Sends a request as it stands; returns the status and the JSON of the answer."""
    request = urllib.request.Request(
        f"{stand_in.rest}/v1/models/{model}:predict",
        body if isinstance(body, bytes) else json.dumps(body).encode(),
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def assert_answers_as_the_model(client, function):
    outputs = client.predict({"text": TEXTS})
    expected = call(function, text=TEXTS)
    assert set(outputs) == {"label", "score", "probabilities"}
    assert outputs["label"] == decode(expected["label"])
    for name in ("score", "probabilities"):
        assert outputs[name].dtype == np.float32
        np.testing.assert_allclose(outputs[name], expected[name], rtol=1e-6)


@BOTH
def test_answers_are_those_of_the_saved_model(connect, signatures):
    assert_answers_as_the_model(connect(), signatures["serving_default"])


def test_rows_and_columns_of_rest(stand_in, signatures):
    expected = call(signatures["serving_default"], text=TEXTS)
    labels, scores = decode(expected["label"]), expected["score"]
    status, rows = post(stand_in, {"instances": TEXTS})
    assert status == 200 and [row["label"] for row in rows["predictions"]] == labels
    np.testing.assert_allclose([row["score"] for row in rows["predictions"]], scores, rtol=1e-6)
    assert post(stand_in, {"instances": [{"text": text} for text in TEXTS]}) == (status, rows)
    status, columns = post(stand_in, {"inputs": {"text": TEXTS}})
    assert status == 200 and columns["outputs"]["label"] == labels
    assert post(stand_in, {"inputs": TEXTS}) == (status, columns)


def test_one_output_alone_has_no_name_in_rest(stand_in):
    pair = {"text": ["four", "two"], "text_b": ["ab", ""]}
    request = {"signature_name": "compare", "inputs": pair}
    assert post(stand_in, request) == (200, {"outputs": [3.0, 3.0]})
    rows = [{"text": "four", "text_b": "ab"}, {"text": "two", "text_b": ""}]
    request = {"signature_name": "compare", "instances": rows}
    assert post(stand_in, request) == (200, {"predictions": [3.0, 3.0]})


@BOTH
def test_one_output_alone_gets_its_name_back(connect):
    outputs = connect(signature="compare").predict({"text": ["four", "é"], "text_b": ["ab", ""]})
    assert list(outputs) == ["value"] and outputs["value"].tolist() == [3.0, 2.0]


@BOTH
def test_strings_and_numbers_by_word(connect):
    outputs = connect(signature="tag").predict({"text": ["a café", "one", ""]})
    assert outputs["words"] == [["a", "café"], ["one", ""], ["", ""]]
    assert outputs["ends"].dtype == np.int32
    assert outputs["ends"].tolist() == [[1, 6], [3, -1], [-1, -1]]


@BOTH
def test_ids(connect):
    client = connect(signature="ids")
    ids = {"input_word_ids": [[5, 6, 7], [8, 9, 1]], "input_mask": [[1, 1, 0], [1, 0, 0]]}
    ids["input_type_ids"] = np.array([[0, 1, 1], [0, 0, 0]])
    assert client.predict(ids)["embedding"].tolist() == [[11.0, 2.0], [8.0, 0.0]]
    with pytest.raises(ValueError, match="input_mask takes DT_INT32 in rows of one length, rec"):
        client.predict(ids | {"input_mask": [[1, 1, 0], [1]]})
    for wrong in ([["1"] * 3] * 2, [[0.5] * 3] * 2, [[2**40] * 3] * 2):
        with pytest.raises(ValueError, match="input_mask takes DT_INT32"):
            client.predict(ids | {"input_mask": wrong})


@BOTH
def test_bytes_go_and_come_back(connect):
    """A serialized tf.Example is no UTF-8."""
    values = [b"\xff\x00\x01", b"", "é".encode(), bytes(range(256))]
    outputs = connect(signature="examples").predict({"examples": values})
    assert outputs["back"] == outputs["back_bytes"] == [values[0], "", "é", values[3]]


@BOTH
def test_empty_batch(connect, stand_in):
    outputs = connect().predict({"text": []})
    assert outputs["label"] == [] and outputs["probabilities"].shape == (0, 3)
    assert stand_in.requests == 0
    assert post(stand_in, {"inputs": {"text": []}})[1]["outputs"]["label"] == []
    assert post(stand_in, {"instances": []})[0] == 400


@BOTH
def test_versions(connect, base_path):
    assert [number for number, _ in find_versions(base_path)] == [9, 10]
    labels = {
        version: connect(version=version).predict({"text": TEXTS})["score"].tolist()
        for version in (None, 9, 10)
    }
    assert labels[None] == labels[10] != labels[9]


@BOTH
def test_status_and_metadata(connect):
    assert connect().status() == [
        VersionStatus(9, "AVAILABLE", ""),
        VersionStatus(10, "AVAILABLE", ""),
    ]
    signatures = connect().metadata()
    assert list(signatures) == ["compare", "examples", "ids", "serving_default", "tag"]
    text = TensorSpec("DT_STRING", (-1,))
    assert signatures["compare"].inputs == {"text": text, "text_b": text}
    assert signatures["serving_default"].outputs == {
        "label": text,
        "probabilities": TensorSpec("DT_FLOAT", (-1, 3)),
        "score": TensorSpec("DT_FLOAT", (-1,)),
    }


@BOTH
def test_wrong_inputs_are_refused_before_they_are_sent(connect, stand_in):
    for inputs, message in [
        ({"question": ["a"]}, "Signature serving_default of model toy takes text; received quest"),
        ({"text": ["a"], "more": ["b"]}, "takes text; received text and more"),
        ({}, "received nothing"),
        ({"text": "a"}, "text takes values of 1 axes, the batch's first; received 'a' of 0"),
        ({"text": [1]}, "text takes strings, received 1"),
        ({"text": ["\ud800"]}, "text holds a lone surrogate"),
    ]:
        with pytest.raises(ValueError, match=message):
            connect().predict(inputs)
    with pytest.raises(ValueError, match="no signature tagger; it has compare, examples, ids, s"):
        connect(signature="tagger").predict({"text": ["a"]})
    with pytest.raises(ValueError, match="different sizes: {'text': 1, 'text_b': 2}"):
        connect(signature="compare").predict({"text": ["a"], "text_b": ["b", "c"]})
    assert stand_in.requests == 0


@BOTH
def test_model_or_version_that_is_not_there(connect, stand_in):
    with pytest.raises(ServingError, match="There is no model nix at .*models.config") as caught:
        connect("nix").predict({"text": ["a"]})
    assert caught.value.code == "NOT_FOUND"
    with pytest.raises(ServingError, match="Could not find any versions of model nix"):
        connect("nix").status()
    with pytest.raises(ServingError, match=r"Specific\(one, 9\).* has of model one: version 10 AV"):
        connect("one", version=9).predict({"text": ["a"]})


@BOTH
def test_text_that_is_not_utf8_is_refused_and_the_server_lives_on(connect, stand_in, signatures):
    client = connect()
    for bad in (b"caf\xe9", "caf\udce9"):
        with pytest.raises(ServingError, match="Invalid formatting on input string") as caught:
            client.predict({"text": ["fine", bad]})
        assert caught.value.code == "INVALID_ARGUMENT"
        assert "\n" not in str(caught.value) and "[[" not in str(caught.value)
    assert stand_in.requests == 2  # Neither was tried again.
    assert_answers_as_the_model(client, signatures["serving_default"])


def test_server_that_cannot_be_reached():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = ServingClient(f"http://127.0.0.1:{port}", "toy", retries=1)
    with pytest.raises(ServingError, match="cannot be reached: .*refused.* after 2 tries"):
        client.predict({"text": ["a"]})
    for server, grpc in [("127.0.0.1:8501", False), ("http://127.0.0.1:8500", True), ("a", True)]:
        with pytest.raises(ValueError, match="expected (http://)?HOST:PORT"):
            ServingClient(server, "toy", grpc=grpc)


def test_server_that_is_another():
    def answer(listener):
        for _ in range(2):
            with listener.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        server = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with (
            ServingClient(server, "toy", retries=0) as client,
            pytest.raises(ServingError, match="no JSON object but '<html>'; is this a REST port"),
        ):
            client.predict({"text": ["a"]})


@BOTH
@pytest.mark.parametrize("faults", [[503, 503], [504], ["hang", 503]], ids=str)
def test_tries_again(connect, stand_in, faults):
    client = connect(timeout=0.5)
    client.metadata()
    stand_in.faults.extend(faults)
    assert len(client.predict({"text": TEXTS})["label"]) == len(TEXTS)
    assert stand_in.requests == len(faults) + 1


@pytest.mark.parametrize("way", ["rest"])
@pytest.mark.parametrize("fault", [429, 502, "close", "drip"])
def test_tries_again_over_rest(connect, stand_in, fault):
    client = connect(timeout=0.5)
    client.metadata()
    stand_in.faults.extend([fault])
    assert len(client.predict({"text": TEXTS})["label"]) == len(TEXTS)
    assert stand_in.requests == 2


@BOTH
def test_gives_up(connect, stand_in):
    client = connect(retries=2)
    client.metadata()
    stand_in.faults.extend([503] * 9)
    with pytest.raises(ServingError, match="fault 503.*Gave up after 3 tries") as caught:
        client.predict({"text": ["a"]})
    assert caught.value.code == "UNAVAILABLE" and stand_in.requests == 3


@BOTH
@pytest.mark.parametrize("status", [400, 404, 501])
def test_does_not_try_again_what_would_fail_again(connect, stand_in, status):
    client = connect()
    client.metadata()
    stand_in.faults.append(status)
    with pytest.raises(ServingError, match=f"fault {status}"):
        client.predict({"text": ["a"]})
    assert stand_in.requests == 1


@BOTH
def test_deadline_ends_all_tries(connect, stand_in):
    client = connect(timeout=0.2, deadline=0.5, retries=100)
    client.metadata()
    stand_in.faults.extend(["hang"] * 20)
    start = time.monotonic()
    with pytest.raises(ServingError) as caught:
        client.predict({"text": ["a"]})
    assert time.monotonic() - start < 1.5
    assert caught.value.code == "DEADLINE_EXCEEDED" and 2 <= stand_in.requests <= 4


def test_waits_grow_and_vary(monkeypatch):
    waits = []
    monkeypatch.setattr(serving_client.time, "sleep", waits.append)
    client = ServingClient("http://127.0.0.1:1", "toy", retries=9)
    with pytest.raises(ServingError, match="after 10 tries"):
        client.status()
    longest = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5]
    assert len(waits) == 9
    assert all(most / 2 <= wait <= most for wait, most in zip(waits, longest, strict=True))
    assert len({round(wait / most, 3) for wait, most in zip(waits, longest, strict=True)}) > 5


@pytest.mark.parametrize("way", ["rest"])
def test_one_connection_serves_many_requests(connect, stand_in):
    before = stand_in.connections
    client = connect(retries=0)
    for _ in range(5):
        client.predict({"text": ["a"]})
    assert stand_in.connections == before + 1
    stand_in.faults.append("close")  # As a server does that ends idle connections.
    assert client.predict({"text": ["a"]})["label"]
    assert stand_in.connections == before + 2


def run_program(stand_in, *arguments):
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "export.serving_client",
            f"--server={stand_in.rest}",
            "--model=toy",
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_program_answers_a_file_in_its_order(stand_in, signatures, tmp_path):
    texts = [f"text {number} " + "ä" * (number % 50) for number in range(1000)]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts), "utf8")
    files = [f"--input_file={tmp_path}/texts.txt", f"--output_file={tmp_path}/answers.jsonl"]
    done = run_program(stand_in, *files, "--batch_size=33")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    expected = call(signatures["serving_default"], text=texts)
    assert [answer["label"] for answer in answers] == decode(expected["label"])
    scores = [answer["score"] for answer in answers]
    np.testing.assert_allclose(scores, expected["score"], rtol=1e-6)
    assert len(f"{scores[0]}") <= 12  # As many digits as float32 has.

    (tmp_path / "texts.txt").write_bytes(b"fine\n" * 50 + b"caf\xe9\n")
    done = run_program(stand_in, *files)
    assert done.returncode == 1 and "ERROR: " in done.stderr and "not UTF-8" in done.stderr
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 1000


def test_program_answers_pairs_and_bytes_of_jsonl(stand_in, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"text": "four", "text_b": "ab"}\n{"text_b": "", "text": "é"}\n', "utf8")
    done = run_program(stand_in, f"--input_file={path}", "--signature=compare")
    assert done.stdout == '{"value": 3.0}\n{"value": 2.0}\n', done.stderr
    path.write_text('{"examples": {"b64": "/w=="}}\n')
    done = run_program(stand_in, f"--input_file={path}", "--signature=examples")
    assert json.loads(done.stdout) == {"back": {"b64": "/w=="}, "back_bytes": {"b64": "/w=="}}


def test_program_describes_the_model(stand_in):
    done = run_program(stand_in)
    assert "version 10: AVAILABLE\n" in done.stdout
    assert (
        "compare: takes text string [-1], text_b string [-1]; gives value float [-1]\n"
        in done.stdout
    )


def test_program_says_in_one_line_what_is_wrong(stand_in, tmp_path):
    for arguments, message in [
        (["--text=a", "--text_b=b"], "takes text; received text and text_b"),
        (["--text=a", "--input_file=a.txt"], "Give either --text or --input_file"),
        (["--version=7", "--text=a"], "version 9 AVAILABLE, 10 AVAILABLE"),
    ]:
        done = run_program(stand_in, *arguments)
        assert done.returncode == 1 and message in done.stderr, done.stderr
        assert done.stderr.startswith("ERROR: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "signature, lines, message",
    [
        ("serving_default", '{"text": "a"}\n{"text"\n', "line 2 is not JSON"),
        ("serving_default", '{"text": "a"}\n7\n', "line 2: expected an object"),
        ("serving_default", '{"text": "a"}\n{"b": "a"}\n', r"in one row and \['b'\] in another"),
        ("serving_default", '{"text": "a"}\n{"text": 7}\n', "Rows 1 to 2: text takes strings"),
        ("compare", '"a"\n', "takes text and text_b; give them"),
    ],
    ids=str,
)
@pytest.mark.parametrize("way", ["rest"])
def test_file_with_a_wrong_line(connect, tmp_path, signature, lines, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(lines)
    with pytest.raises(ValueError, match=message):
        list(answer_rows(connect(signature=signature), read_input(path), 32))


def test_rest_loads_no_tensorflow():
    code = "import sys, export.serving_client; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_grpc_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    for name in [name for name in sys.modules if name.startswith("tensorflow_serving.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        ValueError, match=r"needs tensorflow-serving-api .*pip install '.\[serving\]"
    ):
        ServingClient("127.0.0.1:8500", "toy", grpc=True)


def test_message_of_a_graph_becomes_one_line():
    assert one_line("bad text\n\t [[{{node a/b}}]]\n\t [[c]]\n more") == "bad text more"
    assert len(one_line("x" * 10_000)) < 600


@pytest.fixture
def real_server(base_path, capsys):
    """Yields the addresses of TensorFlow Serving itself: one that runs, or one started here."""
    if address := os.environ.get("TF_SERVING_ADDRESS"):
        yield address, os.environ.get("TF_SERVING_GRPC_ADDRESS")
        return
    program = shutil.which("tensorflow_model_server")
    if not program:
        reason = (
            "not run against TensorFlow Serving itself: no tensorflow_model_server on PATH, and "
            "TF_SERVING_ADDRESS (http://HOST:8501 of a server with the toy model) is not set"
        )
        with capsys.disabled():
            print(f"\n{reason}")
        pytest.skip(reason)
    with socket.socket() as one, socket.socket() as other:
        ports = []
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    flags = [f"--port={ports[0]}", f"--rest_api_port={ports[1]}", "--model_name=toy"]
    server = subprocess.Popen([program, *flags, f"--model_base_path={base_path}"])
    yield f"http://127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[0]}"
    server.terminate()
    server.wait(30)


def test_the_same_of_tensorflow_serving_itself(real_server, signatures):
    for address in filter(None, real_server):
        is_grpc = not address.startswith("http")
        with ServingClient(address, "toy", grpc=is_grpc, retries=20, deadline=60) as client:
            assert client.status()[-1].state == "AVAILABLE"
            assert_answers_as_the_model(client, signatures["serving_default"])
            with pytest.raises(ServingError) as caught:
                client.predict({"text": [b"caf\xe9"]})
            assert caught.value.code == "INVALID_ARGUMENT"
            assert client.predict({"text": []})["label"] == []
