"""Makes sure that all workers of a run are present at the start and none is lost unnoticed.

Before TensorFlow loads, each worker reports to worker 0, at the port where TensorFlow's server will
listen later. When all have reported and have the same flags, the run begins. The connections stay
open. They prevent these hangs and anonymous failures:

- a worker that never starts: the others give up after `PATIENCE_SECONDS`;
- a worker that dies: the system closes its connection, whatever the cause; TensorFlow waits forever
  for one that dies at start-up;
- a machine or a network that goes down: nothing is acknowledged for `NETWORK_SECONDS`;
- a worker that is stopped but alive: TensorFlow ends the others, and this module tells them which
  worker is silent.

Worker 0 tells all others which worker is lost; each ends with one line and status
`LOST_WORKER_STATUS`.

Worker 0 trusts every client that can connect, as TensorFlow's own server at the same port does.
"""

import asyncio
import contextlib
import hashlib
import ipaddress
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, NoReturn

from absl import logging

from bert_tf.system.hosts import LOST_WORKER_STATUS, read_tf_config
from bert_tf.system.printable import print_error

PATIENCE_SECONDS = 600.0  # For workers that do not start.
NOTICE_SECONDS = 30.0  # Between lines that say for whom we wait.
GRACE_SECONDS = 10.0  # In which a worker that learns of a loss may finish a line or a file.
NETWORK_SECONDS = 40.0  # In which the other machine must acknowledge a message.
BEAT_SECONDS = 2.0  # Between signs of life.
SILENT_SECONDS = 8.0  # Without a sign of life; counts only when TensorFlow reports an error.
HELLO_SECONDS = 5.0  # In which a client of worker 0 must identify itself.
MESSAGE_BYTES = 1 << 16
VALUE_CHARACTERS = 200  # The longest value of a flag that is sent whole.
MAX_STRANGERS = 64  # Clients that are connected and not identified.

