"""The group of workers: who is missing, who has other flags, and who dies."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bert_tf.launch import free_ports
from bert_tf.system.hosts import tf_config
from bert_tf.training import worker_group
from bert_tf.training.worker_group import WorkerGroup, joined_workers, own_address
from tests.tiny_training import write_examples

# A worker in a process of its own: it says that the run began, then does what it reads.
WORKER = """
import sys
from bert_tf.training import worker_group
worker_group.GRACE_SECONDS = worker_group.BEAT_SECONDS = 0.2
with worker_group.joined_workers("multi_worker", {}):
    print("begun", flush=True)
    exec(sys.stdin.readline())
"""


def hosts_of(count):
    return [f"localhost:{port}" for port in free_ports(count)]


@contextlib.contextmanager
def running(hosts, *command):
    """Starts a process for each host, the first last; kills what is left of them."""
    workers = []
    try:
        for index in reversed(range(len(hosts))):
            worker = subprocess.Popen(
                [sys.executable, "-c", *command],
                env={**os.environ, "TF_CONFIG": tf_config(hosts, index)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            workers.insert(0, worker)
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


@pytest.fixture
def three():
    """Three workers whose run has begun, and their hosts."""
    hosts = hosts_of(3)
    with running(hosts, WORKER) as workers:
        assert [worker.stdout.readline() for worker in workers] == 3 * ["begun\n"]
        yield hosts, workers


def tell(worker, code):
    """Makes a worker run a line of code."""
    worker.stdin.write(f"{code}\n")
    worker.stdin.flush()


def ended(worker, seconds=60):
    """Waits for the end; returns (exit status, last line)."""
    status = worker.wait(timeout=seconds)
    errors = worker.communicate()[1]
    return status, (errors.strip().splitlines() or [""])[-1]


def test_workers_that_leave_one_by_one_are_not_missed(three):
    _, workers = three
    for worker in (workers[1], workers[0], workers[2]):
        tell(worker, "")
        assert ended(worker) == (0, "")
        time.sleep(0.3)  # Longer than the grace.


def test_all_hear_why_one_failed(three):
    hosts, workers = three
    tell(workers[1], "raise ValueError('No such file.')")
    assert ended(workers[1]) == (1, "ValueError: No such file.")
    for worker in (workers[0], workers[2]):
        status, line = ended(worker)
        assert status == 69 and re.search(rf"Worker 1 .*\({hosts[1]}\).*No such file\.", line)


# An error as TensorFlow's, without loading it: seconds a process.
NETWORK_ERROR = """import types; errors = types.SimpleNamespace(OpError=RuntimeError, \
UnavailableError=RuntimeError, AbortedError=RuntimeError); sys.modules["tensorflow"] = \
types.SimpleNamespace(errors=errors); worker_group.GRACE_SECONDS = 4; \
worker_group.SILENT_SECONDS = 2; \
raise RuntimeError("Connection reset by peer")"""


@pytest.mark.parametrize(
    ("victim", "number", "error", "how"),
    [
        (0, signal.SIGKILL, None, "gone"),
        (1, signal.SIGKILL, None, "gone"),
        (2, signal.SIGKILL, NETWORK_ERROR, "gone"),  # The error waits for the name.
        (0, signal.SIGSTOP, NETWORK_ERROR, "answer"),
        pytest.param(1, signal.SIGSTOP, NETWORK_ERROR, "answer", marks=pytest.mark.slow),
    ],
)
def test_all_name_the_one_that_is_killed_or_stopped(three, victim, number, error, how):
    hosts, workers = three
    others = workers[:victim] + workers[victim + 1 :]
    if error:
        for worker in others:
            tell(worker, error)
        time.sleep(0.5)
    workers[victim].send_signal(number)
    for worker in others:
        status, line = ended(worker)
        assert status == 69
        named = rf"ERROR: Worker {victim} .*\({hosts[victim]}\) .*{how}.*checkpoint\."
        assert re.fullmatch(named, line)


TRAINING = """
import pathlib, sys
from tests import tiny_training
tiny_training.STEP_SECONDS = 0.5
tiny_training.load()
tiny_training.run(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1], "examples"), "multi_worker")
"""


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_tensorflow_itself_misses_a_worker_that_is_stopped(tmp_path, victim):
    hosts = hosts_of(2)
    write_examples(tmp_path / "examples")
    with running(hosts, TRAINING, tmp_path) as workers:
        while not (tmp_path / "metrics.jsonl").exists():
            time.sleep(0.1)
            assert [worker.poll() for worker in workers] == [None, None]
        workers[victim].send_signal(signal.SIGSTOP)
        status, line = ended(workers[1 - victim], seconds=300)
    assert status == 69
    assert re.match(rf"ERROR: Worker {victim} .*\({hosts[victim]}\) .*answer", line)


def join_all(hosts, values):
    """Lets workers, whose values are given by index, join and leave; returns each one's
    error, "" without."""

    def call(index):
        try:
            return WorkerGroup(hosts, index, values[index])
        except ValueError as error:
            return error

    with ThreadPoolExecutor(len(values)) as pool:
        called = list(pool.map(call, values))
    for group in called:
        if isinstance(group, WorkerGroup):
            group.leave()
    return ["" if isinstance(group, WorkerGroup) else str(group) for group in called]


def test_other_flags_are_refused_everywhere(monkeypatch):
    monkeypatch.setattr(worker_group, "PATIENCE_SECONDS", 5.0)
    hosts = hosts_of(3)
    # A list of files is longer than a message may be.
    values = {"seed": "1", "size": "8", "input_file": "file.txt," * 20_000}
    (printed,) = set(join_all(hosts, {0: values, 1: values, 2: {**values, "seed": "2"}}))
    assert re.search(rf"worker 2 \({hosts[2]}\) .*--seed=2 .*1\.$", printed)
    other = {**values, "input_file": values["input_file"] + "x"}
    (printed,) = set(join_all(hosts, {0: values, 1: values, 2: other}))
    assert printed.count("(SHA-256 ") == 2 and len(printed) < 500


def test_missing_workers_are_named_everywhere(monkeypatch):
    monkeypatch.setattr(worker_group, "PATIENCE_SECONDS", 2.0)
    hosts = hosts_of(4)
    (missing,) = set(join_all(hosts, {0: {}, 2: {}}))
    assert missing.endswith(f" 2 s: worker 1 ({hosts[1]}), worker 3 ({hosts[3]}).")
    monkeypatch.setattr(worker_group, "PATIENCE_SECONDS", 1.0)
    (missing,) = join_all(hosts, {1: {}})
    assert missing.endswith(f" 1 s: worker 0 ({hosts[0]}).")


@contextlib.contextmanager
def waiting(hosts):
    """Worker 0 waits for worker 1 in a thread; in the end both are there."""
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(join_all, hosts, {0: {}})
        while not can_connect(hosts[0]):
            time.sleep(0.02)
        try:
            yield
        finally:
            assert join_all(hosts, {1: {}}) == called.result() == [""]


def can_connect(host):
    name, port = host.split(":")
    with contextlib.suppress(OSError):
        socket.create_connection((name, int(port)), timeout=1).close()
        return True
    return False


def test_a_stranger_at_the_end_leaves_no_trace(monkeypatch, caplog):
    monkeypatch.setattr(worker_group, "PATIENCE_SECONDS", 1.0)
    hosts = hosts_of(2)
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(join_all, hosts, {0: {}})
        while not can_connect(hosts[0]):
            time.sleep(0.02)
        with socket.create_connection(("localhost", int(hosts[0].split(":")[1]))):
            assert f"worker 1 ({hosts[1]})" in called.result()[0]
    assert "Exception" not in caplog.text


def test_a_port_that_cannot_be_used_is_said():
    port = free_ports(1)[0]
    with socket.create_server(("", port)):
        with pytest.raises(ValueError, match=f"Port {port}.*TF_CONFIG"):
            WorkerGroup([f"localhost:{port}", "localhost:1"], 0, {})
    with pytest.raises(ValueError, match="Port 2222 .*TF_CONFIG.*192.0.2.1"):
        WorkerGroup(["192.0.2.1:2222", "192.0.2.2:2222"], 0, {})


def test_worker_0_listens_at_its_own_address_only():
    port = free_ports(1)[0]
    with waiting([f"127.0.0.2:{port}", "127.0.0.3:1"]):
        assert not can_connect(f"127.0.0.1:{port}")


def test_the_loopback_address_of_its_own_name_is_not_that_of_a_worker(monkeypatch):
    """Debian's /etc/hosts: the name of the machine itself is 127.0.1.1."""
    known = {"node1": "127.0.1.1", "node2": "127.0.0.9"}
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda name, port, **more: real(known[name], port, **more)
    )
    assert own_address(["node1:1", "node1:2"]) == "127.0.1.1"
    assert own_address(["node1:1", "node2:1"]) == "127.0.0.1"


