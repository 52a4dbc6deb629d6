"""The roll call: who is missing, who has other flags, and who dies."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from bert_tf.hosts import tf_config
from bert_tf.launch import free_ports
from bert_tf.training import roll_call
from bert_tf.training.roll_call import Link, _own_addresses, call_roll, together
from tests.tiny_training import write_examples

# A worker in a process of its own: it says that the run began, then does what it reads.
WORKER = """
import sys
from bert_tf.training import roll_call
roll_call.GRACE_SECONDS = roll_call.BEAT_SECONDS = 0.2
with roll_call.together("multi_worker", {"seed": sys.argv[1]}):
    print("begun", flush=True)
    exec(sys.stdin.readline())
"""


def hosts_of(count):
    return [f"localhost:{port}" for port in free_ports(count)]


def start_worker(hosts, index, seed="1"):
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, seed],
        env={**os.environ, "TF_CONFIG": tf_config(hosts, index)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def three():
    """Three workers whose run has begun, and their hosts."""
    hosts = hosts_of(3)
    workers = [start_worker(hosts, index) for index in (2, 1, 0)][::-1]
    assert [worker.stdout.readline() for worker in workers] == 3 * ["begun\n"]
    yield hosts, workers
    for worker in workers:
        worker.kill()
        worker.communicate()


def tell(worker, code=""):
    """Makes a worker run a line of code and end; returns (exit status, its last line)."""
    errors = worker.communicate(code + "\n" if worker.poll() is None else None, timeout=30)[1]
    return worker.returncode, (errors.strip().splitlines() or [""])[-1]


def test_workers_that_leave_one_by_one_are_not_missed(three):
    _, workers = three
    for worker in (workers[1], workers[0], workers[2]):
        assert tell(worker) == (0, "")
        time.sleep(0.3)  # Longer than the grace.


@pytest.mark.parametrize("victim", [0, 1])
def test_all_name_the_one_that_was_killed(three, victim):
    hosts, workers = three
    begin = time.monotonic()
    workers[victim].send_signal(signal.SIGKILL)
    others = [worker for worker in workers if worker is not workers[victim]]
    assert [worker.wait(timeout=20) for worker in others] == [69, 69]
    assert time.monotonic() - begin < 5
    for worker in others:
        line = worker.communicate()[1].strip()
        assert line.startswith(f"ERROR: Worker {victim} of 3 ({hosts[victim]}) is gone")
        assert line.endswith("Start all workers again: they go on from the newest checkpoint.")


def test_all_hear_why_one_failed(three):
    hosts, workers = three
    status, line = tell(workers[1], "raise ValueError('No such file.')")
    assert (status, line) == (1, "ValueError: No such file.")
    for worker in (workers[0], workers[2]):
        assert worker.wait(timeout=20) == 69
        line = worker.communicate()[1]
        assert f"Worker 1 of 3 ({hosts[1]}) failed: No such file." in line


# An error as TensorFlow's, without loading it: seconds a process.
NETWORK_ERROR = """import types; errors = types.SimpleNamespace(OpError=RuntimeError, \
UnavailableError=RuntimeError, AbortedError=RuntimeError); sys.modules["tensorflow"] = \
types.SimpleNamespace(errors=errors); roll_call.GRACE_SECONDS = 4; roll_call.SILENT_SECONDS = 2; \
raise RuntimeError("Connection reset by peer")"""


def test_an_error_of_the_network_waits_for_the_name(three):
    hosts, workers = three
    workers[0].stdin.write(f"{NETWORK_ERROR}\n")
    workers[0].stdin.flush()
    time.sleep(0.5)
    workers[2].kill()
    assert workers[0].wait(timeout=60) == 69
    assert f"Worker 2 of 3 ({hosts[2]}) is gone" in workers[0].communicate()[1]


@pytest.mark.parametrize("victim", [0, 1])
def test_all_name_the_one_that_is_stopped(three, victim):
    hosts, workers = three
    workers[victim].send_signal(signal.SIGSTOP)
    others = [worker for worker in workers if worker is not workers[victim]]
    for worker in others:
        worker.stdin.write(f"{NETWORK_ERROR}\n")
        worker.stdin.flush()
    for worker in others:
        assert worker.wait(timeout=60) == 69
        line = worker.communicate()[1].strip()
        assert line.startswith(f"ERROR: Worker {victim} of 3 ({hosts[victim]}) does not answer")


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
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", TRAINING, tmp_path],
            env={**os.environ, "TF_CONFIG": tf_config(hosts, index)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in (0, 1)
    ]
    try:
        while not (tmp_path / "metrics.jsonl").exists():
            time.sleep(0.1)
            assert [worker.poll() for worker in workers] == [None, None]
        workers[victim].send_signal(signal.SIGSTOP)
        printed = workers[1 - victim].communicate(timeout=300)[1]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert workers[1 - victim].returncode == 69
    last = printed.strip().splitlines()[-1]
    assert last.startswith(f"ERROR: Worker {victim} of 2 ({hosts[victim]}) does not answer")


def call_all(hosts, values, patience=20.0):
    """Holds a roll call in threads; returns each one's error text, "" without."""
    errors = [""] * len(hosts)
    crews = []

    def call(index):
        try:
            crews.append(call_roll(hosts, index, values[index], patience))
        except ValueError as error:
            errors[index] = str(error)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(hosts)) if values[i]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for crew in crews:
        crew.leave()
    for thread in threading.enumerate():
        if thread.name == "roll_call":  # It ends when all others have left.
            thread.join(timeout=20)
    for crew in crews:
        for link in crew.links.values():
            link.socket.close()
    return errors


