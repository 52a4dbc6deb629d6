"""Faults at random moments of small trainings, and what they leave: the table of reliability.md.

    python -m benchmarks.reliability --faults=200 --seed=1 --lanes=6

Every fault meets a training of its own (`tests/tiny_training.py`), in a process that is killed for
good, on a file system that is full, and so on. The command is then given again, after what an
ERROR line asks for was done. A fault is survived if the run ends with the weights, slots and
metrics of the run that nothing disturbed, or says in one line why it does not, and if it went on
from the last whole checkpoint. The same seed gives the same faults; their moments are random.
"""

import argparse
import collections
import json
import multiprocessing
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.timing import print_table
from bert_tf.launch import free_ports
from bert_tf.system.hosts import LOST_WORKER_STATUS
from tests import tiny_training

RESULTS = ("metrics.jsonl", "eval_metrics.jsonl", "events.jsonl", "best_checkpoint.json")
STATE_FILES = (*RESULTS, "checkpoint", "run.flags", "vocab.txt", "bert_config.json")
FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
PREEMPTED, LONGEST = 75, 900.0  # Seconds; workers wait 600 for one that does not start.


class Outcome(NamedTuple):
    """How a fault ended: `resumed equal`, `clear error` or `wrong`."""

    fault: str
    result: str
    note: str


class Wrong(Exception):
    """What must not happen did."""


class Case:
    """One fault: a run directory, its examples, its log, and the randomness of its own."""

    def __init__(self, folder: pathlib.Path, source: random.Random) -> None:
        self.top, self.random = folder, source
        self.folder, self.examples = folder / "run", folder / "examples.tfrecord"
        self.log, self.workers, self.end_of_log = folder / "log", 1, 0
        self.folder.mkdir(parents=True)
        tiny_training.write_examples(self.examples)

    def start(self) -> list[int]:
        """Starts the training, a process a worker."""
        self.end_of_log = self.log.stat().st_size if self.log.exists() else 0
        if self.workers == 1:
            return [self._fork({}, "one_device")]
        hosts = [f"localhost:{port}" for port in free_ports(self.workers)]
        tasks = [{"type": "worker", "index": index} for index in range(self.workers)]
        configs = [{"cluster": {"worker": hosts}, "task": task} for task in tasks]
        return [self._fork({"TF_CONFIG": json.dumps(c)}, "multi_worker") for c in configs]

    def _fork(self, environment: dict[str, str], distribution: str) -> int:
        return tiny_training.fork(self.folder, self.examples, self.log, environment, distribution)

    def wait_for_moment(self, pid: int, first_line: int = 0) -> None:
        """Waits for a random moment: of the start, or after some line of metrics."""
        path, end = self.folder / "metrics.jsonl", time.monotonic() + LONGEST
        if not first_line and self.random.random() < 0.2:
            time.sleep(self.random.uniform(0, 4))
            return
        wanted = self.random.randrange(max(1, first_line), 24)
        while not path.exists() or path.read_bytes().count(b"\n") < wanted:
            if time.monotonic() > end or is_over(pid):
                return
            time.sleep(0.005)
        time.sleep(self.random.uniform(0, 0.1))

    def printed(self) -> str:
        """Returns what was printed since the last start."""
        return self.log.read_bytes()[self.end_of_log :].decode(errors="replace")

    def steps(self) -> list[int]:
        """Returns the steps of the checkpoints that have an index."""
        return sorted(int(p.stem.split("-")[1]) for p in self.folder.glob("model.ckpt-*.index"))

    def damage(self, path: pathlib.Path, how: str = "") -> str:
        """Truncates a file or flips bits of one byte; returns what was done."""
        content = bytearray(path.read_bytes())
        place = self.random.randrange(len(content))
        if (how or self.random.choice(["flipped", "truncated"])) == "truncated":
            path.write_bytes(content[:place])
            return f"{path.name} truncated to {place} of {len(content)} bytes"
        content[place] ^= self.random.randrange(1, 256)
        path.write_bytes(content)
        return f"{path.name}: byte {place} flipped"


