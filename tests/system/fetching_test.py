"""A download ends soon after a signal, also if its threads do not."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from bert_tf.system import fetching

PROGRAM = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from bert_tf.system.fetching import fetching
from bert_tf.training.stopping import stoppable

def work():
    with fetching(), ThreadPoolExecutor(1) as pool:
        pool.submit(threading.Event().wait, 60)
        print("ready", flush=True)
    return 0

sys.exit(stoppable(work))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_download(number):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=pathlib.Path(fetching.__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        start = time.monotonic()
        process.send_signal(number)
        status = process.wait(timeout=30)
    # An interrupted join() may leave the thread; then Python ends by itself, of the signal.
    expected = {signal.SIGTERM: (os.EX_TEMPFAIL,), signal.SIGINT: (130, -signal.SIGINT)}
    assert status in expected[number]
    assert time.monotonic() - start < fetching.SECONDS_TO_END + 5


def test_a_process_without_handlers_is_left_alone():
    # A library that a test loaded may have set one.
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    try:
        with fetching.fetching():
            inside = signal.set_wakeup_fd(before)
            assert inside == before
    finally:
        signal.signal(signal.SIGTERM, handler or signal.SIG_DFL)
