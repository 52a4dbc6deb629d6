"""The demo without a browser: answers of every kind, the JSON API, the program."""

import base64
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

from export.models import CLASSES, load
from export.page.model import DemoModel, as_json, check_inputs, cosines, find_entities
from export.page.server import MAX_BODY_BYTES, DemoServer, is_loopback, is_own_name
from tests.export.demo_stand_in import FAILING, StandIn
from tests.export.made_models import write_model

EVIL = "<img src=x onerror=alert(1)>"
# Shorter than what a row holds, longer, of characters outside the BMP, and markup.
TEXTS = ("the river \U0001f600 a b", "", EVIL, "w10 " * 100)


def form_of(value):
    """Returns the names and types in a JSON value; of a list, those of its first element."""
    if isinstance(value, dict):
        return {name: form_of(part) for name, part in value.items()}
    if isinstance(value, list):
        return [form_of(part) for part in value[:1]]
    return type(value).__name__


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Makes the tiny model of a kind, once."""
    made = {}

    def of_kind(kind):
        if kind not in made:
            folder = write_model(tmp_path_factory.mktemp("models") / kind, kind)
            short = {"max_query_length": 10} if kind == "question_answering" else {}
            made[kind] = load(str(folder), kind, **short)
        return made[kind]

    return of_kind


@pytest.mark.parametrize("kind", CLASSES)
def test_answers_are_the_models_and_have_the_form_that_the_page_reads(make, kind) -> None:
    served = make(kind)
    model = DemoModel(served, "stand-in")
    inputs = {name: ["the [MASK] river", *TEXTS] for name in served.texts}
    answer = json.loads(json.dumps(model.answer(inputs), allow_nan=False))
    expected = served.from_texts(*(tf.constant(column) for column in inputs.values()))
    for name, value in expected.items():
        if name != "sequence_output":
            assert answer["outputs"][name] == as_json(value.numpy()), name
    # The stand-in finds its names; a random tagger or answerer perhaps nothing.
    made = StandIn(kind).answer({name: ["Ada Lovelace [MASK] Paris"] for name in served.texts})
    if kind == "encoder":
        assert answer["outputs"].pop("pooled_output")
    assert set(form_of(answer)["outputs"]) == set(form_of(made)["outputs"])
    if kind not in ("tagger", "embeddings"):
        assert form_of(answer) == form_of(made)
    in_windows = kind in ("tagger", "question_answering")
    assert answer["is_full"] == [False, False, False, False, not in_windows]
    card = model.card()
    assert form_of(card).keys() == StandIn(kind).card().keys()
    assert card["num_layers"] == 2 and card["num_heads"] == 4 and list(card["samples"])


def test_answers_in_a_graph_are_the_same(make) -> None:
    inputs = {"text": list(TEXTS)}
    eager, compiled = (DemoModel(make("classifier"), in_graph=g) for g in (False, True))
    compiled.warm_up()
    expected = eager.answer(inputs)["outputs"]["probabilities"]
    np.testing.assert_allclose(compiled.answer(inputs)["outputs"]["probabilities"], expected, 1e-4)


def test_attention_is_sent_as_float32(make) -> None:
    model = DemoModel(make("next_sentence"))
    answer = model.attention({"text": ["the river"], "text_b": ["a b"]})
    assert answer["pieces"] == "[CLS] the river [SEP] a b [SEP]".split()
    assert answer["shape"] == [2, 4, 7, 7] and answer["num_pieces"] == 7
    values = np.frombuffer(base64.b64decode(answer["probabilities"]), "<f4").reshape(2, 4, 7, 7)
    np.testing.assert_allclose(values.sum(-1), 1, atol=1e-5)
    with pytest.raises(ValueError, match="Received 2 rows; attention is shown of one"):
        model.attention({"text": ["a", "b"], "text_b": ["a", "b"]})


def made_tags(tags, starts, ends, scores):
    outputs = {"tags": np.array([[t.encode() for t in tags]], object)}
    numbers = {"starts": starts, "ends": ends, "scores": scores}
    return {**outputs, **{name: np.array([column]) for name, column in numbers.items()}}


def test_tags_are_joined_to_entities_in_characters() -> None:
    text = "\U0001f600 Ada Lovelace, Paris Rome"
    outputs = made_tags(
        ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "", ""],
        [2, 6, 14, 16, 22, -1, -1],
        [5, 14, 15, 21, 26, -1, -1],
        [0.75, 0.5, 0.9, 0.25, 1.0, 0.0, 0.0],
    )
    labels = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    assert find_entities(labels, outputs, [text]) == [
        [
            {"type": "PER", "start": 2, "end": 14, "text": "Ada Lovelace", "score": 0.5},
            {"type": "LOC", "start": 16, "end": 21, "text": "Paris", "score": 0.25},
            {"type": "LOC", "start": 22, "end": 26, "text": "Rome", "score": 1.0},
        ]
    ]


def test_tags_without_bio_stand_alone() -> None:
    outputs = made_tags(["NOUN", "NOUN", "O"], [0, 2, 4], [1, 3, 5], [0.5, 0.5, 0.5])
    found = find_entities(["NOUN", "VERB", "O"], outputs, ["a b c"])[0]
    assert [(part["type"], part["text"]) for part in found] == [("NOUN", "a"), ("NOUN", "b")]


def test_cosines_and_json_of_odd_numbers() -> None:
    received = cosines(np.array([[3.0, 4.0], [4.0, 3.0], [-3.0, -4.0], [0.0, 0.0]]))
    # fmt: off
    expected = [[ 1.00,  0.96, -1.00, 0],
                [ 0.96,  1.00, -0.96, 0],
                [-1.00, -0.96,  1.00, 0],
                [ 0,     0,     0,    0]]
    # fmt: on
    np.testing.assert_allclose(received, expected, atol=1e-12)
    odd = {"a": np.array([np.nan, np.inf, 0.5]), "b": np.array([["é".encode()]], object)}
    assert as_json(odd) == {"a": [None, None, 0.5], "b": [["é"]]}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (None, "Expected the inputs text and text_b; received none."),
        ({"text": ["a"]}, "Expected the inputs text and text_b; received text."),
        ({"text": "a", "text_b": ["b"]}, "text is no list of texts"),
        ({"text": [1], "text_b": ["b"]}, "text is no list of texts"),
        ({"text": [], "text_b": []}, "text holds 0 texts; expected 1 .. 32."),
        ({"text": ["a"] * 33, "text_b": ["b"]}, "text holds 33 texts"),
        ({"text": ["a", "b"], "text_b": ["b"]}, "of different sizes: text 2, text_b 1"),
        ({"text": ["a"], "text_b": ["b" * 10_001]}, "text_b has 10001 characters; expected at"),
        ({"text": ["\ud83d"], "text_b": ["b"]}, "text holds half a character"),
    ],
)
def test_bad_inputs_are_refused_in_one_line(inputs, message) -> None:
    with pytest.raises(ValueError) as caught:
        check_inputs(inputs, ("text", "text_b"))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def server():
    with DemoServer(port=0) as server:
        server.model = StandIn("classifier")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def send(server, method, path, body=None, **headers):
    """Returns status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    response = connection.getresponse()
    received = response.read()
    connection.close()
    return response.status, response.headers, received


