"""Makes sure that all workers of a run start, with the same flags, and ends them when one is lost.

Before TensorFlow loads, each worker reports to worker 0, at the port where TensorFlow's server will
listen later. When all have reported and have the same flags, the run begins. TensorFlow alone would
wait forever for a worker that never starts, and would train with different flags.

From then on TensorFlow notices a worker that is lost: its collective operations end with an error
as soon as a connection breaks, and every 30 seconds it asks whether the others still answer. That
error ends the process with one line and status `LOST_WORKER_STATUS`.

Worker 0 trusts every client that can connect, as TensorFlow's own server at the same port does.
"""

import contextlib
import hashlib
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from absl import logging

from bert_tf.system.hosts import LOST_WORKER_STATUS, read_tf_config
from bert_tf.system.printable import print_error

PATIENCE_SECONDS = 600.0  # For workers that do not start.
NOTICE_SECONDS = 30.0  # Between lines that say for whom we wait.
HELLO_SECONDS = 2.0  # In which a client of worker 0 must identify itself.
MESSAGE_BYTES = 1 << 16
VALUE_CHARACTERS = 200  # The longest value of a flag that is sent whole.


@contextlib.contextmanager
def joined_workers(distribution: str, values: Mapping[str, str]) -> Iterator[None]:
    """Waits for all workers, and ends this process if another worker is lost inside the block.

    Args:
      distribution: that of `TrainingConfig`; only multi_worker has any effect.
      values: settings that all workers must share, by name.

    Raises:
      ValueError: if a worker does not start in time, or has other values.
    """
    hosts, index = read_tf_config() if distribution == "multi_worker" else ([], 0)
    if len(hosts) < 2:
        yield
        return
    call_roll(hosts, index, values)
    try:
        yield
    except Exception as error:
        if _is_loss(error):
            print_error(
                f"{_name_lost(error, hosts)} Restart all workers: they resume from the newest "
                "checkpoint."
            )
            sys.stdout.flush()
            # Not sys.exit: TensorFlow would wait for the lost worker.
            os._exit(LOST_WORKER_STATUS)
        raise


def _is_loss(error: Exception) -> bool:
    """Returns whether an error is TensorFlow's about a connection to another worker."""
    tf = sys.modules.get("tensorflow")  # Not loaded yet: it cannot be one of its errors.
    if tf is None or not isinstance(error, tf.errors.OpError):
        return False
    network = tf.errors.UnavailableError | tf.errors.AbortedError
    return isinstance(error, network) or "ollective ops is abort" in str(error)


def _name_lost(error: Exception, hosts: list[str]) -> str:
    """Returns the worker that TensorFlow's error names, if it names any."""
    named = re.search(r"/task:(\d+)", str(error))
    if named is None or int(named[1]) >= len(hosts):
        return "The connection to another worker broke."
    lost = int(named[1])
    return f"Worker {lost} of {len(hosts)} ({hosts[lost]}) is gone or does not answer."


def call_roll(hosts: list[str], index: int, values: Mapping[str, str]) -> None:
    """Waits until all workers are present.

    Args:
      hosts: "name:port" of all workers.
      index: index of this worker.
      values: settings that all must share, by name.

    Raises:
      ValueError: if a worker does not start in time, or has other values.
    """
    values = {name: _shortened(value) for name, value in values.items()}
    fault = _report(hosts, index, values) if index else _receive(hosts, values)
    if fault:
        raise ValueError(fault)
    logging.info("All %d workers are present; this is worker %d.", len(hosts), index)


def _receive(hosts: list[str], values: Mapping[str, str]) -> str:
    """Worker 0: waits for the others, compares their values with its own, and tells them.

    Returns:
      The fault; "" if all are present with the same values.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    links: dict[int, socket.socket] = {}
    differences: dict[int, str] = {}
    fault = ""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_listener(int(hosts[0].rpartition(":")[2])))
        while missing := sorted({*range(1, len(hosts))} - {*links}):
            server.settimeout(max(min(NOTICE_SECONDS, end - time.monotonic()), 0.001))
            try:
                link, _ = server.accept()
            except TimeoutError:
                if time.monotonic() >= end:
                    fault = f"Did not start within {PATIENCE_SECONDS:.0f} s: "
                    fault += f"{_names(hosts, missing)}."
                    break
                logging.info("Waiting for %s.", _names(hosts, missing))
                continue
            stack.enter_context(link)
            match _read(link, HELLO_SECONDS):
                case {"index": int(index), "values": dict(theirs)} if 0 < index < len(hosts):
                    links[index] = link  # Another one with this index was started again.
                    differences[index] = _differences(values, theirs)
                case _:  # Anyone can connect.
                    link.close()
        wrong = [f"{_names(hosts, [i])} has {text}" for i, text in differences.items() if text]
        if not fault and wrong:
            fault = f"All workers must have the same flags, but {'; '.join(wrong)}."
        # JSON writes most characters outside ASCII as 6 bytes, and the message must fit.
        fault = fault[: MESSAGE_BYTES // 8]
        for link in links.values():
            with contextlib.suppress(OSError):  # TensorFlow will miss it.
                _send(link, fault=fault)
    return fault


def _report(hosts: list[str], index: int, values: Mapping[str, str]) -> str:
    """Another worker: reports to worker 0, and returns what that says is wrong."""
    logging.info("Reporting to worker 0 (%s).", hosts[0])
    name, _, port = hosts[0].rpartition(":")
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        # It has not started, or its name is not known yet.
        with (
            contextlib.suppress(OSError),
            socket.create_connection((name.strip("[]"), int(port)), HELLO_SECONDS) as link,
        ):
            _send(link, index=index, values=dict(values))
            # Worker 0 may have begun to wait later.
            match _read(link, PATIENCE_SECONDS + NOTICE_SECONDS):
                case {"fault": str(fault)}:
                    return fault
        time.sleep(0.2)
    return f"Did not start within {PATIENCE_SECONDS:.0f} s: {_names(hosts, [0])}."


def _listener(port: int) -> socket.socket:
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise ValueError(
            f"Port {port} of this worker in TF_CONFIG cannot be used: {error.strerror}. Give a "
            "port that no other run uses."
        ) from error


def _send(link: socket.socket, **message: object) -> None:
    link.sendall(json.dumps(message).encode() + b"\n")


def _read(link: socket.socket, seconds: float) -> Any:
    """Returns the next message, one line of JSON; None for anything else, or too late."""
    link.settimeout(seconds)
    try:
        with link.makefile("rb") as file:
            return json.loads(file.readline(MESSAGE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def _names(hosts: list[str], indices: Iterable[int]) -> str:
    return ", ".join(f"worker {index} ({hosts[index]})" for index in indices)


def _shortened(value: str) -> str:
    """Returns a value so that all fit in a message: a long one's beginning and hash."""
    if len(value) <= VALUE_CHARACTERS:
        return value
    digest = hashlib.sha256(value.encode("utf8", "surrogateescape")).hexdigest()
    return f"{value[: VALUE_CHARACTERS // 2]}... (SHA-256 {digest[:12]}...)"


def _differences(values: Mapping[str, str], others: Mapping[str, str]) -> str:
    return ", ".join(
        f"--{name}={others.get(name)} instead of {values.get(name)}"
        for name in sorted({*values, *others})
        if values.get(name) != others.get(name)
    )
