"""Starts a program on several hosts, or as several processes on this machine.

    python -m bert_tf.launch --local_workers=2 -- \\
        bert_tf.run_pretraining --flagfile=configs/quickstart.flags --output_dir=runs/two

`--local_workers` starts that many processes here and ends them together. `--slurm` and `--hosts`
start only the process of this host. The program gets TF_CONFIG and --distribution=multi_worker.
"""

import ctypes
import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

from absl import logging

from bert_tf.config import Config, config_flags, option
from bert_tf.system.hosts import (
    LOST_WORKER_STATUS,
    listed_config,
    slurm_config,
    tf_config,
)


@dataclasses.dataclass(frozen=True)
class LaunchConfig(Config):
    """Location of the workers; exactly one of the first three must be given."""

    local_workers: int = option(0, "Processes on this machine; they share its GPUs.", lower=0)
    slurm: bool = option(False, "This process is a task started by Slurm's srun.")
    hosts: str = option("", "Hosts with ports, in short form: bert-[0-3].bert:2222,other:2222.")
    index: int = option(
        -1,
        "Index of this host in `hosts`; -1: JOB_COMPLETION_INDEX.",
        lower=-1,
        needs=("hosts",),
    )
    restarts: int = option(
        0, "Maximum restarts of local workers after a loss.", lower=0, needs=("local_workers",)
    )
    grace_seconds: float = option(
        20.0,
        "Seconds for local workers to end after a failure.",
        lower=0.0,
        needs=("local_workers",),
    )
    worker_logs: str = option(
        "",
        "Folder for the output of local workers; empty: a new folder.",
        needs=("local_workers",),
    )


config_flags.define_flags(LaunchConfig)

# Exit statuses of a run that was stopped and has saved its state.
STOPPED = (os.EX_TEMPFAIL, 128 + signal.SIGINT, 128 + signal.SIGTERM)
POLL_SECONDS = 0.1
LINES_SHOWN = 10


def main(command: list[str]) -> int:
    """Starts the program; returns its exit status.

    Raises:
      ValueError: if flags contradict each other, or the hosts cannot be determined.
    """
    config = config_flags.from_flags(LaunchConfig)
    if bool(config.local_workers) + config.slurm + bool(config.hosts) != 1:
        raise ValueError("Give one of --local_workers, --slurm and --hosts.")
    if not command or command[0].startswith("-"):
        raise ValueError(
            "No program; name it after --, for example -- bert_tf.run_pretraining --help."
        )
    words = [sys.executable, "-m", *command, "--distribution=multi_worker"]
    if not config.local_workers:
        hosts = slurm_config() if config.slurm else listed_config(config.hosts, config.index)
        # The program replaces this process, so that signals reach it directly.
        os.execve(sys.executable, words, {**os.environ, "TF_CONFIG": hosts})
    return run_here(words, config)


def run_here(words: list[str], config: LaunchConfig) -> int:
    """Runs workers on this machine, and restarts them after a loss; returns the exit status."""
    workers = Workers(words, config)
    for restart in range(config.restarts + 1):
        status = workers.run()
        if not workers.is_lost(status) or restart == config.restarts:
            break
        logging.info("Restarting all workers (%d of %d).", restart + 1, config.restarts)
    return status