def test_other_flags_are_refused_everywhere():
    hosts = hosts_of(3)
    values = [{"seed": "1", "size": "8"}, {"seed": "1", "size": "8"}, {"seed": "2", "size": "8"}]
    expected = (
        f"All workers must have the same flags, but worker 2 ({hosts[2]}) has --seed=2 "
        f"instead of 1."
    )
    assert call_all(hosts, values) == 3 * [expected]


def test_missing_workers_are_named_everywhere():
    hosts = hosts_of(4)
    errors = call_all(hosts, [{"a": "1"}, None, {"a": "1"}, None], patience=1.0)
    expected = f"Worker 1 ({hosts[1]}), worker 3 ({hosts[3]}) of 4 did not start within 1 s."
    assert [errors[0], errors[2]] == 2 * [expected]


def test_a_missing_first_worker_is_named():
    hosts = hosts_of(2)
    errors = call_all(hosts, [None, {"a": "1"}], patience=0.5)
    assert errors[1].startswith(f"Worker 0 ({hosts[0]}) did not start within")


@contextlib.contextmanager
def waiting(hosts):
    """Worker 0 waits for worker 1 in a thread; in the end both are there."""
    errors = []
    thread = threading.Thread(target=lambda: errors.append(call_all(hosts, [{"a": "1"}, None])))
    thread.start()
    while not can_connect(hosts[0]):
        time.sleep(0.02)
    yield
    link, fault = roll_call._report(hosts[0], 1, {"a": "1"}, time.monotonic() + 20)
    link.send(left="")
    thread.join()
    link.socket.close()
    assert (fault, errors) == ("", [["", ""]])


def can_connect(host):
    name, port = host.split(":")
    try:
        socket.create_connection((name, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def test_a_port_that_is_taken_is_said():
    hosts = hosts_of(2)
    port = int(hosts[0].split(":")[1])
    with socket.create_server(("", port)):
        with pytest.raises(ValueError, match=f"Port {port}, that of this worker in TF_CONFIG"):
            call_roll(hosts, 0, {})


def test_worker_0_listens_at_its_own_address_only():
    port = free_ports(1)[0]
    with waiting([f"127.0.0.2:{port}", "127.0.0.3:1"]):
        assert not can_connect(f"127.0.0.1:{port}")


def test_an_address_of_another_machine_is_said():
    with pytest.raises(ValueError, match="Name this machine in TF_CONFIG"):
        call_roll(["192.0.2.1:2222", "192.0.2.2:2222"], 0, {})


def test_the_loopback_address_of_its_own_name_is_not_that_of_a_worker(monkeypatch):
    """Debian's /etc/hosts: the name of the machine itself is 127.0.1.1."""
    known = {"node1": "127.0.1.1", "node2": "127.0.0.9"}
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda name, port, **more: real(known[name], port, **more)
    )
    assert _own_addresses(["node1:1", "node1:2"]) == [(socket.AF_INET, "127.0.1.1")]
    assert _own_addresses(["node1:1", "node2:1"]) == [(socket.AF_INET, "127.0.0.1")]


def test_strangers_at_the_port_are_sent_away():
    hosts = hosts_of(2)
    address = ("localhost", int(hosts[0].split(":")[1]))
    texts = [b"GET / HTTP/1.1\r\n\r\n", b'{"index": 7}\n', b'{"index": 1}\n', b"[1]\n"]
    texts += [60000 * b"[" + b"\n"]  # Nested too deeply for Python's JSON.
    begin = time.monotonic()
    with waiting(hosts), contextlib.ExitStack() as stack:
        for _ in range(roll_call.MAX_STRANGERS + 10):  # They say nothing.
            stack.enter_context(socket.create_connection(address, timeout=5))
        for text in texts:
            with socket.create_connection(address, timeout=5) as stranger:
                stranger.sendall(text)
        with socket.create_connection(address, timeout=5) as stranger:
            with pytest.raises(OSError):  # Closed by worker 0, who keeps no more than a message.
                for _ in range(1000):
                    stranger.sendall(roll_call.MESSAGE_BYTES * b"x")
    assert time.monotonic() - begin < 20


def test_a_connection_whose_probes_fail_is_closed(monkeypatch):
    """The system reports it as ETIMEDOUT, in Python a TimeoutError as that of settimeout is."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    monkeypatch.setattr(Link, "_limit_time", lambda _: None)  # No TCP.
    with ours, theirs:
        link = Link(ours)
        assert link.read_one(0.1) is None  # Nothing came.
        link.socket = FailingSocket()
        assert link.read() is None


class FailingSocket:
    def recv(self, _):
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")


def test_one_device_and_one_worker_need_no_call(monkeypatch):
    calls, done = [], []
    monkeypatch.setattr(roll_call, "call_roll", lambda *arguments: calls.append(arguments))
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with together("one_device", {}):
        done.append("one device")
    monkeypatch.setenv("TF_CONFIG", tf_config(["localhost:1"], 0))
    with together("multi_worker", {}):
        done.append("one worker")
    assert not calls and done == ["one device", "one worker"]