def is_over(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def status_of(pid: int) -> int:
    """Waits for the end of a process; one that does not end is wrong."""
    end = time.monotonic() + LONGEST
    while not is_over(pid):
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise Wrong(f"no end within {LONGEST:.0f} s")
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def check_error(printed: str, status: int, expected: int = 1) -> str:
    """Returns the one ERROR line that an end with an error must have."""
    errors = [line for line in printed.splitlines() if line.startswith("ERROR: ")]
    if status != expected or len(errors) != 1 or "Traceback (most" in printed:
        raise Wrong(f"status {status}, {len(errors)} ERROR lines: {printed[-300:]!r}")
    return errors[0]


# The faults. Each returns what it did; the training it met is over then.


def kill(case: Case, first_line: int = 0) -> str:
    (pid,) = case.start()
    case.wait_for_moment(pid, first_line)
    os.kill(pid, signal.SIGKILL)
    return f"ended with {status_of(pid)} at checkpoints {case.steps()}"


def notice(case: Case, number: int) -> str:
    (pid,) = case.start()
    case.wait_for_moment(pid)
    os.kill(pid, number)
    status, began = status_of(pid), bool(case.printed())
    path = case.folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    if status == PREEMPTED and lines and case.steps()[-1] < json.loads(lines[-1])["step"]:
        raise Wrong(f"saved {case.steps()}, but had done {lines[-1]}")
    if status not in (PREEMPTED, 0) and (status != -number or began):
        raise Wrong(f"status {status} after {number}: {case.printed()[-300:]!r}")
    return f"status {status} at checkpoints {case.steps()}"


def fill_disk(case: Case) -> str:
    """Gives the run directory a small file system; where that is not permitted, files a limit."""
    size = case.random.randrange(8, 96)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", case.folder]
    is_mounted = subprocess.run(mount, capture_output=True).returncode == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not is_mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size * 100, before[1]))
    try:
        (pid,) = case.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    status = status_of(pid)
    error = check_error(case.printed(), status) if status else "it sufficed"
    if is_mounted:
        subprocess.run(["mount", "-o", "remount,size=100m", case.folder], check=True)
    return f"{f'{size} KB' if is_mounted else f'limit {size}00 bytes a file'}: {error}"


def damage_checkpoint(case: Case, how: str) -> str:
    did = kill(case, first_line=5)  # When there are two or three.
    files = [p for step in case.steps()[-1:] for p in case.folder.glob(f"model.ckpt-{step}.*")]
    return case.damage(case.random.choice(sorted(files)), how) if files else did


def damage_records(case: Case) -> str:
    did = kill(case) if case.random.random() < 0.5 else "before the start"
    return f"{case.damage(case.examples)}, {did}"


def damage_state(case: Case) -> str:
    kill(case, first_line=1)
    files = [case.folder / name for name in STATE_FILES]
    files = [path for path in files if path.exists() and path.stat().st_size]
    for path in files:
        shutil.copy(path, case.top / f"{path.name}.copy")
    return case.damage(case.random.choice(files)) if files else "killed before any was written"


