"""Lets downloads end soon after a signal, and log damaged headers of a server as one line."""

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator

from bert_tf.system.printable import escaped

MOST_CHARACTERS = 300  # of a line about headers
SECONDS_TO_END = 3.0
_STOPS = {
    signal.SIGTERM: os.EX_TEMPFAIL,
    signal.SIGUSR1: os.EX_TEMPFAIL,
    signal.SIGINT: 130,
}  # with the exit statuses of `training.stopping`


@contextlib.contextmanager
def fetching() -> Iterator[None]:
    """Ends the process a few seconds after a signal in this block, if it has not ended by then.

    Libraries that download retry for minutes, in threads that the interpreter waits for at exit,
    and in system calls during which Python does not handle signals. Files are renamed when they are
    complete, so nothing is lost. This applies only to programs that catch SIGTERM themselves.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(signal.getsignal(signal.SIGTERM)):
        yield
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    # The C handler of the signal writes here at once, even while the main thread is blocked.
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_end_after_signal, args=(receiver,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        sender.close()


def _end_after_signal(receiver: socket.socket) -> None:
    """Waits for the number of a signal, then some seconds for the process to end by itself."""
    with receiver:
        # A byte for each signal; nothing more after the block has closed the socket.
        while numbers := receiver.recv(1):
            status = _STOPS.get(signal.Signals(numbers[0]))
            if status is not None:
                threading.Event().wait(SECONDS_TO_END)
                os._exit(status)


def log_headers_briefly() -> None:
    """Shortens urllib3's warnings about headers to one line, without the parser's traceback."""
    # The same filter is added once only.
    logging.getLogger("urllib3.connection").addFilter(_shorten)


def _shorten(record: logging.LogRecord) -> bool:
    if record.exc_info:
        record.msg = escaped(record.getMessage())[:MOST_CHARACTERS]
        record.args = ()
        record.exc_info = None
        record.exc_text = None
    return True
