"""The workers of a run know of each other: all are there at the start, and none is lost unnoticed.

Before TensorFlow loads, each worker reports to worker 0, at the port where TensorFlow's server will
listen later. When all are there and were given the same flags, the run begins. The connections
stay. The hangs, or ends without a name, that they prevent:

- a worker that never starts: the others give up after `PATIENCE_SECONDS`;
- one that dies: the system closes its connection, whatever it died of; TensorFlow waits for ever
  for one that died while it started;
- a machine or a network that goes down: nothing is acknowledged for `NETWORK_SECONDS`;
- one that is stopped but alive: TensorFlow ends the others, and here they learn who fell silent.

Worker 0 tells all others who is lost; each ends with one line and status `LOST_WORKER_STATUS`.
"""

import contextlib
import errno
import ipaddress
import json
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any, NoReturn

from absl import logging

from bert_tf.hosts import LOST_WORKER_STATUS, read_tf_config

PATIENCE_SECONDS = 600.0  # For workers that do not start.
NOTICE_SECONDS = 30.0  # Between lines that say for whom we wait.
GRACE_SECONDS = 10.0  # In which a worker that learns of a loss may finish a line or a file.
NETWORK_SECONDS = 40.0  # In which the other machine must acknowledge what was sent.
BEAT_SECONDS = 2.0  # Between signs of life.
SILENT_SECONDS = 8.0  # Without a sign of life; counts only when TensorFlow reports an error.
HELLO_SECONDS = 5.0  # In which one who connects to worker 0 must say who it is.
MESSAGE_BYTES = 1 << 16
MAX_STRANGERS = 64  # Who have connected and not said who they are.

Message = dict[str, Any]


