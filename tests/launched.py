"""What the launcher's tests start: a worker that takes seconds to load nothing.

Arguments are "INDEX:ACTION": what the worker of that index does. `exit=N` ends with N, `kill` ends
itself as the kernel would, `wait` waits for a signal and ends with 128 + its number, `once=FILE`
kills itself the first time; without an action a worker ends well.
"""

import json
import os
import pathlib
import signal
import sys
import time


def wait() -> None:
    """Waits for SIGTERM, as a run does that trains."""

    def stop(number: int, _: object) -> None:
        print("saved", flush=True)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    print("ready", flush=True)
    time.sleep(60)


def act(action: str) -> None:
    name, _, value = action.partition("=")
    if name == "exit":
        print("ERROR: as asked")
        sys.exit(int(value))
    if name == "wait":
        wait()
    if name == "kill" or name == "once" and not pathlib.Path(value).exists():
        if value:
            pathlib.Path(value).touch()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    config = json.loads(os.environ["TF_CONFIG"])
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    print("worker", config["task"]["index"], config["cluster"], gpus, sys.argv[-1], flush=True)
    for argument in sys.argv[1:]:
        index, _, action = argument.partition(":")
        if index == str(config["task"]["index"]):
            act(action)
