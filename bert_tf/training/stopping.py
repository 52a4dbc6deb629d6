"""Stops a run on Ctrl-C, SIGTERM or SIGUSR1, in any phase.

Schedulers announce a preemption by a signal: Kubernetes, systemd (virtual machines of Google and
Amazon at shutdown) and Slurm's grace time send SIGTERM; `sbatch --signal` sends any signal, often
SIGUSR1. Both have the same effect: the run saves its state and exits with `PREEMPTED`.

This module does not import TensorFlow, because signals must be caught before it is loaded.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

from absl import logging

# "Temporary failure, try again" of sysexits.h: neither success, nor failure (1), nor a process
# killed by a signal (128 + signal). The same command resumes the run.
PREEMPTED = os.EX_TEMPFAIL
NOTICES = (signal.SIGTERM, signal.SIGUSR1)


class Stopped(BaseException):
    """The run was stopped by the signal `signal_number` and has saved its state."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.signal_number = signal_number

    @property
    def exit_status(self) -> int:
        """The exit status: 75 after SIGTERM or SIGUSR1, 130 after Ctrl-C."""
        if self.signal_number == signal.SIGINT:
            return 130
        return PREEMPTED


class StopRequest:
    """Records the first signal in a `with` block, so that the block can finish in order.

    Attributes:
      number: number of the signal; 0 before a signal arrives.
    """

    def __init__(self) -> None:
        self.number = 0

    def __enter__(self) -> "StopRequest":
        self._old = {}
        for number in (*NOTICES, signal.SIGINT):
            self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: object) -> None:
        # Schedulers repeat a notice, but a second Ctrl-C means to stop at once.
        self.number = self.number or number
        if number == signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
            logging.info("Saving and stopping; Ctrl-C once more stops at once without saving.")
        else:
            logging.info("%s: saving and stopping.", signal.Signals(number).name)


def stoppable(work: Callable[[], int]) -> int:
    """Runs the work of a program; returns its exit status, `PREEMPTED` after a signal.

    Outside `StopRequest`, for example while data are prepared, a signal ends the work at once. All
    files are written atomically, so finished work is kept.
    """
    with _raised_notices():
        try:
            return work()
        except Stopped as stop:
            logging.info("%s. Finished work is kept; run the same command again to resume.", stop)
            return stop.exit_status


@contextlib.contextmanager
def _raised_notices() -> Iterator[None]:
    def leave(number: int, _: object) -> None:
        # A repeated notice must not interrupt the clean-up.
        for notice in NOTICES:
            signal.signal(notice, signal.SIG_IGN)
        raise Stopped(number)

    old = {number: signal.signal(number, leave) for number in NOTICES}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