def test_strangers_at_the_port_are_sent_away(monkeypatch):
    monkeypatch.setattr(worker_group, "HELLO_SECONDS", 1.0)
    monkeypatch.setattr(worker_group, "PATIENCE_SECONDS", 20.0)
    hosts = hosts_of(2)
    address = ("localhost", int(hosts[0].split(":")[1]))
    texts = [b"GET / HTTP/1.1\r\n\r\n", b'{"index": 7}\n', b'{"index": 1}\n', b"[1]\n"]
    texts += [60000 * b"[" + b"\n"]  # Nested too deeply for Python's JSON.
    with contextlib.ExitStack() as stack, waiting(hosts):
        for text in texts:
            with socket.create_connection(address, timeout=5) as stranger:
                stranger.sendall(text)
                assert stranger.recv(1) == b""
        with socket.create_connection(address, timeout=5) as stranger:
            with pytest.raises(OSError):  # Closed by worker 0, who keeps no more than a message.
                for _ in range(1000):
                    stranger.sendall(worker_group.MESSAGE_BYTES * b"x")
        for _ in range(worker_group.MAX_STRANGERS + 10):  # They say nothing, and stay.
            stack.enter_context(socket.create_connection(address, timeout=5))


def test_one_device_and_one_worker_need_no_call(monkeypatch):
    monkeypatch.setattr(worker_group, "WorkerGroup", None)
    for distribution, hosts in (("one_device", hosts_of(2)), ("multi_worker", hosts_of(1))):
        monkeypatch.setenv("TF_CONFIG", tf_config(hosts, 0))
        with joined_workers(distribution, {}):
            pass
