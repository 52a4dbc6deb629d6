"""The launcher: who is told what, and how all end when one does."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from absl import flags
from absl.testing import flagsaver

from bert_tf import launch
from bert_tf.launch import share_gpus
from tests.programs import start

DIE = "import signal; os.kill(os.getpid(), signal.SIGKILL)"
# As a run does that trains.
WAIT = """
import signal, time
def stop(number, _):
    print("saved", flush=True)
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(60)
"""


def start_workers(*codes, **flags):
    words = [f"--{name}={value}" for name, value in flags.items()]
    return start("launch", *words, "--", "tests.launched", *codes)


def ended(process):
    """Waits for the end; returns (exit status, output)."""
    printed = process.communicate(timeout=60)[0]
    return process.returncode, printed


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def two_waiting(tmp_path):
    """A launcher whose two workers wait for a signal, and the log of worker 1."""
    process = start_workers(f"0:{WAIT}", f"1:{WAIT}", local_workers=2, worker_logs=tmp_path)
    log = tmp_path / "worker-1.log"
    wait_until(lambda: log.exists() and "ready" in log.read_text())
    assert any("ready" in line for line in process.stdout)
    yield process, log
    process.kill()
    process.communicate()


def test_one_that_is_killed_ends_those_that_wait_for_it():
    begin = time.monotonic()
    process = start_workers(f"0:{WAIT}", f"1:{DIE}", local_workers=2, grace_seconds=0.5)
    status, printed = ended(process)
    assert (status, time.monotonic() - begin < 30) == (137, True), printed
    assert re.search(r"Worker 1 of 2.*SIGKILL\.", printed)
    assert "worker 1: worker 1 " in printed  # Its last lines.


@pytest.mark.slow
def test_signals_are_handed_on_once(two_waiting):
    process, log = two_waiting
    process.send_signal(signal.SIGTERM)
    status, printed = ended(process)
    assert status == 128 + signal.SIGTERM, printed
    assert printed.count("saved") == 1 + printed.count("worker 1: saved")
    assert log.read_text().endswith("saved\n")
    assert "Restarting" not in printed


def test_a_signal_while_workers_start_reaches_those_that_start_after_it(monkeypatch, tmp_path):
    def start_worker(_, index):
        if index == 1:
            signal.raise_signal(signal.SIGTERM)
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(5)"])

    workers = launch.Workers([], launch.LaunchConfig(local_workers=2, worker_logs=str(tmp_path)))
    monkeypatch.setattr(workers, "_start", start_worker)
    workers.run()
    assert [process.returncode for process in workers.processes] == [-signal.SIGTERM] * 2


@pytest.mark.slow
def test_workers_end_with_a_launcher_that_is_killed(two_waiting):
    process, log = two_waiting
    process.kill()
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: log.read_text().endswith("saved\n"))
    assert log.read_text().count("saved") == 1


@pytest.mark.slow
def test_all_start_again_after_a_loss(tmp_path):
    once = (
        f"1:if not os.path.exists('{tmp_path}/once'): open('{tmp_path}/once', 'x').close(); {DIE}"
    )
    flags = {"local_workers": 2, "grace_seconds": 0.5, "worker_logs": tmp_path, "restarts": 2}
    status, printed = ended(start_workers(once, **flags))
    assert status == 0, printed
    assert re.search(r"Restarting .*\(1 of 2\)\.", printed) and "(2 of 2)" not in printed
    # Each is told its place; the other's log has both starts.
    lines = [line for line in printed.splitlines() if line.startswith("worker 0 ")]
    lines += (tmp_path / "worker-1.log").read_text().splitlines()
    assert [line[:9] for line in lines] == 2 * ["worker 0 "] + 2 * ["worker 1 "]
    hosts = [re.findall(r"localhost:\d+", line) for line in lines]
    assert hosts[:2] == hosts[2:] and [len(set(pair)) for pair in hosts] == 4 * [2]
    status, printed = ended(start_workers("1:sys.exit(1)", **flags))  # Would come again.
    assert status == 1 and "Restarting" not in printed


def launched(monkeypatch, given, *command):
    """Returns what the launcher would become: (its words, TF_CONFIG)."""
    started = []
    monkeypatch.setattr(os, "execve", lambda *arguments: started.append(arguments))
    monkeypatch.setattr(launch, "run_here", lambda *_: 0)
    with flagsaver.flagsaver():
        flags.FLAGS(["launch", *(f"--{name}={value}" for name, value in given.items())])
        launch.main(list(command))
    ((_, words, environment),) = started
    return words, json.loads(environment["TF_CONFIG"])


@pytest.mark.parametrize(
    ("given", "program", "message"),
    [
        ({}, "program", "--local_workers, --slurm .*--hosts"),
        ({"local_workers": 2, "slurm": True}, "program", "--local_workers, --slurm .*--hosts"),
        ({"local_workers": 2}, "--seed=1", "program.* -- bert_tf"),
        ({"hosts": "a:1", "restarts": 3}, "program", "restarts=3.*local"),
        ({"slurm": True, "worker_logs": "x"}, "program", "worker_logs=x"),
        ({"local_workers": 2, "index": 1}, "program", "index=1"),
    ],
)
def test_wrong_flags_are_said(monkeypatch, given, program, message):
    with pytest.raises(ValueError, match=message):
        launched(monkeypatch, given, program)


def test_hosts_of_slurm_and_of_a_list_reach_the_program(monkeypatch):
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    words, config = launched(monkeypatch, {"hosts": "b-[0-1].b:22"}, "program", "--seed=1")
    assert words[1:] == ["-m", "program", "--seed=1", "--distribution=multi_worker"]
    assert config["cluster"]["worker"] == ["b-0.b:22", "b-1.b:22"] and config["task"]["index"] == 1
    monkeypatch.setattr(launch, "slurm_config", lambda: "[7]")
    assert launched(monkeypatch, {"slurm": True}, "program")[1] == [7]


def test_gpus_are_shared_evenly(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert [share["CUDA_VISIBLE_DEVICES"] for share in share_gpus(2)] == ["4,5", "6,7"]
    with pytest.raises(ValueError, match="--local_workers=3 .*4 GPUs"):
        share_gpus(3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert share_gpus(2) == [{}, {}]
