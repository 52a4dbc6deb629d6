"""The launcher: who is told what, and how all end when one does."""

import re
import signal
import subprocess
import sys
import time

import pytest

from bert_tf.launch import exit_status, share_gpus
from tests.programs import start

PROGRAM = ("--", "tests.launched")


def launch(*actions, environment=(), **flags):
    """Starts workers of `tests.launched`."""
    words = [f"--{name}={value}" for name, value in flags.items()]
    return start("launch", *words, *PROGRAM, *actions, environment=environment)


def ended(process):
    printed = process.communicate(timeout=60)[0]
    return process.returncode, printed


def test_each_worker_is_told_its_place(tmp_path):
    status, printed = ended(launch(local_workers=3, worker_logs=tmp_path))
    assert status == 0, printed
    lines = [next(line for line in printed.splitlines() if line.startswith("worker 0"))]
    lines += [(tmp_path / f"worker-{index}.log").read_text().strip() for index in (1, 2)]
    for index, line in enumerate(lines):
        assert line.startswith(f"worker {index} ") and line.endswith("--distribution=multi_worker")
    hosts = {re.search(r"\[.*\]", line)[0] for line in lines}
    assert len(hosts) == 1
    assert len(set(re.findall(r"localhost:\d+", hosts.pop()))) == 3


@pytest.mark.parametrize(
    ("action", "expected", "said"),
    [
        ("1:exit=3", 3, "Worker 1 of 2 ended with 3."),
        ("1:kill", 137, "Worker 1 of 2 was killed by SIGKILL."),
    ],
)
def test_one_that_fails_ends_all(action, expected, said):
    begin = time.monotonic()
    status, printed = ended(launch("0:wait", action, local_workers=2, grace_seconds=0.5))
    assert (status, time.monotonic() - begin < 30) == (expected, True), printed
    assert said in printed
    assert "worker 1: worker 1 " in printed  # Its last lines.


def test_a_lost_worker_is_blamed_not_the_one_that_missed_it():
    status, printed = ended(launch("0:exit=69", "1:kill", local_workers=2))
    assert status == 137 or "Worker 0 of 2 ended with 69" in printed, printed


def test_signals_are_handed_on_once(tmp_path):
    process = launch("0:wait", "1:wait", local_workers=2, worker_logs=tmp_path)
    log = tmp_path / "worker-1.log"
    while not (log.exists() and "ready" in log.read_text()):
        time.sleep(0.05)
    assert any("ready" in line for line in process.stdout)
    process.send_signal(signal.SIGTERM)
    status, printed = ended(process)
    assert status == 128 + signal.SIGTERM, printed
    assert printed.count("saved") == 1 + printed.count("worker 1: saved")
    assert log.read_text().endswith("saved\n")
    assert "Starting all" not in printed


def test_workers_end_with_a_launcher_that_is_killed(tmp_path):
    process = launch("0:wait", "1:wait", local_workers=2, worker_logs=tmp_path)
    log = tmp_path / "worker-1.log"
    while not (log.exists() and "ready" in log.read_text()):
        time.sleep(0.05)
    process.kill()
    end = time.monotonic() + 20
    while not log.read_text().endswith("saved\n"):
        assert time.monotonic() < end
        time.sleep(0.05)
    process.communicate(timeout=20)


def test_all_start_again_after_a_loss(tmp_path):
    action = f"1:once={tmp_path / 'killed'}"
    flags = {"local_workers": 2, "grace_seconds": 0.5, "worker_logs": tmp_path}
    status, printed = ended(launch(action, restarts=2, **flags))
    assert status == 0, printed
    assert "Starting all workers again (1 of 2)." in printed
    assert "(2 of 2)" not in printed and printed.count("worker 0 ") == 2
    status, printed = ended(launch("1:exit=1", restarts=2, **flags))  # Would come again.
    assert status == 1 and "Starting all" not in printed


def test_wrong_flags_are_one_line():
    for flags in ({}, {"local_workers": 2, "slurm": "true"}):
        status, printed = ended(launch(**flags))
        assert status == 1 and "ERROR: Give one of --local_workers" in printed
    process = start("launch", "--local_workers=2")
    assert "ERROR: No program" in ended(process)[1]


def test_hosts_of_slurm_and_of_a_list_reach_the_program():
    slurm = {
        "SLURM_STEP_NODELIST": "n[9-10]",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_PROCID": "1",
        "SLURM_JOB_ID": "7",
    }
    for flags, environment, hosts in (
        ({"slurm": "true"}, slurm, ["n9:10112", "n10:10112"]),
        ({"hosts": "b-[0-1].b:22"}, {"JOB_COMPLETION_INDEX": "1"}, ["b-0.b:22", "b-1.b:22"]),
    ):
        status, printed = ended(launch("1:exit=5", environment=environment, **flags))
        assert status == 5 and f"worker 1 {{'worker': {hosts}}}" in printed


def test_gpus_are_shared_evenly():
    assert share_gpus(["4", "5"], 2) == [
        {"CUDA_VISIBLE_DEVICES": "4"},
        {"CUDA_VISIBLE_DEVICES": "5"},
    ]
    assert share_gpus([], 2) == [{}, {}]
    with pytest.raises(ValueError, match="--local_workers=2 cannot share 3 GPUs evenly"):
        share_gpus(["0", "1", "2"], 2)


def test_the_launcher_loads_no_tensorflow():
    code = "import sys, bert_tf.launch; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_exit_statuses_are_a_shell_s():
    assert [exit_status(code) for code in (0, 3, -9)] == [0, 3, 137]