Message = dict[str, Any]
ClientHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Link:
    """Sends and receives messages, one line of JSON each, over a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.heard = time.monotonic()  # The last sign of life.
        # Linux closes a connection whose data are not acknowledged for this long.
        milliseconds = int(1000 * NETWORK_SECONDS)
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def send(self, **message: object) -> None:
        """Sends a message; does nothing if the other end is gone, which reading reports."""
        self.writer.write(json.dumps(message).encode() + b"\n")

    async def read(self) -> Message | None:
        """Returns the next message; None if the other end is gone.

        A peer that sends anything else, or a message above `MESSAGE_BYTES`, counts as gone.
        """
        try:
            message = json.loads(await self.reader.readline())
        except (OSError, ValueError, RecursionError):
            return None
        self.heard = time.monotonic()
        return message if isinstance(message, dict) else None


class WorkerGroup:
    """The workers of a run: waits until all are present, then watches them from a thread.

    Args:
      hosts: "name:port" of all workers.
      index: index of this worker.
      values: settings that all must share, by name.

    Raises:
      ValueError: if a worker does not start in time, or has other values.
    """

    def __init__(self, hosts: list[str], index: int, values: Mapping[str, str]) -> None:
        self.hosts = hosts
        self._links: dict[int, Link] = {}  # Of worker 0 to every other, of the others to worker 0.
        self._told: list[int] = []  # Workers that worker 0 reported as silent.
        self._loss = ""
        self._is_found = threading.Event()
        self._ending = threading.Lock()
        end = time.monotonic() + PATIENCE_SECONDS
        values = {name: _shortened(value) for name, value in values.items()}
        call = self._report(index, values, end) if index else self._receive(values, end)
        self._begun: Future[None] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._live(call),), daemon=True)
        self._thread.start()
        # Waits until the group is complete; raises the error of the thread, if any.
        self._begun.result()
        logging.info("All %d workers are present; this is worker %d.", len(hosts), index)

    def leave(self, reason: str = "") -> None:
        """Leaves the group; a reason marks this worker as failed and ends the others."""
        self._loop.call_soon_threadsafe(self._farewell.set_result, reason)
        self._thread.join(GRACE_SECONDS)

    def end_if_lost(self, is_network: bool) -> None:
        """Ends this process if another worker is gone.

        Args:
          is_network: whether an error already says so, perhaps before the thread knows which
            worker.
        """
        if not self._is_found.wait(GRACE_SECONDS if is_network else 0.0):
            if not is_network:
                return
            if silent := self._silent():
                how = "does not answer: it is stopped, or hangs."
                self._loop.call_soon_threadsafe(self._lose, silent[0], how)
                self._is_found.wait()
            else:
                self._loss = "The connection to another worker broke."
        self._end()

    async def _live(self, call: Awaitable[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._farewell = self._loop.create_future()
        try:
            await call
            watch = [asyncio.create_task(self._listen(index)) for index in self._links]
            watch.append(asyncio.create_task(self._beat()))
            self._begun.set_result(None)
            reason = await self._farewell
            for link in self._links.values():
                link.send(left=reason)
        except Exception as error:
            self._begun.set_exception(error)
        finally:
            for link in self._links.values():
                link.writer.close()

    async def _receive(self, values: Mapping[str, str], end: float) -> None:
        """Worker 0: waits for the others, and compares their values with its own."""
        seconds = end - time.monotonic()
        hellos: asyncio.Queue[tuple[Link, int, Message]] = asyncio.Queue()
        strangers = asyncio.Semaphore(MAX_STRANGERS)

        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Anyone can connect: a client that does not identify itself soon is disconnected."""
            link = Link(reader, writer)
            hello = None
            # Too many clients have not identified themselves: refuse further ones.
            if not strangers.locked():
                async with strangers:
                    # It is cancelled if the run ends first.
                    with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                        hello = await asyncio.wait_for(link.read(), HELLO_SECONDS)
            match hello:
                case {"index": int(index), "values": dict(theirs)} if 0 < index < len(self.hosts):
                    hellos.put_nowait((link, index, theirs))
                case _:
                    writer.close()

        server = await self._listener(hear, end)
        differences: dict[int, str] = {}
        fault = ""
        while missing := sorted({*range(1, len(self.hosts))} - {*differences}):
            try:
                left = min(NOTICE_SECONDS, end - time.monotonic())
                link, index, theirs = await asyncio.wait_for(hellos.get(), left)
            except TimeoutError:
                if time.monotonic() >= end:
                    fault = f"Did not start within {seconds:.0f} s: {self._names(missing)}."
                    break
                logging.info("Waiting for %s.", self._names(missing))
                continue
            if index in self._links:  # It was started again.
                self._links[index].writer.close()
            self._links[index] = link
            differences[index] = _differences(values, theirs)
        # TensorFlow's server needs the port.
        server.close()
        wrong = [f"{self._names([i])} has {text}" for i, text in differences.items() if text]
        if not fault and wrong:
            fault = f"All workers must have the same flags, but {'; '.join(wrong)}."
        # JSON writes most characters outside ASCII as 6 bytes, and the message must fit.
        for link in self._links.values():
            link.send(fault=fault[: MESSAGE_BYTES // 8])
        if fault:
            raise ValueError(fault)

    async def _report(self, index: int, values: Mapping[str, str], end: float) -> None:
        """Another worker: reports to worker 0, and receives errors from it."""
        logging.info("Reporting to worker 0 (%s).", self.hosts[0])
        seconds = end - time.monotonic()
        while time.monotonic() < end:
            with contextlib.suppress(OSError):  # It has not started; its name is not known yet.
                connect = asyncio.open_connection(*_split(self.hosts[0]), limit=MESSAGE_BYTES)
                link = self._links[0] = Link(*await asyncio.wait_for(connect, HELLO_SECONDS))
                link.send(index=index, values=dict(values))
                # The other worker may have begun to wait later.
                verdict = await asyncio.wait_for(link.read(), seconds + GRACE_SECONDS)
                match verdict:
                    case {"fault": ""}:
                        return
                    case {"fault": str(fault)}:
                        raise ValueError(fault)
                link.writer.close()
            await asyncio.sleep(0.2)
        raise ValueError(f"Did not start within {seconds:.0f} s: {self._names([0])}.")

    async def _listener(self, hear: ClientHandler, end: float) -> asyncio.Server:
        """Listens only at worker 0's own address in TF_CONFIG."""
        name, port = _split(self.hosts[0])
        while True:
            try:
                address = own_address(self.hosts)
                return await asyncio.start_server(hear, address, port, limit=MESSAGE_BYTES)
            except OSError as error:
                # A pod's name may be known only seconds after its start.
                if not isinstance(error, socket.gaierror) or time.monotonic() > end:
                    raise ValueError(
                        f"Port {port} of this worker in TF_CONFIG cannot be used at {name}: "
                        f"{error.strerror}. Give a port that no other run uses, and an address "
                        f"that belongs to this machine."
                    ) from error
                await asyncio.sleep(0.2)

    async def _listen(self, index: int) -> None:
        """Reads a worker's messages until it leaves."""
        while message := await self._links[index].read():
            self._told = message.get("silent", self._told)
            if "lost" in message:
                self._lose(message["lost"], message["how"])
            if "left" in message:
                break
        self._links.pop(index).writer.close()
        if not message:
            self._lose(index, "is gone: it was killed, or its network is down.")
        elif message["left"]:
            self._lose(index, f"failed: {message['left']}")

    async def _beat(self) -> None:
        """Sends signs of life, but not to silent workers, because they do not read them."""
        while True:
            silent = self._silent()
            for index, link in self._links.items():
                if index not in silent:
                    link.send(silent=silent)
            await asyncio.sleep(BEAT_SECONDS)

    def _silent(self) -> list[int]:
        """Returns the silent workers, as known here or to worker 0, the longest silent first.

        Silence alone is not an error: TensorFlow holds the interpreter's lock for minutes as it
        starts.
        """
        latest = time.monotonic() - SILENT_SECONDS
        # A copy, because another thread may change the links.
        heard = {index: link.heard for index, link in list(self._links.items())}
        return sorted((i for i in heard if heard[i] < latest), key=heard.__getitem__) or self._told

    def _lose(self, index: int, how: str) -> None:
        """Tells the others which worker is lost, before they miss this one, and ends it soon."""
        if self._loss:
            return
        self._loss = f"Worker {index} of {len(self.hosts)} ({self.hosts[index]}) {how}"
        for other, link in self._links.items():
            if other != index:
                link.send(lost=index, how=how)
        self._is_found.set()
        self._loop.call_later(GRACE_SECONDS, self._end)

    def _end(self) -> NoReturn:
        with self._ending:  # Both threads may come here; the second waits for the end.
            remedy = "Restart all workers: they resume from the newest checkpoint."
            print_error(f"{self._loss} {remedy}")
            sys.stdout.flush()
            # Not sys.exit: TensorFlow would wait for the lost worker.
            os._exit(LOST_WORKER_STATUS)

    def _names(self, indices: Iterable[int]) -> str:
        return ", ".join(f"worker {index} ({self.hosts[index]})" for index in indices)


@contextlib.contextmanager
def joined_workers(distribution: str, values: Mapping[str, str]) -> Iterator[None]:
    """Waits for all workers, and ends this process if another worker dies inside the block.

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
    group = WorkerGroup(hosts, index, values)
    try:
        yield
    except BaseException as error:
        tf = sys.modules.get("tensorflow")  # Not loaded yet: it cannot be one of its errors.
        if tf and isinstance(error, tf.errors.OpError):
            network = tf.errors.UnavailableError | tf.errors.AbortedError
            is_network = isinstance(error, network) or "ollective ops is abort" in str(error)
            group.end_if_lost(is_network)
        group.leave(str(error).partition("\n")[0] or type(error).__name__)
        raise
    group.leave()


def own_address(hosts: list[str]) -> str:
    """Returns the address of worker 0's name, preferably an IPv4 one.

    Debian gives a machine's own name the address 127.0.1.1, which other machines cannot reach; in
    that case this is the address from which this machine would connect to another worker.
    """
    name, port = _split(hosts[0])
    # AF_INET is the smaller number, so IPv4 comes first.
    known = sorted(socket.getaddrinfo(name, port), key=lambda entry: entry[0])
    found = [str(entry[-1][0]) for entry in known]
    others = [_split(host) for host in hosts if _split(host)[0] != name]
    is_loopback = all(ipaddress.ip_address(address).is_loopback for address in found)
    if not others or not is_loopback or name in found:
        return found[0]
    family, _, _, _, address = socket.getaddrinfo(*others[0], type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as route:
        route.connect(address)  # Sends nothing.
        return str(route.getsockname()[0])


def _split(host: str) -> tuple[str, int]:
    name, _, port = host.rpartition(":")
    return name.strip("[]"), int(port)


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
