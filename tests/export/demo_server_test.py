"""The demo's server and program: who may ask, what goes wrong, many, slow and lost clients."""

import contextlib
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from export import demo
from export.page import model, server
from export.page.server import is_own_name
from tests.export.demo_stand_in import FAILING, StandIn, serving
from tests.export.made_models import write_model

JSON = {"Content-Type": "application/json"}
CALM = json.dumps({"inputs": {"text": ["calm sea"]}})
WILD = json.dumps({"inputs": {"text": ["wild sea"]}})
REQUEST = "POST /api/answer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def port():
    with serving(StandIn()) as port:
        yield port


def send(port, method, path, body=None, headers=()):
    """Returns status, headers and body of an answer."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as client:
        client.request(method, path, body, dict(headers))
        response = client.getresponse()
        return response.status, response.headers, response.read()


def post(port, body, path="/api/answer", **headers):
    status, _, received = send(port, "POST", path, body, {**JSON, **headers})
    return status, json.loads(received)


def test_the_page_and_what_it_calls(port) -> None:
    kinds = {"": "html", "page.css": "css"}
    kinds |= {f"{name}.js": "javascript" for name in ("page", "answers", "attention", "dom")}
    for path, kind in kinds.items():
        status, headers, body = send(port, "GET", f"/{path}?text=a")
        assert status == 200 and headers["Content-Type"] == f"text/{kind}; charset=utf-8"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert b"http://" not in body and b"https://" not in body, path
    assert json.loads(send(port, "GET", "/api/model")[2]) == StandIn().card()
    assert post(port, CALM)[1]["outputs"]["label"] == ["calm"]
    assert post(port, CALM, "/api/attention")[1]["pieces"] == ["calm", "sea"]
    for path in ("/favicon.ico", "/../server.py", "/%2e%2e/server.py"):
        status, _, body = send(port, "GET", path)
        assert (status, json.loads(body)) == (404, {"error": "Not Found"}), path
    assert send(port, "GET", "/api/answer")[0] == 404


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("[" * 100_000, 400, "JSON"),
        ("9" * 5000, 400, "JSON"),
        ("null", 400, "JSON"),
        ('{"inputs"', 400, "JSON"),
        ("[]", 400, '{"inputs": {...}}'),
        (b"\xff", 400, "JSON"),
        (json.dumps({"inputs": {"text": [FAILING]}}), 400, "This text <b>cannot</b> be taken"),
        (json.dumps({"inputs": {"text": []}}), 500, "terminal"),
        (" " * (server.MAX_BODY_BYTES + 1), 413, " 1048576 bytes"),
        (iter([b" " * 4096] * 1024), 413, " 1048576 bytes"),  # Without Content-Length.
    ],
)
def test_what_goes_wrong_is_one_line_of_json(port, body, status, message) -> None:
    received, answer = post(port, body)
    assert received == status and message in answer["error"] and "\n" not in answer["error"]


def test_errors_hold_no_text_that_cannot_be_sent() -> None:
    """Half a surrogate pair is JSON, but not UTF-8; a terminal would obey the rest."""
    sent = json.loads(server.refusal(400, "No model of \ud800\x1b[2J\n é中").body)
    assert sent["error"].isprintable() and "é中" in sent["error"]


def test_only_the_own_page_may_ask(port) -> None:
    own = f"127.0.0.1:{port}"
    assert post(port, CALM, Host=f"evil.example:{port}")[0] == 403
    assert send(port, "GET", "/", None, {"Host": ""})[0] == 403
    assert post(port, CALM, Origin="http://evil.example")[0] == 403
    assert post(port, CALM, Origin="null")[0] == 403
    assert post(port, CALM, **{"Content-Type": "text/plain"})[0] == 415
    assert post(port, CALM, Host=own, Origin=f"http://{own}")[0] == 200
    own = ["demo.local:80", "DEMO.local", "10.0.0.7:8000", "[::1]:8000", "localhost:9", "127.0.0.1"]
    assert all(is_own_name(host, "demo.local") for host in own)
    foreign = ["", "a.com", "localhost.a.com", "127.0.0.1.a.com", "::1", "[a]:1"]
    assert not any(is_own_name(host, "demo.local") for host in foreign)


def test_one_request_is_computed_at_a_time_and_none_of_lost_connections(capfd) -> None:
    begun, go_on, computed = threading.Event(), threading.Event(), []

    class Waiting(StandIn):
        def answer(self, inputs):
            computed.extend(inputs["text"])
            begun.set()
            assert go_on.wait(60)
            return super().answer(inputs)

    with serving(Waiting()) as port, ThreadPoolExecutor() as pool:
        first = pool.submit(post, port, CALM)
        assert begun.wait(60)
        for body in (WILD, WILD[:9], "", WILD):
            with socket.create_connection(("127.0.0.1", port), 9) as client:
                # So that it ends with a reset.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(f"{REQUEST}Content-Length: {len(WILD)}\r\n\r\n{body}".encode())
                time.sleep(0.1)
        last = pool.submit(post, port, CALM)
        assert send(port, "GET", "/")[0] == 200
        go_on.set()
        assert first.result()[0] == last.result()[0] == 200
    assert computed == ["calm sea", "calm sea"]
    assert capfd.readouterr().err == ""


@pytest.fixture
def run(monkeypatch):
    """Runs the program in this process with a made-up model."""
    monkeypatch.setattr(model, "load_model", lambda *_: StandIn())
    return lambda **flags: demo.show(
        demo.DemoConfig(**{"model_dir": "made-up", "port": 0, **flags})
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_program_while_a_connection_is_open(
    monkeypatch, capsys, run, number
) -> None:
    def end_tests(*_):
        raise AssertionError("The program does not handle SIGTERM.")

    urls, answers = [], []

    def ask():
        port = urlsplit(urls[0]).port
        with socket.create_connection(("127.0.0.1", port), 60):
            answers.append(post(port, CALM)[0])
            os.kill(os.getpid(), number)

    def open_browser(url):
        urls.append(url)
        threading.Thread(target=ask).start()

    monkeypatch.setattr("webbrowser.open", open_browser)
    before = signal.signal(signal.SIGTERM, end_tests)
    try:
        run(open=True)
    finally:
        signal.signal(signal.SIGTERM, before)
    printed = capsys.readouterr().out
    first, *_, last = printed.splitlines()
    assert answers == [200] and "classifier" in first and urls[0] in first
    assert last and urls[0] not in last


def test_what_is_missing_is_said_in_one_line(monkeypatch, run) -> None:
    with pytest.raises(ValueError, match="--model_dir"):
        run(model_dir="")
    with pytest.raises(ValueError, match="--kind=search .*--index"):
        run(kind="search")
    with demo.listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1, port {port}: .* --port"):
            run(port=port)
    with pytest.raises(OSError, match="203.0.113.1, port 0: .* --host"):
        run(host="203.0.113.1")
    monkeypatch.delattr("export.page.server")
    monkeypatch.delitem(sys.modules, "export.page.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ValueError, match=r"uvicorn; .*pip install '\.\[demo\]'"):
        run()


@pytest.mark.slow
def test_the_program_answers_and_ends_at_ctrl_c(tmp_path) -> None:
    folder = write_model(tmp_path / "sst2", "classifier")
    process = subprocess.Popen(
        [sys.executable, "-m", "export.demo", f"--model_dir={folder}", "--port=0", "--host=::1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A script's background processes inherit that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    line = next(line for line in process.stdout if "http://" in line)
    assert "classifier" in line and "http://[::1]:" in line
    client = http.client.HTTPConnection("::1", int(line.split("]:")[1].split("/")[0]), timeout=60)
    client.request("POST", "/api/answer", json.dumps({"inputs": {"text": ["the river", ""]}}), JSON)
    answer = json.loads(client.getresponse().read())
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)[0]
    client.close()
    assert len(answer["outputs"]["label"]) == 2 and answer["milliseconds"] > 0
    assert process.returncode == 0 and len(rest.strip().splitlines()) == 1, rest