def post(server, body, path="/api/answer", **headers):
    given = {"Content_Type": "application/json", **headers}
    status, _, received = send(server, "POST", path, body, **given)
    return status, json.loads(received)


def test_files_have_their_types_and_ask_for_nothing_elsewhere(server) -> None:
    kinds = {"/": "html", "/page.css": "css"}
    kinds |= {f"/{name}.js": "javascript" for name in ("page", "answers", "attention", "dom")}
    for path, kind in kinds.items():
        status, headers, body = send(server, "GET", f"{path}?text=a")
        assert status == 200 and headers["Content-Type"] == f"text/{kind}; charset=utf-8"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert b"http://" not in body and b"https://" not in body, path


def test_model_answer_and_attention(server) -> None:
    status, headers, body = send(server, "GET", "/api/model")
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert json.loads(body) == StandIn("classifier").card()
    request = json.dumps({"inputs": {"text": ["calm sea"]}})
    status, answer = post(server, request)
    assert status == 200 and answer["outputs"]["label"] == ["calm"]
    status, answer = post(server, request, "/api/attention")
    assert status == 200 and answer["pieces"] == ["calm", "sea"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("{", 400, "The request is not JSON."),
        ("[" * 100_000, 400, "The request is not JSON."),
        ("[]", 400, 'Expected {"inputs": {...}}.'),
        (b"\xff", 400, "The request is not JSON."),
        (json.dumps({"inputs": {"text": [FAILING]}}), 400, "This text <b>cannot</b> be taken"),
        (json.dumps({"inputs": {"text": []}}), 500, "its terminal says why"),
        (" " * (MAX_BODY_BYTES + 1), 413, "expected at most 1048576"),
    ],
)
def test_what_goes_wrong_is_one_line_of_json(server, body, status, message) -> None:
    received, answer = post(server, body)
    assert received == status and message in answer["error"]
    assert "Traceback" not in answer["error"] and "\n" not in answer["error"]


