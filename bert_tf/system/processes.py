"""Runs a function over many tasks in several processes.

They load no TensorFlow unless the function does, and end when their parent does, even if it is
killed.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any


def count_workers(num_workers: int) -> int:
    """Returns the number of processes: `num_workers`, or one per usable core if it is 0."""
    return num_workers or len(os.sched_getaffinity(0))


def map_in_processes(
    function: Callable[..., Any],
    tasks: Iterable[tuple],
    num_workers: int,
    is_ordered: bool = False,
) -> Iterator[Any]:
    """Yields `function(*task)` for every task.

    Args:
      function: a function of a module, with arguments and results that can be pickled.
      tasks: argument tuples.
      num_workers: processes; with one process, or one task, this process does all the work.
      is_ordered: whether results have the order of the tasks instead of the order in which they are
        finished. Then only the next few tasks are submitted, so that at most twice as many results
        as workers are kept in memory.

    Raises:
      OSError: if a worker is killed, for example for lack of memory.
    """
    tasks = list(tasks)
    num_workers = min(num_workers, len(tasks))
    if num_workers <= 1:
        yield from itertools.starmap(function, tasks)
        return
    with _worker_pool(num_workers) as pool:
        if not is_ordered:
            for future in concurrent.futures.as_completed(_submit(pool, function, tasks)):
                yield future.result()
            return
        rest = iter(tasks)
        first = itertools.islice(rest, 2 * num_workers)
        futures = collections.deque(_submit(pool, function, first))
        while futures:
            result = futures.popleft().result()
            # Before the caller gets the result, so that no worker waits for the caller.
            futures.extend(_submit(pool, function, itertools.islice(rest, 1)))
            yield result


@contextlib.contextmanager
def _worker_pool(num_workers: int) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    # spawn, because a fork of a process with TensorFlow's threads may hang.
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(num_workers, context, _start_worker)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise OSError(
            "A worker process was killed, probably for lack of memory; pass a smaller "
            "--num_workers. Finished work is kept; run the same command again."
        ) from error
    finally:
        # Also if the caller stops early: tasks that have not started are dropped.
        pool.shutdown(wait=True, cancel_futures=True)


def _submit(
    pool: concurrent.futures.ProcessPoolExecutor,
    function: Callable[..., Any],
    tasks: Iterable[tuple],
) -> list[concurrent.futures.Future]:
    """Submits tasks; the workers start here, and do not import the program's main module.

    A spawned process would import it, and with it TensorFlow (seconds and hundreds of megabytes per
    worker), to unpickle functions that it defines, but no task is defined there. Workers start with
    Ctrl-C blocked, so that one during loading waits for `_start_worker`.
    """
    program = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return [pool.submit(function, *task) for task in tasks]
    finally:
        sys.modules["__main__"] = program
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _start_worker() -> None:
    """Lets a worker end with its parent, however the parent ends, and silently on Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # The sentinel of a process becomes ready when it ends, in whatever way.
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