class Workers:
    """Processes on this machine that train together: they receive signals and end together.

    This prevents hangs. Workers that wait for a failed worker are killed after a grace period. No
    worker keeps its port and its GPU when the launcher is killed. A signal is sent to all workers,
    because a single worker that stops would keep the others waiting.
    """

    def __init__(self, words: list[str], config: LaunchConfig) -> None:
        self.words = words
        self.grace_seconds = config.grace_seconds
        self.gpu_shares = share_gpus(config.local_workers)
        logs = config.worker_logs or tempfile.mkdtemp(prefix="bert_tf_workers_")
        folder = pathlib.Path(logs).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        self.logs = [folder / f"worker-{index}.log" for index in range(config.local_workers)]
        logging.info("The output of workers 1 and up is in %s/worker-*.log.", folder)
        self.processes: list[subprocess.Popen] = []
        self._signal = 0

    def run(self) -> int:
        """Starts all workers and waits for them; returns the status of the first failure, or 0."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        old = {number: signal.signal(number, self._forward_signal) for number in numbers}
        hosts = [f"localhost:{port}" for port in free_ports(len(self.logs))]
        self.processes = []
        try:
            for index in range(len(hosts)):
                process = self._start(hosts, index)
                self.processes.append(process)
                # A signal that came before was sent only to the workers that ran then.
                if self._signal:
                    process.send_signal(self._signal)
            return self._wait()
        finally:
            self._kill()
            for number, action in old.items():
                signal.signal(number, action)

    def is_lost(self, status: int) -> bool:
        """Returns whether a run with this status may be restarted, because a process died.

        An error that a program reports would occur again.
        """
        is_stopped = self._signal or status in STOPPED
        return not is_stopped and (status > 128 or status == LOST_WORKER_STATUS)

    def _start(self, hosts: list[str], index: int) -> subprocess.Popen:
        environment = {
            "TF_CONFIG": tf_config(hosts, index),
            **self.gpu_shares[index],
        }
        # Appended, so that a restart keeps the output of the attempt that failed.
        with self.logs[index].open("ab") as log:
            return subprocess.Popen(
                self.words,
                env={**os.environ, **environment},
                # Worker 0 writes to the terminal of the launcher.
                stdout=log if index else None,
                stderr=log if index else None,
                start_new_session=True,  # The launcher forwards Ctrl-C, so that it arrives once.
                preexec_fn=_stop_with_launcher,
            )

    def _wait(self) -> int:
        """Waits for all workers; returns the status of the first failure, or 0.

        After a failure the others get the grace period.
        """
        status = 0
        end = float("inf")
        while True:
            codes = [process.poll() for process in self.processes]
            # Only the first failure counts: others often follow from it.
            failed = [index for index, code in enumerate(codes) if code]
            if failed and not status:
                status = self._report(failed[0])
                if status not in STOPPED:  # The other workers of a stopped run are still saving.
                    end = time.monotonic() + self.grace_seconds
            if None not in codes:
                return status
            if time.monotonic() > end:
                self._kill()
            time.sleep(POLL_SECONDS)

    def _report(self, index: int) -> int:
        """Logs the worker that ended, the reason, and its last lines of output.

        Returns its exit status as in a shell: 128 + N after signal N.
        """
        code = self.processes[index].returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        logging.error("Worker %d of %d %s.", index, len(self.processes), how)
        if index:
            text = self.logs[index].read_text(encoding="utf8", errors="replace")
            for line in text.splitlines()[-LINES_SHOWN:]:
                logging.error("worker %d: %s", index, line)
        return 128 - code if code < 0 else code

    def _forward_signal(self, number: int, _: object) -> None:
        self._signal = number
        for process in self.processes:
            process.send_signal(number)

    def _kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    """Returns free ports of this machine."""
    with ExitStack() as stack:
        # All are open at once, because a closed port could be given out again.
        servers = [socket.create_server(("localhost", 0)) for _ in range(count)]
        return [stack.enter_context(server).getsockname()[1] for server in servers]


def share_gpus(count: int) -> list[dict[str, str]]:
    """Returns for each worker the environment with its share of this machine's NVIDIA GPUs.

    Raises:
      ValueError: if they cannot be shared evenly.
    """
    num_devices = len(list(pathlib.Path("/dev").glob("nvidia[0-9]*")))
    all_gpus = ",".join(map(str, range(num_devices)))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", all_gpus).split(",")
    gpus = [name for name in visible if name not in ("", "-1")]
    if len(gpus) % count:
        raise ValueError(
            f"--local_workers={count} cannot share {len(gpus)} GPUs evenly; choose some with "
            f"CUDA_VISIBLE_DEVICES."
        )
    if not gpus:
        return [{}] * count
    size = len(gpus) // count
    environments = []
    for start in range(0, len(gpus), size):
        environments.append({"CUDA_VISIBLE_DEVICES": ",".join(gpus[start : start + size])})
    return environments


def _stop_with_launcher() -> None:
    """Requests SIGTERM for a starting worker from Linux, if the launcher dies in any way."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


if __name__ == "__main__":
    separator = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    program = sys.argv[separator + 1 :]
    del sys.argv[separator:]
    config_flags.run(lambda _: main(program))
