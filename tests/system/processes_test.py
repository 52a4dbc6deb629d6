"""Work in several processes: order, bounded results, and how killed workers and Ctrl-C end it."""

import functools
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from bert_tf.system.processes import count_workers, map_in_processes

ROOT = pathlib.Path(__file__).resolve().parents[2]


# Run in worker processes, which import them from here.


def finish_later(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def leave_a_file(folder: pathlib.Path, number: int) -> int:
    (folder / str(number)).touch()
    return number


def kill_itself(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def fail(number: int) -> int:
    raise ValueError(f"task {number}")


def write_pid_and_sleep(folder: pathlib.Path, number: int) -> None:
    (folder / f"{number}.tmp").write_text(str(os.getpid()))
    (folder / f"{number}.tmp").rename(folder / f"{number}.pid")
    time.sleep(120)


# The tests.

in_order = functools.partial(map_in_processes, is_ordered=True)


def test_count_workers() -> None:
    assert count_workers(3) == 3
    assert count_workers(0) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("num_workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_all_results_come(num_workers) -> None:
    tasks = [(number, 0.0) for number in range(9)]
    assert sorted(map_in_processes(finish_later, tasks, num_workers)) == list(range(9))
    assert list(in_order(finish_later, tasks, num_workers)) == list(range(9))
    assert list(in_order(finish_later, [], num_workers)) == []


@pytest.mark.slow
def test_order_is_that_of_the_end_or_of_the_tasks() -> None:
    tasks = [(0, 2.0), (1, 0.0), (2, 0.0)]  # far longer than a worker takes to start
    assert list(map_in_processes(finish_later, tasks, 2))[-1] == 0
    assert list(in_order(finish_later, tasks, 2)) == [0, 1, 2]


def test_few_results_wait_for_their_turn(tmp_path) -> None:
    results = in_order(leave_a_file, [(tmp_path, number) for number in range(40)], 2)
    assert next(results) == 0
    time.sleep(1)
    # Four given out at first, and one more for the one that was taken.
    assert len(list(tmp_path.iterdir())) <= 5
    assert list(results) == list(range(1, 40))


def test_killed_worker_is_one_clear_error() -> None:
    with pytest.raises(OSError, match="process .*--num_workers"):
        list(map_in_processes(kill_itself, [(number,) for number in range(20)], 2))


def test_error_of_a_task_is_the_error_here() -> None:
    with pytest.raises(ValueError, match="task"):
        list(in_order(fail, [(0,), (1,)], 2))


# A program without `if __name__ == "__main__"`: workers do not import it.
PROGRAM = """
import pathlib, sys
from bert_tf.system.processes import map_in_processes
from tests.system.processes_test import write_pid_and_sleep
tasks = [(pathlib.Path(sys.argv[1]), number) for number in range(4)]
print("started", flush=True)
try:
    list(map_in_processes(write_pid_and_sleep, tasks, 2, is_ordered=True))
except KeyboardInterrupt:
    print("interrupted")
"""


def start_program(folder: pathlib.Path) -> subprocess.Popen:
    (folder / "program.py").write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, folder / "program.py", folder],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # In the background of a script Ctrl-C is ignored, and children inherit that.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_workers_end_with_a_killed_parent(tmp_path) -> None:
    program = start_program(tmp_path)
    wait_for(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    workers = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
    assert all(map(is_running, workers))
    program.kill()
    program.communicate(timeout=60)
    wait_for(lambda: not any(map(is_running, workers)))


# The delays reach from workers that still load Python to workers that are at work.
@pytest.mark.parametrize(
    "delay",
    [pytest.param(0.0, marks=pytest.mark.slow), pytest.param(0.1, marks=pytest.mark.slow), None],
)
def test_control_c_is_silent(tmp_path, delay) -> None:
    program = start_program(tmp_path)
    assert program.stdout.readline() == "started\n"
    if delay is None:
        wait_for(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    else:
        wait_for(lambda: len(children(program.pid)) >= 3)  # two workers, the resource tracker
        time.sleep(delay)
    os.killpg(program.pid, signal.SIGINT)  # to all processes, as a terminal does
    output, errors = program.communicate(timeout=60)
    assert (output, errors) == ("interrupted\n", "")


def children(pid: int) -> list[str]:
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
