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
from collections import Counter

import pytest

from export import demo
from export.page import model, server
from export.page.server import is_loopback, is_own_name
from tests.export.demo_stand_in import FAILING, StandIn, serving
from tests.export.made_models import write_model

JSON = {"Content-Type": "application/json"}
CALM = json.dumps({"inputs": {"text": ["calm sea"]}})
WILD = json.dumps({"inputs": {"text": ["wild sea"]}})


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


def test_files_have_their_types_and_ask_for_nothing_elsewhere(port) -> None:
    kinds = {"/": "html", "/page.css": "css"}
    kinds |= {f"/{name}.js": "javascript" for name in ("page", "answers", "attention", "dom")}
    for path, kind in kinds.items():
        status, headers, body = send(port, "GET", f"{path}?text=a")
        assert status == 200 and headers["Content-Type"] == f"text/{kind}; charset=utf-8"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert b"http://" not in body and b"https://" not in body, path


def test_model_answer_and_attention(port) -> None:
    status, headers, body = send(port, "GET", "/api/model")
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert json.loads(body) == StandIn().card()
    assert post(port, CALM)[1]["outputs"]["label"] == ["calm"]
    assert post(port, CALM, "/api/attention")[1]["pieces"] == ["calm", "sea"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("{", 400, "not JSON"),
        ("[" * 100_000, 400, "not JSON"),
        ("[]", 400, 'Expected {"inputs": {...}}.'),
        (b"\xff", 400, "not JSON"),
        (json.dumps({"inputs": {"text": [FAILING]}}), 400, "This text <b>cannot</b> be taken"),
        (json.dumps({"inputs": {"text": []}}), 500, "its terminal says why"),
        (" " * (server.MAX_BODY_BYTES + 1), 413, "at most 1048576"),
        (iter([b" " * 4096] * 1024), 413, "at most 1048576"),  # Without Content-Length.
    ],
)
def test_what_goes_wrong_is_one_line_of_json(port, body, status, message) -> None:
    received, answer = post(port, body)
    assert received == status and message in answer["error"]
    assert "Traceback" not in answer["error"] and "\n" not in answer["error"]


def test_only_the_own_page_may_ask(port) -> None:
    own = f"127.0.0.1:{port}"
    assert post(port, CALM, Host="evil.example")[0] == 403
    assert send(port, "GET", "/api/model", None, {"Host": f"evil.example:{port}"})[0] == 403
    assert send(port, "GET", "/", None, {"Host": ""})[0] == 403
    assert post(port, CALM, Origin="http://evil.example")[0] == 403
    assert post(port, CALM, Origin="null")[0] == 403
    assert post(port, CALM, **{"Content-Type": "text/plain"})[0] == 415
    assert post(port, CALM, Host=own, Origin=f"http://{own}")[0] == 200
    assert post(port, CALM, Host="localhost:9")[0] == 200  # A port that was forwarded.


def test_unknown_places_and_methods(port) -> None:
    for path in ("/favicon.ico", "/../server.py", "/%2e%2e/server.py", "/%00", "//etc/passwd"):
        status, headers, body = send(port, "GET", path)
        assert (status, json.loads(body)) == (404, {"error": "Not Found"}), path
        assert headers["Content-Type"] == "application/json"
    for method, path in (("POST", "/api/model"), ("DELETE", "/"), ("GET", "/api/answer")):
        assert send(port, method, path, "{}", JSON)[0] in (404, 405)


def test_names_of_the_server() -> None:
    own = ["demo.local:80", "DEMO.local", "10.0.0.7:8000", "[::1]:8000", "localhost", "127.0.0.1"]
    assert all(is_own_name(host, "demo.local") for host in own)
    foreign = ["", "a.com", "localhost.a.com", "127.0.0.1.a.com", "demo.local:a", "::1", "[a]:1"]
    assert not any(is_own_name(host, "demo.local") for host in foreign)
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("demo.local")


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_64_clients_that_keep_their_connections_all_get_their_answers(times) -> None:
    seen = Counter()

    def ask(client):
        for body, label in [(CALM, "calm"), (WILD, "<b>wild</b>")] * times:
            try:
                client.request("POST", "/api/answer", body, JSON)
                answer = json.loads(client.getresponse().read())
                seen[answer["outputs"]["label"] == [label]] += 1
            except OSError as error:
                seen[type(error)] += 1

    with contextlib.ExitStack() as stack:
        # They connect at once, while the model is still being loaded.
        listener = stack.enter_context(server.listen("127.0.0.1", 0))
        port = listener.getsockname()[1]
        clients = [http.client.HTTPConnection("127.0.0.1", port, timeout=2) for _ in range(64)]
        for client in clients:
            stack.callback(client.close)
            client.connect()
            client.sock.settimeout(120)
        stack.enter_context(serving(StandIn(), listener))
        threads = [threading.Thread(target=ask, args=[client]) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == {True: 64 * 2 * times}


def test_while_the_model_computes_pages_are_sent_and_other_requests_wait() -> None:
    begun, go_on, inside = threading.Semaphore(0), threading.Event(), []

    class Waiting(StandIn):
        def answer(self, inputs):
            inside.append(inputs)
            begun.release()
            assert go_on.wait(60)
            assert inside == [inputs]
            inside.clear()
            return super().answer(inputs)

    with serving(Waiting()) as port:
        answers = []
        ask = [threading.Thread(target=lambda: answers.append(post(port, CALM))) for _ in range(3)]
        for thread in ask:
            thread.start()
        assert begun.acquire(timeout=60)
        assert send(port, "GET", "/")[0] == 200
        assert not begun.acquire(timeout=0.2)  # One at a time.
        go_on.set()
        for thread in ask:
            thread.join()
    assert [status for status, _ in answers] == [200] * 3


REQUEST = "POST /api/answer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost:",
        f"{REQUEST}Content-Length: 100\r\n\r\n{{".encode(),
        b"GET /api/model HTTP/1.1\r\nHost: localhost\r\n\r\n",  # Whose answer is not read.
    ],
    ids=["nothing", "headers", "body", "answer"],
)
def test_slow_clients_are_dropped_without_a_word(monkeypatch, capfd, sent) -> None:
    monkeypatch.setattr(server, "SECONDS_FOR_REQUEST", 0.3)
    received, large = 0, StandIn()
    large.card = lambda: {"name": "x" * 50_000_000}  # More than a socket holds.
    with serving(large) as port, socket.create_connection(("127.0.0.1", port), 9) as client:
        client.sendall(sent)
        if sent.endswith(b"\r\n\r\n"):
            client.recv(1)  # The answer has begun.
        time.sleep(1.5)
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(1 << 16):
                received += len(part)
        assert post(port, CALM)[0] == 200
    assert received < 40_000_000
    assert capfd.readouterr().err == ""


