"""The workers of a run know of each other: all are there at the start, and one that dies is missed.

Before TensorFlow loads, each worker reports to worker 0, at the port where TensorFlow's server will
listen later. When all are there and were given the same flags, the run begins. The connections
stay: the system closes those of a process that dies, whatever it died of, and probes find a machine
that vanished. Worker 0 then tells all others who is gone, and every worker ends with one line and
status `LOST_WORKER_STATUS`. TensorFlow alone does not do that: a worker that waits for one that
died while it started waits for ever.
"""

import contextlib
import json
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from absl import logging

from bert_tf.hosts import LOST_WORKER_STATUS, read_tf_config

PATIENCE_SECONDS = 600.0  # For workers that do not start.
NOTICE_SECONDS = 30.0  # Between lines that say for whom we wait.
GRACE_SECONDS = 10.0  # In which a worker that learns of a loss may finish a line or a file.
PROBE_SECONDS = 10  # Idle time before a probe, and between probes of a connection.
NUM_PROBES = 3

Message = dict[str, Any]


class Link:
    """Messages, a line of JSON each, over a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._rest = b""
        self._keep_alive()

    def _keep_alive(self) -> None:
        options = {"TCP_KEEPIDLE": PROBE_SECONDS, "TCP_KEEPINTVL": PROBE_SECONDS}
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in {**options, "TCP_KEEPCNT": NUM_PROBES}.items():
            self.socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send(self, **message: Any) -> None:
        """Sends a message; nothing happens if the other end is gone: reading tells."""
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self) -> list[Message] | None:
        """Waits for data and returns the messages in them; None if the other end closed.

        Raises:
          TimeoutError: if the socket has a timeout and nothing comes.
        """
        try:
            data = self.socket.recv(1 << 16)
        except OSError as error:
            if isinstance(error, TimeoutError) and error.errno is None:  # Ours, not the network's.
                raise
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:  # Somebody else at our port.
            return None
        return messages if data and all(isinstance(m, dict) for m in messages) else None

    def read_one(self, seconds: float) -> Message | None:
        """Waits for one message; None if it does not come in time, or the other end closed."""
        end = time.monotonic() + seconds
        try:
            while (left := end - time.monotonic()) > 0:
                self.socket.settimeout(left)
                messages = self.read()
                if messages is None:
                    return None
                if messages:
                    return messages[0]
        except TimeoutError:
            pass
        finally:
            self.socket.settimeout(None)
        return None


class Crew:
    """The workers of a run; watches over the connections from a thread of its own.

    Args:
      hosts: "name:port" of all.
      links: worker 0 has one to every other, the others have one to worker 0.
    """

    def __init__(self, hosts: list[str], links: dict[int, Link]) -> None:
        self.hosts = hosts
        self.links = links
        self._loss = ""
        self._is_found = threading.Event()
        self._has_left = False
        self._ending = threading.Lock()
        threading.Thread(target=self._watch, name="roll_call", daemon=True).start()

    def leave(self, reason: str = "") -> None:
        """Says farewell: with a reason, that this worker failed and the others cannot go on."""
        self._has_left = True
        for link in self.links.values():
            link.send(left=reason)

    def end_if_lost(self, is_network: bool) -> None:
        """Ends this process if another worker is gone.

        Args:
          is_network: whether an error says so already; it may come before the thread knows whom.
        """
        if self._is_found.wait(GRACE_SECONDS if is_network else 0.0):
            self._end(self._loss)
        elif is_network:
            self._end("The connection to another worker broke.")

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            for index, link in self.links.items():
                selector.register(link.socket, selectors.EVENT_READ, index)
            while selector.get_map():
                for key, _ in selector.select():
                    if not self._listen(key.data):
                        selector.unregister(key.fileobj)

    def _listen(self, index: int) -> bool:
        """Reads what a worker says; returns whether it may say more."""
        messages = self.links[index].read()
        for message in messages or []:
            if "left" in message:
                if message["left"]:
                    self._lose(index, message["left"])
                return False
            if "lost" in message:
                self._lose(message["lost"], message["reason"])
        if messages is None:
            self._lose(index, "")
        return messages is not None

    def _lose(self, index: int, reason: str) -> None:
        name = f"Worker {index} of {len(self.hosts)} ({self.hosts[index]})"
        how = f"failed: {reason}" if reason else "is gone: it was killed, or its network is down."
        self._loss = f"{name} {how}"
        for other, link in self.links.items():
            if other != index:
                link.send(lost=index, reason=reason)
        self._is_found.set()
        time.sleep(GRACE_SECONDS)
        if not self._has_left:
            self._end(self._loss)

    def _end(self, text: str) -> NoReturn:
        with self._ending:  # Both threads may come here; the second waits for the end.
            remedy = "Start all workers again: they go on from the newest checkpoint."
            print(f"ERROR: {text} {remedy}", file=sys.stderr, flush=True)
            sys.stdout.flush()
            # Not sys.exit: TensorFlow would wait for the one that is gone.
            os._exit(LOST_WORKER_STATUS)


@contextlib.contextmanager
def together(distribution: str, values: Mapping[str, str]) -> Iterator[None]:
    """Holds the roll call, and ends this process if another worker dies inside the block.

    Args:
      distribution: that of `TrainingConfig`; other than multi_worker nothing is done.
      values: what all workers must have alike, by name.

    Raises:
      ValueError: if a worker does not start in time, or has other values.
    """
    hosts, index = read_tf_config() if distribution == "multi_worker" else ([], 0)
    if len(hosts) < 2:
        yield
        return
    crew = call_roll(hosts, index, values)
    try:
        yield
    except BaseException as error:
        if "tensorflow" in sys.modules:  # Before, it cannot be one of its errors.
            import tensorflow as tf

            if isinstance(error, tf.errors.OpError):
                network = tf.errors.UnavailableError | tf.errors.AbortedError
                is_network = isinstance(error, network) or "ollective ops is abort" in str(error)
                crew.end_if_lost(is_network)
        crew.leave(str(error).partition("\n")[0] or type(error).__name__)
        raise
    crew.leave()


def call_roll(
    hosts: list[str], index: int, values: Mapping[str, str], patience: float = PATIENCE_SECONDS
) -> Crew:
    """Waits until all workers are there, and compares their values with those of worker 0.

    Args:
      hosts: "name:port" of all.
      index: of this one.
      values: see `together`.
      patience: seconds to wait.

    Raises:
      ValueError: as `together`.
    """
    end = time.monotonic() + patience
    if index == 0:
        links, fault = _receive(hosts, values, end)
        for link in links.values():
            link.send(fault=fault)
    else:
        link, fault = _report(hosts[0], index, values, end)
        links = {0: link}
    if fault:
        for link in links.values():
            link.socket.close()
        raise ValueError(fault)
    logging.info("All %d workers are there; this is worker %d.", len(hosts), index)
    return Crew(hosts, links)


def _receive(
    hosts: list[str], values: Mapping[str, str], end: float
) -> tuple[dict[int, Link], str]:
    """Worker 0: waits for the others; returns the links and what is wrong, if anything is."""
    links: dict[int, Link] = {}
    faults: dict[int, str] = {}
    begin = time.monotonic()
    missing = set(range(1, len(hosts)))
    with _listener(hosts[0]) as listener:
        while missing and (left := end - time.monotonic()) > 0:
            listener.settimeout(min(left, NOTICE_SECONDS))
            try:
                link = Link(listener.accept()[0])
            except TimeoutError:
                logging.info("Waiting for %s.", _names(hosts, missing))
                continue
            hello = link.read_one(5.0)
            index, theirs = (hello or {}).get("index"), (hello or {}).get("values")
            if not (isinstance(index, int) and isinstance(theirs, dict) and 0 < index < len(hosts)):
                link.socket.close()  # Somebody else.
                continue
            links[index] = link
            faults[index] = _differences(values, theirs)
            missing.discard(index)
    if missing:
        seconds = time.monotonic() - begin
        return links, f"{_names(hosts, missing)} did not start within {seconds:.0f} s."
    wrong = [f"worker {i} ({hosts[i]}) has {text}" for i, text in sorted(faults.items()) if text]
    fault = f"All workers must have the same flags, but {'; '.join(wrong)}." if wrong else ""
    return links, fault


def _report(host: str, index: int, values: Mapping[str, str], end: float) -> tuple[Link, str]:
    """Another worker: tells worker 0 that it is there; returns the link and what is wrong."""
    begin = noticed = time.monotonic()
    name, _, port = host.rpartition(":")
    while time.monotonic() < end:
        with contextlib.suppress(OSError):  # It has not started; its name may not be known yet.
            link = Link(socket.create_connection((name, int(port)), timeout=5.0))
            link.send(index=index, values=dict(values))
            # Its patience may have begun after ours.
            verdict = link.read_one(end - begin + GRACE_SECONDS)
            if verdict and "fault" in verdict:
                return link, verdict["fault"]
            link.socket.close()
        if time.monotonic() - noticed > NOTICE_SECONDS:
            noticed = time.monotonic()
            logging.info("Waiting for worker 0 (%s).", host)
        time.sleep(0.2)
    raise ValueError(f"Worker 0 ({host}) did not start within {time.monotonic() - begin:.0f} s.")


def _listener(host: str) -> socket.socket:
    port = int(host.rpartition(":")[2])
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=1024)
    except OSError as error:
        raise ValueError(
            f"Port {port}, that of this worker in TF_CONFIG, cannot be used: {error.strerror}. Is "
            f"another run here? Give another port."
        ) from error


def _names(hosts: list[str], indices: set[int]) -> str:
    """Returns "Worker 1 (host:port), worker 3 (...) of 4"."""
    named = ", ".join(f"worker {index} ({hosts[index]})" for index in sorted(indices))
    return f"W{named[1:]} of {len(hosts)}"


def _differences(values: Mapping[str, str], others: Mapping[str, str]) -> str:
    names = sorted({*values, *others})
    return ", ".join(
        f"--{name}={others.get(name)} instead of {values.get(name)}"
        for name in names
        if values.get(name) != others.get(name)
    )