def jump_clock(case: Case) -> str:
    """The clock of a running training jumps; files get dates of the past and the future."""
    clock = case.top / "clock"
    clock.write_text("+0")
    offset = case.random.choice([-1, 1]) * 10 ** case.random.uniform(1, 8.5)
    command = [sys.executable, "-m", "tests.tiny_training", case.folder, case.examples]
    environment = {
        **os.environ, "LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    if not FAKETIME.exists():
        del environment["LD_PRELOAD"]
    with case.log.open("a") as log:
        pid = subprocess.Popen(command, env=environment, stdout=log, stderr=log).pid
    case.wait_for_moment(pid)
    clock.write_text(f"{offset:+.0f}")
    if case.random.random() < 0.7:
        time.sleep(case.random.uniform(0, 3))
        os.kill(pid, signal.SIGKILL)
    status = status_of(pid)
    for path in case.folder.rglob("*"):
        then = time.time() + case.random.choice([-1, 1]) * case.random.uniform(0, 3e8)
        os.utime(path, (then, then))
    how = "" if FAKETIME.exists() else " (dates of files alone: no libfaketime)"
    return f"clock {offset:+.0f} s{how}, then status {status}"


def lose_worker(case: Case) -> str:
    case.workers = 2
    pids = case.start()
    case.wait_for_moment(pids[0])
    lost = case.random.randrange(2)
    os.kill(pids[lost], signal.SIGKILL)
    statuses = [status_of(pid) for pid in pids]
    other = statuses[1 - lost]
    if other:
        check_error(case.printed(), other, LOST_WORKER_STATUS)
    return f"worker {lost} killed, the other ended with {other}"


FAULTS: dict[str, tuple[int, Callable[[Case], str]]] = {
    "kill -9": (50, kill),
    "SIGTERM": (20, lambda case: notice(case, signal.SIGTERM)),
    "SIGUSR1": (10, lambda case: notice(case, signal.SIGUSR1)),
    "full disk": (25, fill_disk),
    "truncated checkpoint": (15, lambda case: damage_checkpoint(case, "truncated")),
    "flipped byte in a checkpoint": (25, lambda case: damage_checkpoint(case, "flipped")),
    "damaged records": (15, damage_records),
    "damaged state file": (20, damage_state),
    "clock jump": (10, jump_clock),
    "lost worker": (10, lose_worker),
}


def go_on(case: Case) -> str:
    """Gives the command again, after what an ERROR line asks for; returns the error, "" if none."""
    error = ""
    for _ in range(2):
        pids, last = case.start(), case.steps()[-1:]
        statuses = [status_of(pid) for pid in pids]
        if not any(statuses):
            check_went_on(case, last)
            return error
        error = check_error(case.printed(), max(statuses))
        tiny_training.write_examples(case.examples)
        for copy in case.top.glob("*.copy"):
            shutil.copy(copy, case.folder / copy.stem)
        if to_delete := re.search(r"or delete (\S+\.)\* to start again", error):
            for path in case.folder.glob(f"{pathlib.Path(to_delete[1]).name}*"):
                path.unlink()
    raise Wrong(f"still {error}")


def check_went_on(case: Case, last: list[int]) -> None:
    """Checks that a run went on from the last checkpoint, or said that this one is damaged."""
    restored = f" at step {last[0]}." if last else ""
    named = f"model.ckpt-{last[0]} is not a readable" if last else ""
    if restored not in case.printed() and named not in case.printed():
        raise Wrong(f"did not go on from {last}: {case.printed()[-300:]!r}")


def check_equal(case: Case, whole: Case) -> str:
    """Checks weights and results against the run that nothing disturbed; returns what was named."""
    weights = [re.findall("^weights .*", one.printed(), re.M)[0] for one in (case, whole)]
    if weights[0] != weights[1]:
        raise Wrong("other weights")
    log, named = case.log.read_text(errors="replace"), []
    for name in RESULTS:
        if (case.folder / name).read_bytes() != (whole.folder / name).read_bytes():
            if f"{name} was damaged" not in log:
                raise Wrong(f"other {name}, and not a word of it")
            named.append(name)
    return f"; {', '.join(named)} named as damaged" if named else ""


def whole_run(folder: pathlib.Path, workers: int) -> Case:
    case = Case(folder, random.Random(0))
    case.workers = workers
    if any(status_of(pid) for pid in case.start()):
        raise Wrong(f"the undisturbed run failed: {case.printed()[-2000:]}")
    return case


def meet(fault: str, case: Case, whole: dict[int, Case]) -> Outcome:
    """Lets a fault happen, goes on, and judges."""
    did = ""
    try:
        did = FAULTS[fault][1](case)
        error = go_on(case)
        named = check_equal(case, whole[case.workers])
        result = "clear error" if error else "resumed equal"
        return Outcome(fault, result, f"{did}; {error}{named}")
    except Exception as wrong:  # Whatever it is, it goes to the table.
        return Outcome(fault, "wrong", f"{did}; {type(wrong).__name__}: {wrong}")
    finally:
        subprocess.run(["umount", "-l", case.folder], capture_output=True)


def meet_numbered(index: int, fault: str, seed: int, whole: dict[int, Case]) -> Outcome:
    """Meets a fault in a folder of its own, which stays if the outcome is wrong."""
    top = whole[1].top.parent / f"{index}"
    outcome = meet(fault, Case(top, random.Random(f"{seed}-{index}")), whole)
    print(index, *outcome, sep=" | ", flush=True)
    if outcome.result != "wrong":
        shutil.rmtree(top, ignore_errors=True)
    return outcome


def print_outcomes(outcomes: list[Outcome]) -> None:
    """Prints the table of reliability.md."""
    counts = collections.Counter((outcome.fault, outcome.result) for outcome in outcomes)
    counts.update(("all", outcome.result) for outcome in outcomes)
    rows = {f: [counts[f, r] for r in ("resumed equal", "clear error", "wrong")] for f, _ in counts}
    heads = ["fault", "times", "resumed equal", "clear error", "wrong"]
    print_table(heads, ([fault, sum(row), *row] for fault, row in rows.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=2, help="trainings at a time")
    parser.add_argument("--only", default="", help="comma-separated faults instead of drawn ones")
    options = parser.parse_args()
    weights = [weight for weight, _ in FAULTS.values()]
    drawn = random.Random(options.seed).choices([*FAULTS], weights, k=options.faults)
    faults = options.only.split(",") if options.only else drawn
    top = pathlib.Path(tempfile.mkdtemp(prefix="faults-"))
    os.environ |= {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2"}
    tiny_training.load()
    counts = [1, 2] if "lost worker" in faults else [1]
    whole = {workers: whole_run(top / f"whole-{workers}", workers) for workers in counts}
    cases = [(index, fault, options.seed, whole) for index, fault in enumerate(faults)]
    with multiprocessing.get_context("fork").Pool(options.lanes) as pool:
        outcomes = pool.starmap(meet_numbered, cases, chunksize=1)
    print_outcomes(outcomes)
    return int(any(outcome.result == "wrong" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