def test_the_time_of_the_model_is_not_the_clients(monkeypatch) -> None:
    monkeypatch.setattr(server, "SECONDS_FOR_REQUEST", 0.1)

    class Slow(StandIn):
        def answer(self, inputs):
            time.sleep(0.7)
            return super().answer(inputs)

    with serving(Slow()) as port:
        assert post(port, CALM)[0] == 200


def test_lost_connections_leave_no_traces_and_are_not_computed(capfd) -> None:
    computed, go_on = [], threading.Event()

    class Waiting(StandIn):
        def answer(self, inputs):
            computed.append(inputs["text"])
            assert go_on.wait(60)
            return super().answer(inputs)

    with serving(Waiting()) as port:
        for body in (CALM, CALM[:9], "", CALM, CALM):
            with socket.create_connection(("127.0.0.1", port), 9) as client:
                # So that it ends with a reset.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(f"{REQUEST}Content-Length: {len(CALM)}\r\n\r\n{body}".encode())
                time.sleep(0.1)
        assert send(port, "GET", "/")[0] == 200
        go_on.set()
        assert post(port, WILD)[0] == 200
    assert computed == [["calm sea"], ["wild sea"]]
    assert capfd.readouterr().err == ""


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the program in this process with a made-up model; returns what it printed."""

    def show(**flags):
        monkeypatch.setattr(model, "load_model", lambda *_: StandIn())
        assert demo.show(demo.DemoConfig(**{"model_dir": "made-up", "port": 0, **flags})) == 0
        return capsys.readouterr().out

    return show


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_program_while_a_connection_is_open(monkeypatch, run, number) -> None:
    def end_tests(*_):
        raise AssertionError("The program does not handle SIGTERM.")

    before = signal.signal(signal.SIGTERM, end_tests)
    urls, answers = [], []
    monkeypatch.setattr("webbrowser.open", urls.append)
    serve = server.make_server

    def make_server(*arguments):
        def ask():
            port = int(urls[0].split(":")[2].strip("/"))
            with socket.create_connection(("127.0.0.1", port), 60):
                answers.append(post(port, CALM)[0])
                os.kill(os.getpid(), number)

        threading.Thread(target=ask).start()
        return serve(*arguments)

    monkeypatch.setattr(server, "make_server", make_server)
    try:
        printed = run(open=True)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert answers == [200] and printed.strip().endswith("Ended.")
    assert f"classifier: open {urls[0]} in a browser" in printed


def test_what_is_missing_is_said_in_one_line(monkeypatch, run) -> None:
    with pytest.raises(ValueError, match="--model_dir"):
        run(model_dir="")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"Port {port} of 127.0.0.1 is in use.*--port"):
            run(port=port)
    with pytest.raises(OSError, match="Cannot listen at 203.0.113.1"):
        run(host="203.0.113.1")
    monkeypatch.delattr("export.page.server")
    monkeypatch.delitem(sys.modules, "export.page.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ValueError, match=r"uvicorn.*pip install 'bert_tf\[demo\]'"):
        run()


@pytest.mark.slow
def test_the_program_answers_and_ends_at_ctrl_c(tmp_path) -> None:
    folder = write_model(tmp_path / "sst2", "classifier")
    # A script's background processes inherit that Ctrl-C is ignored.
    arguments = [f"--model_dir={folder}", "--port=0", "--host=::1", "--open"]
    process = subprocess.Popen(
        [sys.executable, "-m", "export.demo", *arguments],
        env={**os.environ, "BROWSER": "true"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    line = next(line for line in process.stdout if "http://" in line)
    assert line.startswith("classifier: open http://[::1]:") and "Ctrl-C ends" in line
    client = http.client.HTTPConnection("::1", int(line.split("]:")[1].split("/")[0]), timeout=60)
    client.request("POST", "/api/answer", json.dumps({"inputs": {"text": ["the river", ""]}}), JSON)
    answer = json.loads(client.getresponse().read())
    process.send_signal(signal.SIGINT)  # While a connection is open.
    rest = process.communicate(timeout=60)[0]
    client.close()
    assert len(answer["outputs"]["label"]) == 2 and answer["milliseconds"] > 0
    assert process.returncode == 0 and rest.strip() == "Ended.", rest
