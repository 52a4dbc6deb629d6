"""The roll call: who is missing, who has other flags, and who dies."""

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
from bert_tf.training.roll_call import Link, call_roll, together

# A worker in a process of its own: it says that the run began, then does what it reads.
WORKER = """
import sys
from bert_tf.training import roll_call
roll_call.GRACE_SECONDS = 0.2
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


@pytest.mark.parametrize("victim", [0, 1, 2])
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


def test_an_error_of_the_network_waits_for_the_name(three):
    hosts, workers = three
    code = "import tensorflow as tf; import time; time.sleep(1);"
    code += "raise tf.errors.UnavailableError(None, None, 'Connection reset by peer')"
    workers[0].stdin.write(code + "\n")
    workers[0].stdin.flush()
    workers[2].kill()
    assert workers[0].wait(timeout=60) == 69
    assert f"Worker 2 of 3 ({hosts[2]}) is gone" in workers[0].communicate()[1]


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


def test_strangers_at_the_port_are_ignored():
    hosts = hosts_of(2)
    errors = []
    thread = threading.Thread(target=lambda: errors.append(call_all(hosts, [{"a": "1"}] * 2)))
    port = int(hosts[0].split(":")[1])
    with socket.create_server(("", port)):  # Another program has it: said at once.
        with pytest.raises(ValueError, match=f"Port {port}, that of this worker in TF_CONFIG"):
            call_roll(hosts, 0, {})
    thread.start()
    texts = (b"GET / HTTP/1.1\r\n\r\n", b'{"index": 7}\n', b'{"index": 1}\n', b"[1]\n")
    for text in texts:
        while True:
            try:
                with socket.create_connection(("localhost", port), timeout=1) as stranger:
                    stranger.sendall(text)
                break
            except OSError:
                if errors:
                    break
    thread.join()
    assert errors == [["", ""]]


def test_a_connection_whose_probes_fail_is_closed(monkeypatch):
    """The system reports it as ETIMEDOUT, in Python a TimeoutError as that of settimeout is."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    monkeypatch.setattr(Link, "_keep_alive", lambda _: None)  # No TCP.
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
