"""The workers of a run: who is missing, who has other flags, and who is lost."""

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
from bert_tf.training.worker_group import call_roll, joined_workers
from tests.tiny_training import write_examples


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


def ended(worker, seconds=60):
    """Waits for the end; returns (exit status, last line)."""
    status = worker.wait(timeout=seconds)
    errors = worker.communicate()[1]
    return status, (errors.strip().splitlines() or [""])[-1]


TRAINING = """
import pathlib, sys
from tests import tiny_training
tiny_training.STEP_SECONDS = 0.5
tiny_training.load()
tiny_training.run(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1], "examples"), "multi_worker")
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_ends_when_another_is_killed_or_stopped(tmp_path, victim, number):
    hosts = hosts_of(2)
    write_examples(tmp_path / "examples")
    with running(hosts, TRAINING, tmp_path) as workers:
        while not (tmp_path / "metrics.jsonl").exists():
            time.sleep(0.1)
            assert [worker.poll() for worker in workers] == [None, None]
        workers[victim].send_signal(number)
        status, line = ended(workers[1 - victim], seconds=120)
    assert status == 69 and line.startswith("ERROR: ") and "checkpoint" in line
    # When the coordinator, worker 0, is stopped, TensorFlow's error names none.
    if number == signal.SIGKILL or victim:
        assert f"Worker {victim} of 2 ({hosts[victim]})" in line


@pytest.mark.parametrize(
    ("error", "message", "named"),
    [
        ("UnavailableError", "from remote target /job:worker/replica:0/task:1: reset", "Worker 1 "),
        ("InternalError", "Collective ops is aborted by: /job:worker/task:1", "Worker 1 "),
        ("AbortedError", "no name", "another worker"),
        ("InvalidArgumentError", "task:1 has a wrong shape", None),
    ],
)
def test_an_error_of_the_network_ends_the_process(monkeypatch, capsys, error, message, named):
    import tensorflow as tf

    def leave(status):
        raise SystemExit(status)

    monkeypatch.setattr(worker_group.os, "_exit", leave)
    monkeypatch.setattr(worker_group, "call_roll", lambda *_: None)
    monkeypatch.setenv("TF_CONFIG", tf_config(hosts_of(2), 0))
    failure = getattr(tf.errors, error)(None, None, message)
    with pytest.raises(SystemExit if named else type(failure)) as ended:  # noqa: SIM117
        with joined_workers("multi_worker", {}):
            raise failure
    if named:
        assert ended.value.code == 69
        assert named in capsys.readouterr().err


def join_all(hosts, values):
    """Calls the roll of workers, whose values are given by index; returns their errors or ""."""

    def call(index):
        try:
            call_roll(hosts, index, values[index])
        except ValueError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(len(values)) as pool:
        return list(pool.map(call, values))


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
    with socket.create_server(("", port)), pytest.raises(ValueError, match=f"{port}.*TF_CONFIG"):
        call_roll([f"localhost:{port}", "localhost:1"], 0, {})


def test_strangers_at_the_port_are_sent_away(monkeypatch):
    monkeypatch.setattr(worker_group, "HELLO_SECONDS", 0.5)
    monkeypatch.setattr(worker_group, "PATIENCE_SECONDS", 20.0)
    hosts = hosts_of(2)
    address = ("localhost", int(hosts[0].split(":")[1]))
    texts = [b"GET / HTTP/1.1\r\n\r\n", b'{"index": 7}\n', b'{"index": 1}\n', b"[1]\n", b""]
    texts += [60000 * b"[" + b"\n"]  # Nested too deeply for Python's JSON.
    with waiting(hosts):
        for text in texts:
            with socket.create_connection(address, timeout=5) as stranger:
                stranger.sendall(text)
                with contextlib.suppress(ConnectionResetError):
                    assert stranger.recv(1) == b""
        with socket.create_connection(address, timeout=5) as stranger, pytest.raises(OSError):
            for _ in range(1000):  # Closed by worker 0, who reads no more than a message.
                stranger.sendall(worker_group.MESSAGE_BYTES * b"x")


def test_one_device_and_one_worker_need_no_call(monkeypatch):
    monkeypatch.setattr(worker_group, "call_roll", None)
    for distribution, hosts in (("one_device", hosts_of(2)), ("multi_worker", hosts_of(1))):
        monkeypatch.setenv("TF_CONFIG", tf_config(hosts, 0))
        with joined_workers(distribution, {}):
            pass