class Link:
    """Messages, a line of JSON each, over a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.begin = time.monotonic()
        self._rest = b""
        self._limit_time()

    def _limit_time(self) -> None:
        milliseconds = int(1000 * NETWORK_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def send(self, **message: Any) -> None:
        """Sends a message; nothing happens if the other end is gone: reading tells."""
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self) -> list[Message] | None:
        """Waits for data and returns the messages in them; None if the other end closed.

        One who sends something else, or a message above `MESSAGE_BYTES`, counts as gone.

        Raises:
          TimeoutError: if the socket has a timeout and nothing comes.
        """
        try:
            data = self.socket.recv(MESSAGE_BYTES)
        except OSError as error:
            if isinstance(error, TimeoutError) and error.errno is None:  # Ours, not the network's.
                raise
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            return None
        if not data or len(self._rest) > MESSAGE_BYTES:
            return None
        return messages if all(isinstance(m, dict) for m in messages) else None

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
        self._heard = dict.fromkeys(links, time.monotonic())  # The last sign of life of each.
        self._told: list[int] = []  # Who is silent as worker 0 says.
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
            self._end()
        if is_network:
            if silent := self._silent():
                self._lose(silent[0], "does not answer: it is stopped, or hangs.")
            else:
                self._loss = "The connection to another worker broke."
            self._end()

    def _watch(self) -> None:
        next_beat = 0.0
        with selectors.DefaultSelector() as selector:
            for index, link in self.links.items():
                selector.register(link.socket, selectors.EVENT_READ, index)
            while selector.get_map():
                for key, _ in selector.select(BEAT_SECONDS):
                    if not self._listen(key.data):
                        selector.unregister(key.fileobj)
                        del self._heard[key.data]
                if time.monotonic() >= next_beat:
                    next_beat = time.monotonic() + BEAT_SECONDS
                    self._beat()

    def _beat(self) -> None:
        """Gives a sign of life, but not to the silent: nobody empties their connection."""
        silent = self._silent()
        for index in self._heard:
            if index not in silent:
                self.links[index].send(silent=silent)

    def _silent(self) -> list[int]:
        """Returns the workers that have not been heard of, the longest first, here or by worker 0.

        That alone is no error: TensorFlow keeps the interpreter's lock, for minutes as it starts.
        """
        latest = time.monotonic() - SILENT_SECONDS
        heard = dict(self._heard)  # Both threads ask.
        silent = [index for index in heard if heard[index] < latest]
        return sorted(silent, key=heard.__getitem__) or self._told

    def _listen(self, index: int) -> bool:
        """Reads what a worker says; returns whether it may say more."""
        self._heard[index] = time.monotonic()
        messages = self.links[index].read()
        for message in messages or []:
            self._told = message.get("silent", self._told)
            if "left" in message:
                if message["left"]:
                    self._end_soon(index, f"failed: {message['left']}")
                return False
            if "lost" in message:
                self._end_soon(message["lost"], message["how"])
        if messages is None:
            self._end_soon(index, "is gone: it was killed, or its network is down.")
        return messages is not None

    def _end_soon(self, index: int, how: str) -> None:
        self._lose(index, how)
        time.sleep(GRACE_SECONDS)
        if not self._has_left:
            self._end()

    def _lose(self, index: int, how: str) -> None:
        """Notes who is lost, and tells the others before they miss this worker."""
        self._loss = f"Worker {index} of {len(self.hosts)} ({self.hosts[index]}) {how}"
        for other, link in self.links.items():
            if other != index:
                link.send(lost=index, how=how)
        self._is_found.set()

    def _end(self) -> NoReturn:
        with self._ending:  # Both threads may come here; the second waits for the end.
            remedy = "Start all workers again: they go on from the newest checkpoint."
            print(f"ERROR: {self._loss} {remedy}", file=sys.stderr, flush=True)
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
        tf = sys.modules.get("tensorflow")  # Not loaded yet: it cannot be one of its errors.
        if tf and isinstance(error, tf.errors.OpError):
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
            link.send(fault=fault[: MESSAGE_BYTES // 8])
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
    begin = noticed = time.monotonic()
    missing = set(range(1, len(hosts)))
    with contextlib.closing(_hellos(_listeners(hosts, end))) as hellos:
        while missing and (now := time.monotonic()) < end:
            if now - noticed > NOTICE_SECONDS:
                noticed = now
                logging.info("Waiting for %s.", _names(hosts, missing))
            link, hello = next(hellos)
            if link is None:
                continue
            index, theirs = hello.get("index"), hello.get("values")
            if not (isinstance(index, int) and isinstance(theirs, dict) and 0 < index < len(hosts)):
                link.socket.close()  # Somebody else.
                continue
            if index in links:  # It was started again meanwhile.
                links[index].socket.close()
            links[index] = link
            faults[index] = _differences(values, theirs)
            missing.discard(index)
    if missing:
        seconds = time.monotonic() - begin
        return links, f"{_names(hosts, missing)} did not start within {seconds:.0f} s."
    wrong = [f"worker {i} ({hosts[i]}) has {text}" for i, text in sorted(faults.items()) if text]
    fault = f"All workers must have the same flags, but {'; '.join(wrong)}." if wrong else ""
    return links, fault


def _hellos(listeners: list[socket.socket]) -> Generator[tuple[Link | None, Message]]:
    """Yields who says hello, and nobody now and then.

    Anybody may connect: whoever says nothing is sent away, the oldest first where they are many.
    """
    strangers: list[Link] = []
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for listener in listeners:
            selector.register(stack.enter_context(listener), selectors.EVENT_READ, listener)
        while True:
            for key, _ in selector.select(0.5):
                if isinstance(link := key.data, socket.socket):
                    with contextlib.suppress(OSError):  # It has gone away again.
                        link = Link(link.accept()[0])
                        selector.register(link.socket, selectors.EVENT_READ, link)
                        strangers.append(link)
                elif (messages := link.read()) != []:
                    selector.unregister(link.socket)
                    strangers.remove(link)
                    if messages:
                        yield link, messages[0]
                    else:
                        link.socket.close()
            latest = time.monotonic() - HELLO_SECONDS
            while strangers and (strangers[0].begin < latest or len(strangers) > MAX_STRANGERS):
                selector.unregister(strangers[0].socket)
                strangers.pop(0).socket.close()
            yield None, {}


def _report(host: str, index: int, values: Mapping[str, str], end: float) -> tuple[Link, str]:
    """Another worker: tells worker 0 that it is there; returns the link and what is wrong."""
    begin = noticed = time.monotonic()
    while time.monotonic() < end:
        with contextlib.suppress(OSError):  # It has not started; its name may not be known yet.
            link = Link(socket.create_connection(_split(host), timeout=HELLO_SECONDS))
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


def _listeners(hosts: list[str], end: float) -> list[socket.socket]:
    """Listens at worker 0's own address, as TF_CONFIG names it, and nowhere else.

    Raises:
      ValueError: if that is no address of this machine, or the port is taken.
    """
    name, port = _split(hosts[0])
    listeners = []
    while True:
        try:
            for family, address in _own_addresses(hosts):
                listeners.append(socket.create_server((address, port), family=family, backlog=1024))
                listeners[-1].setblocking(False)
            return listeners
        except OSError as error:
            if isinstance(error, socket.gaierror) and time.monotonic() < end:
                time.sleep(0.2)  # A pod's name may be known only seconds after its start.
                continue
            if listeners and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                return listeners  # "localhost" may have an address that this machine lacks.
            remedy = (
                "Is another run here? Give another port."
                if error.errno == errno.EADDRINUSE
                else f"Name this machine in TF_CONFIG by an address that it has itself, not {name}."
            )
            raise ValueError(
                f"Port {port}, that of this worker in TF_CONFIG, cannot be used at {name}: "
                f"{error.strerror}. {remedy}"
            ) from error


def _own_addresses(hosts: list[str]) -> list[tuple[socket.AddressFamily, str]]:
    """Returns (family, address) of worker 0's name.

    Debian gives a machine's own name the address 127.0.1.1, which no other machine reaches: then it
    is the address from which this machine would speak to another worker.
    """
    name, port = _split(hosts[0])
    found: list[tuple[socket.AddressFamily, str]] = [
        (family, str(address[0]))
        for family, _, _, _, address in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    ]
    others = [host for host in hosts if _split(host)[0] != name]
    is_name = all(address != name for _, address in found)
    if (
        others
        and is_name
        and all(ipaddress.ip_address(address).is_loopback for _, address in found)
    ):
        family, _, _, _, address = socket.getaddrinfo(*_split(others[0]), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as route:
            route.connect(address)  # Sends nothing.
            return [(family, route.getsockname()[0])]
    return found


def _split(host: str) -> tuple[str, int]:
    name, _, port = host.rpartition(":")
    return name.strip("[]"), int(port)


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