def test_only_the_own_page_may_ask(server) -> None:
    request = json.dumps({"inputs": {"text": ["calm"]}})
    own = f"127.0.0.1:{server.server_port}"
    assert post(server, request, Host="evil.example")[0] == 403
    assert send(server, "GET", "/api/model", Host=f"evil.example:{server.server_port}")[0] == 403
    assert send(server, "GET", "/", Host="")[0] == 403
    assert post(server, request, Origin="http://evil.example")[0] == 403
    assert post(server, request, Origin="null")[0] == 403
    assert post(server, request, Content_Type="text/plain")[0] == 415
    assert post(server, request, Host=own, Origin=f"http://{own}")[0] == 200
    assert post(server, request, Host="localhost:9")[0] == 200  # A port that was forwarded.


def test_unknown_places_and_methods(server) -> None:
    for path in (
        "/favicon.ico",
        "/../demo_server.py",
        "/%2e%2e/demo.py",
        "/answer",
        "//etc/passwd",
    ):
        status, headers, body = send(server, "GET", path)
        assert status == 404 and "nothing at" in json.loads(body)["error"]
        assert headers["Content-Type"] == "application/json"
    assert send(server, "POST", "/api/model", "{}", Content_Type="application/json")[0] == 404
    assert send(server, "DELETE", "/")[0] == 501
    assert (
        send(server, "POST", "/api/answer", iter([b"{}"]), Content_Type="application/json")[0]
        == 411
    )


def test_names_of_the_server() -> None:
    own = ["demo.local:80", "DEMO.local", "10.0.0.7:8000", "[::1]:8000", "localhost", "127.0.0.1"]
    assert all(is_own_name(host, "demo.local") for host in own)
    foreign = ["", "a.com", "localhost.a.com", "127.0.0.1.a.com", "demo.local:a", "::1", "[a]:1"]
    assert not any(is_own_name(host, "demo.local") for host in foreign)
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("demo.local")


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "export.demo", *arguments],
        env={**os.environ, "BROWSER": "true"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_program_answers_and_ends_at_ctrl_c(tmp_path) -> None:
    folder = write_model(tmp_path / "sst2", "classifier")
    process = start(f"--model_dir={folder}", "--port=0", "--open")
    line = next(line for line in process.stdout if "http://" in line)
    assert line.startswith("classifier: open http://127.0.0.1:") and "Ctrl-C ends" in line
    port = int(line.split("127.0.0.1:")[1].split("/")[0])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"inputs": {"text": ["the river", ""]}})
    connection.request("POST", "/api/answer", body, {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    process.send_signal(signal.SIGINT)  # While a connection is open.
    rest = process.communicate(timeout=60)[0]
    connection.close()
    assert len(answer["outputs"]["label"]) == 2 and answer["milliseconds"] > 0
    assert process.returncode == 0 and rest.strip().endswith("Ended."), rest


def test_program_says_in_one_line_what_is_missing(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        given = {
            f"Port {port} of 127.0.0.1 is in use": [f"--port={port}", "--model_dir=m"],
            "Give a trained model as --model_dir.": [],
            "Cannot listen at 203.0.113.1": ["--host=203.0.113.1", "--port=0", "--model_dir=m"],
        }
        started = {message: start(*arguments) for message, arguments in given.items()}
        for message, process in started.items():
            printed = process.communicate(timeout=60)[0]
            assert process.returncode == 1 and f"ERROR: {message}" in printed
            assert len(printed.strip().splitlines()) == 1, printed
